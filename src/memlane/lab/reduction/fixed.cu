// A whole array to one value by a tree that does not depend on the launch. `values.cuh` stands in front of this text, and THREADS, UNROLL.
//
// The array is cut into segments by its number of elements alone. A warp sums a segment: lane l takes words l, l + 32, l + 64, ... of it in
// their order, whatever UNROLL is and however the array is aligned. The last block sums the segments: 32 and 32, and the groups in their
// order. So every bit of the result is the same for every grid, every block and every chip.
#define MOST_SEGMENTS 16384

__device__ __forceinline__ void take_each(Partial (&chains)[CHAINS], const STORED* in, long long first, long long n)
{
#pragma unroll
    for (int k = 0; k < PER_WORDS; ++k)
        if (first + k < n)
            chains[k % CHAINS] = both(chains[k % CHAINS], of(in[first + k], first + k));
}

__device__ __forceinline__ Partial of_segment(const STORED* in, long long n, long long begin, long long end)
{
    const bool aligned = ((unsigned long long)in & 15) == 0;
    const long long whole = aligned ? n / PER_WORDS : 0;
    const Words* body = (const Words*)in;
    Partial chains[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; ++k)
        chains[k] = nothing();
    for (long long word = begin + threadIdx.x % 32; word < end; word += 32 * UNROLL) {
        Words words[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k)
            if (word + k * 32 < end && word + k * 32 < whole)
                words[k] = load(body + word + k * 32);
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const long long here = word + k * 32;
            if (here < end && here < whole)
                take(chains, words[k], here * PER_WORDS);
            else if (here < end)
                take_each(chains, in, here * PER_WORDS, n);
        }
    }
    return of_warp(joined(chains));
}

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_fixed(Result* out, const STORED* in, long long n, long long segment_words, Partial* partials, unsigned* ticket)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = THREADS / 32;
    const long long words = (n + PER_WORDS - 1) / PER_WORDS, segments = (words + segment_words - 1) / segment_words;
    for (long long segment = (long long)blockIdx.x * warps + warp; segment < segments; segment += (long long)gridDim.x * warps) {
        const long long begin = segment * segment_words, end = begin + segment_words < words ? begin + segment_words : words;
        const Partial partial = of_segment(in, n, begin, end);
        if (lane == 0)
            partials[segment] = partial;
    }
    __shared__ bool is_last;
    __shared__ Partial of_groups[MOST_SEGMENTS / 32];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    const int groups = (int)((segments + 31) / 32);
    for (int group = warp; group < groups; group += warps) {
        const int segment = group * 32 + lane;
        const Partial partial = of_warp(segment < segments ? partials[segment] : nothing());
        if (lane == 0)
            of_groups[group] = partial;
    }
    __syncthreads();
    if (warp == 0) {
        Partial partial = nothing();
        for (int group = lane; group < groups; group += 32)
            partial = both(partial, of_groups[group]);
        partial = of_warp(partial);
        if (lane == 0)
            *out = result_of(partial);
    }
}
