// Step 12: sum and count in one word.
//
// A sum of 32 bits and the number of blocks that have added to it fit into 64 bits, so one atomic addition leaves the sum and draws the number:
// no fence, no second reading, one trip to the second cache. The sum is in the upper half, where its overflow falls off. int only.
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

// 16 bytes past the first cache, in which they would find no second use. The compiler may not move other such loads behind the use of one.
__device__ Four load(const Four* at)
{
    static_assert(sizeof(Four) == 16, "elements of 4 bytes");
    union {
        unsigned words[4];
        Four four;
    } got;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.words[0]), "=r"(got.words[1]), "=r"(got.words[2]), "=r"(got.words[3])
                 : "l"(at));
    return got.four;
}

#define IN_FLIGHT 8
template <unsigned BLOCK>
__device__ TYPE of_thread(const TYPE* in, long long n)
{
    const Four* fours = (const Four*)in;
    const long long tile = (long long)BLOCK * IN_FLIGHT, stride = tile * gridDim.x, first = blockIdx.x * tile + threadIdx.x;
    TYPE sum = 0;
    for (long long i = first; i < n / 4; i += stride) {
        Four four[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k)
            four[k] = i + k * BLOCK < n / 4 ? load(fours + i + k * BLOCK) : Four{};
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k)
            sum += (four[k].x + four[k].y) + (four[k].z + four[k].w);
    }
    if (first < n % 4)
        sum += in[n / 4 * 4 + first];
    return sum;
}

template <unsigned BLOCK>
__global__ void reduce(TYPE* out, const TYPE* in, long long n, unsigned long long* sum_and_count)
{
    static_assert(sizeof(TYPE) == 4 && TYPE(1) / 2 == 0, "integers of 32 bits");
    const TYPE sum = of_block<BLOCK>(of_thread<BLOCK>(in, n));
    if (threadIdx.x == 0) {
        const unsigned long long mine = (unsigned long long)(unsigned)sum << 32 | 1;
        const unsigned long long all = atomicAdd(sum_and_count, mine) + mine;
        if ((unsigned)all == gridDim.x) {
            *sum_and_count = 0;  // as the next launch wants to find it
            *out = (TYPE)(all >> 32);
        }
    }
}
