// Step 9: loads of 16 bytes.
//
// One instruction brings four elements of 4 bytes: a quarter of the loads, and four times as many bytes under way for each of them.
// `in` lies at a multiple of 16 bytes, as every allocation does.
#ifndef TYPE
#define TYPE int
#endif

// In thread 0: the sum over the block. Each warp by shuffles, then one warp over the sums of the warps.
template <unsigned BLOCK>
__device__ TYPE of_block(TYPE sum)
{
    __shared__ TYPE of_warps[BLOCK / 32];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, lanes);
    if (lane == 0)
        of_warps[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < BLOCK / 32 ? of_warps[lane] : 0;
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, lanes);
    }
    return sum;
}

struct alignas(16) Four {
    TYPE x, y, z, w;
};

template <unsigned BLOCK>
__global__ void reduce(TYPE* out, const TYPE* in, long long n)
{
    const Four* fours = (const Four*)in;
    const long long stride = (long long)BLOCK * gridDim.x, first = blockIdx.x * (long long)BLOCK + threadIdx.x;
    TYPE sum = 0;
    for (long long i = first; i < n / 4; i += stride) {
        const Four four = fours[i];
        sum += (four.x + four.y) + (four.z + four.w);
    }
    if (first < n % 4)
        sum += in[n / 4 * 4 + first];
    sum = of_block<BLOCK>(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
