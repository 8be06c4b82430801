// As `whole.cu` with PACKED, but the copy engine brings the array to shared memory: one thread asks, all threads add.
//
//   THREADS, STAGES copies in flight of STAGE_BYTES each
__device__ __forceinline__ unsigned shared_address(const void* at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void ask(unsigned to, const Words* from, unsigned bytes, unsigned barrier)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void await(unsigned barrier, unsigned parity)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}

// n a multiple of 4, `in` aligned to 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_whole(Result* out, const STORED* in, long long n, Partial* partials, unsigned* ticket)
{
    extern __shared__ __align__(128) Words room[];
    __shared__ __align__(8) unsigned long long full[STAGES];
    const int words = STAGE_BYTES / 16;
    const long long all = n / PER_WORDS, tiles = (all + words - 1) / words;
    const Words* body = (const Words*)in;
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; ++stage)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[stage])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; ++stage) {
            const long long tile = blockIdx.x + (long long)stage * gridDim.x;
            if (tile < tiles) {
                const long long left = all - tile * words;
                ask(shared_address(room + stage * words), body + tile * words, (left < words ? left : words) * 16, shared_address(&full[stage]));
            }
        }
    Partial chains[CHAINS];
    for (int k = 0; k < CHAINS; ++k)
        chains[k] = nothing();
    int stage = 0, parity = 0;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        await(shared_address(&full[stage]), parity);
        const long long left = all - tile * words;
        const int here = left < words ? left : words;
#pragma unroll 4
        for (int k = threadIdx.x; k < here; k += THREADS)
            take(chains, room[stage * words + k], 0);
        __syncthreads();
        const long long next = tile + (long long)STAGES * gridDim.x;
        if (threadIdx.x == 0 && next < tiles) {
            const long long rest = all - next * words;
            ask(shared_address(room + stage * words), body + next * words, (rest < words ? rest : words) * 16, shared_address(&full[stage]));
        }
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    const Partial mine = of_block(joined(chains));
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
