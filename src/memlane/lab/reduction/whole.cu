// A whole array to one value in one launch. `values.cuh` stands in front of this text, and
//
//   THREADS   of a block; UNROLL loads of 16 bytes that each thread has in flight
//   FINISH    how the blocks' values become one: TICKET, PACKED or CLUSTER
//   CLUSTER_BLOCKS  with CLUSTER: blocks of the grid, which is one cluster
#define TICKET 0
#define PACKED 1
#define CLUSTER 2

// The elements in front of the first address that is a multiple of 16, which one load of 16 bytes cannot reach.
__device__ __forceinline__ long long in_front(const STORED* in, long long n)
{
    const long long head = (16 - ((unsigned long long)in & 15)) % 16 / sizeof(STORED);
    return head < n ? head : n;
}

// UNROLL loads, all before the first is used. WHOLE: all of them lie in the array.
template <bool WHOLE>
__device__ __forceinline__ void turn(Partial (&chains)[CHAINS], const Words* body, long long first, long long end, long long head)
{
    Words words[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; ++k)
        if (WHOLE || first + k * THREADS < end)
            words[k] = load(body + first + k * THREADS);
#pragma unroll
    for (int k = 0; k < UNROLL; ++k)
        if (WHOLE || first + k * THREADS < end)
            take(chains, words[k], head + (first + k * THREADS) * PER_WORDS);
}

// The share of this thread.
__device__ __forceinline__ Partial of_thread(const STORED* in, long long n)
{
    const long long head = in_front(in, n), words = (n - head) / PER_WORDS;
    const Words* body = (const Words*)(in + head);
    Partial chains[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; ++k)
        chains[k] = nothing();
    const long long tile = THREADS * UNROLL, stride = gridDim.x * tile;
    long long start = blockIdx.x * tile;
    if (UNROLL > 1)
        for (; start + tile <= words; start += stride)
            turn<true>(chains, body, start + threadIdx.x, words, head);
    for (; start < words; start += stride)
        turn<false>(chains, body, start + threadIdx.x, words, head);
    if (blockIdx.x == 0) {  // the ends, fewer than 16 bytes each
        const long long back = head + words * PER_WORDS;
        if (threadIdx.x < head)
            chains[0] = both(chains[0], of(in[threadIdx.x], threadIdx.x));
        if (threadIdx.x < n - back)
            chains[0] = both(chains[0], of(in[back + threadIdx.x], back + threadIdx.x));
    }
    return joined(chains);
}

#if FINISH == TICKET
// Every block leaves its value and draws a number; who draws the last one adds up. `atomicInc` wraps to 0 then, so that the next launch,
// which may be the same graph again, finds it as it was.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_whole(Result* out, const STORED* in, long long n, Partial* partials, unsigned* ticket)
{
    Partial mine = of_block(of_thread(in, n));
    if (gridDim.x == 1) {
        if (threadIdx.x == 0)
            *out = result_of(mine);
        return;
    }
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = mine;
        __threadfence();  // the value is seen before the number is drawn
        is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    mine = nothing();
    for (unsigned block = threadIdx.x; block < gridDim.x; block += THREADS)
        mine = both(mine, partials[block]);
    mine = of_block(mine);
    if (threadIdx.x == 0)
        *out = result_of(mine);
}
#elif FINISH == PACKED
// A sum of 32 bits and the number of blocks that added to it fit into one word: no partial, no fence, one trip to the second cache.
// The sum is in the upper half, where its overflow falls off.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_whole(Result* out, const STORED* in, long long n, Partial* partials, unsigned* ticket)
{
    const Partial mine = of_block(of_thread(in, n));
    if (threadIdx.x == 0) {
        unsigned long long* both_in_one = (unsigned long long*)partials;
        const unsigned long long added = (unsigned long long)(unsigned)mine.value << 32 | 1;
        const unsigned long long now = atomicAdd(both_in_one, added) + added;
        if ((unsigned)now == gridDim.x) {
            *both_in_one = 0;
            *out = (int)(now >> 32);
        }
    }
}
#else
// One cluster: its blocks write their values into the shared memory of the first, and meet at the cluster's barrier.
extern "C" __global__ void __cluster_dims__(CLUSTER_BLOCKS) __launch_bounds__(THREADS)
reduce_whole(Result* out, const STORED* in, long long n, Partial* partials, unsigned* ticket)
{
    __shared__ Partial of_blocks[CLUSTER_BLOCKS];
    asm volatile("barrier.cluster.arrive.relaxed.aligned;");  // that the first block has begun; awaited below, behind the loads
    const Partial mine = of_block(of_thread(in, n));
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
        const unsigned here = (unsigned)__cvta_generic_to_shared(&of_blocks[blockIdx.x]);
        unsigned there;
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(here));
        const unsigned* words = (const unsigned*)&mine;
#pragma unroll
        for (int k = 0; k < (int)sizeof(Partial) / 4; ++k)
            asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there + 4 * k), "r"(words[k]) : "memory");
    }
    __syncwarp();  // an aligned barrier wants the lanes of a warp together
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (blockIdx.x != 0)
        return;
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x < 32) {
        const Partial all = of_warp(threadIdx.x < CLUSTER_BLOCKS ? of_blocks[threadIdx.x] : nothing());
        if (threadIdx.x == 0)
            *out = result_of(all);
    }
}
#endif
