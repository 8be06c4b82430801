// What is reduced, and how two become one. In front of this text stand:
//
//   STORED    the type in memory (a half is an unsigned short); VALUE the type that is computed with; UNSIGNED one in which sums wrap
//   OP        SUM, PRODUCT, MIN, MAX, ARGMIN or ARGMAX; IDENTITY the value that changes nothing
//   HALF      1 for halves, else 0; THREADS of a block
#define SUM 0
#define PRODUCT 1
#define MIN 2
#define MAX 3
#define ARGMIN 4
#define ARGMAX 5
#define HAS_INDEX (OP >= ARGMIN)
#define ALL_LANES 0xffffffffu
#define PER_WORDS (16 / (int)sizeof(STORED))

// 16 bytes: as much as one instruction loads for a lane.
struct alignas(16) Words {
    unsigned x, y, z, w;
};

struct Partial {
    VALUE value;
#if HAS_INDEX
    long long index;
#endif
};

#if HAS_INDEX
typedef long long Result;
#else
typedef STORED Result;
#endif

__device__ __forceinline__ VALUE value_of(STORED stored)
{
#if HALF
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
    return value;
#else
    return stored;
#endif
}

__device__ __forceinline__ Result result_of(Partial partial)
{
#if HAS_INDEX
    return partial.index;
#elif HALF
    unsigned short stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(partial.value));
    return stored;
#else
    return partial.value;
#endif
}

__device__ __forceinline__ Partial nothing()
{
    Partial partial;
    partial.value = IDENTITY;
#if HAS_INDEX
    partial.index = 0x7fffffffffffffffll;
#endif
    return partial;
}

__device__ __forceinline__ Partial of(STORED stored, long long index)
{
    Partial partial;
    partial.value = value_of(stored);
#if HAS_INDEX
    partial.index = index;
#endif
    return partial;
}

// One of two. A NaN wins in min and max, as in NumPy; of equal values, and of NaNs, the first index wins.
__device__ __forceinline__ Partial both(Partial a, Partial b)
{
#if OP == SUM
    a.value = (VALUE)((UNSIGNED)a.value + (UNSIGNED)b.value);
    return a;
#elif OP == PRODUCT
    a.value = (VALUE)((UNSIGNED)a.value * (UNSIGNED)b.value);
    return a;
#elif OP == MIN
    return a.value < b.value || a.value != a.value ? a : b;
#elif OP == MAX
    return a.value > b.value || a.value != a.value ? a : b;
#else
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool before = OP == ARGMIN ? a.value < b.value : a.value > b.value;
    const bool equal = a.value == b.value || (a_nan && b_nan);
    return before || (a_nan && !b_nan) || (equal && a.index < b.index) ? a : b;
#endif
}

__device__ __forceinline__ Partial from_lane_below(Partial partial, int lanes)
{
    partial.value = __shfl_down_sync(ALL_LANES, partial.value, lanes);
#if HAS_INDEX
    partial.index = __shfl_down_sync(ALL_LANES, partial.index, lanes);
#endif
    return partial;
}

// In lane 0: all lanes as one, by a tree of five levels.
__device__ __forceinline__ Partial of_warp(Partial partial)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        partial = both(partial, from_lane_below(partial, lanes));
    return partial;
}

// In thread 0: the block as one. Each warp by shuffles, then one warp over their results.
__device__ __forceinline__ Partial of_block(Partial partial)
{
    __shared__ Partial of_warps[THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    partial = of_warp(partial);
    if (THREADS == 32)
        return partial;
    if (lane == 0)
        of_warps[warp] = partial;
    __syncthreads();
    if (warp == 0) {
        partial = lane < THREADS / 32 ? of_warps[lane] : nothing();
        partial = of_warp(partial);
    }
    return partial;
}

// 16 bytes past the first cache: each is needed once.
#ifndef HINT
#define HINT 1
#endif
__device__ __forceinline__ Words load(const Words* at)
{
    Words got;
#if HINT == 0
    got = *at;
#elif HINT == 1
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w) : "l"(at));
#elif HINT == 2
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w) : "l"(at));
#else
    unsigned long long policy;
#if HINT == 3
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#elif HINT == 4
    asm("createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %0, 0.5;" : "=l"(policy));
#else
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 0.25;" : "=l"(policy));
#endif
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w) : "l"(at), "l"(policy));
#endif
    return got;
}

// The elements of 16 bytes into four chains, so that none waits for the one before it.
#define CHAINS (PER_WORDS < 4 ? PER_WORDS : 4)
__device__ __forceinline__ void take(Partial (&chains)[CHAINS], Words words, long long index)
{
    union {
        Words words;
        STORED elements[PER_WORDS];
    } both_ways;
    both_ways.words = words;
#pragma unroll
    for (int k = 0; k < PER_WORDS; ++k)
        chains[k % CHAINS] = both(chains[k % CHAINS], of(both_ways.elements[k], index + k));
}

__device__ __forceinline__ Partial joined(Partial (&chains)[CHAINS])
{
#pragma unroll
    for (int k = 1; k < CHAINS; ++k)
        chains[0] = both(chains[0], chains[k]);
    return chains[0];
}
