// Step 8: shuffles.
//
// Lanes of a warp read each other's registers, so a warp sums its 32 values without shared memory; that is left for one value of each warp,
// and of the barriers one is left.
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

template <unsigned BLOCK>
__global__ void reduce(TYPE* out, const TYPE* in, long long n)
{
    const long long stride = 2ll * BLOCK * gridDim.x;
    TYPE sum = 0;
    for (long long i = blockIdx.x * (2ll * BLOCK) + threadIdx.x; i < n; i += stride) {
        sum += in[i];
        if (i + BLOCK < n)
            sum += in[i + BLOCK];
    }
    sum = of_block<BLOCK>(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
