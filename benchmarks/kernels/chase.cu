// Pointer chases through absolute 64-bit addresses, by one warp or by many, that keep their own time.
//
// A ring is a number of rows, `row_bytes` apart, each of 32 addresses, one for each lane: word `l` of row i holds the address of word `l`
// of row (i + stride) % rows. Position p of the walk is row p * stride % rows, so that walks which begin `steps` positions apart never
// meet. With `spread` 0 all lanes of a warp follow word 0 (one sector a request), with 1 each lane its own word (256 bytes a request).
//
// Every warp leaves in `times`: the clock before its first and after its last timed load, its SM, and where it arrived. Both clock
// reads are under a predicate on the pointer, so that the first waits for the pointer and the last for the value of the last load.
//
// `zero` is 0. Nothing here reads it: a kernel whose loads are switched off, to measure an empty probe, needs a predicate that the
// compiler cannot see through.

struct Times {
    unsigned long long begin, end, sm, arrived;
};

__device__ unsigned long long clock_after(unsigned long long at) {
    unsigned long long now = 0;
    asm volatile(
        "{\n"
        ".reg .pred there;\n"
        "setp.ne.u64 there, %1, -1;\n"
        "@there mov.u64 %0, %%clock64;\n"
        "}"
        : "+l"(now)
        : "l"(at));
    return now;
}

__device__ void leave(Times* times, int warp, unsigned long long begin, unsigned long long end, unsigned long long at) {
    unsigned int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x % 32 == 0) {
        times[warp].begin = begin;
        times[warp].end = end;
        times[warp].sm = sm;
        times[warp].arrived = at;
    }
}

extern "C" __global__ void link(char* ring, long long row_bytes, int rows, int stride) {
    long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (i < rows) {
        char* next = ring + (i + stride) % rows * row_bytes + lane * 8;
        *reinterpret_cast<unsigned long long*>(ring + i * row_bytes + lane * 8) = reinterpret_cast<unsigned long long>(next);
    }
}

extern "C" __global__ void __launch_bounds__(256, 8)
chase_global(Times* times, const char* ring, long long row_bytes, int rows, int stride, int position, int spread, int warm, int steps,
             unsigned int zero) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    long long row = (position + (long long)warp * steps) % rows * stride % rows;
    unsigned long long at = reinterpret_cast<unsigned long long>(ring) + row * row_bytes + lane * spread * 8;
#pragma unroll 1
    for (int i = 0; i < warm; ++i) {
        asm volatile("ld.global.u64 %0, [%0];" : "+l"(at)::"memory");
    }
    unsigned long long begin = clock_after(at);
#pragma unroll 4
    for (int i = 0; i < steps; ++i) {
        asm volatile("ld.global.u64 %0, [%0];" : "+l"(at)::"memory");  // timed: global
    }
    leave(times, warp, begin, clock_after(at), at);
}

// The ring lies in dynamic shared memory, 256 bytes a row, and is written first.
extern "C" __global__ void __launch_bounds__(256, 8)
chase_shared(Times* times, int rows, int stride, int position, int spread, int warm, int steps, unsigned int zero) {
    extern __shared__ unsigned long long ring[];
    unsigned long long base = __cvta_generic_to_shared(ring);
    for (int i = threadIdx.x; i < rows * 32; i += blockDim.x) {
        ring[i] = base + ((i / 32 + stride) % rows * 32 + i % 32) * 8;
    }
    __syncthreads();
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    unsigned long long at = base + (((position + warp) % rows * stride % rows) * 32 + lane * spread) * 8;
#pragma unroll 1
    for (int i = 0; i < warm; ++i) {
        asm volatile("ld.shared.u64 %0, [%0];" : "+l"(at)::"memory");
    }
    unsigned long long begin = clock_after(at);
#pragma unroll 4
    for (int i = 0; i < steps; ++i) {
        asm volatile("ld.shared.u64 %0, [%0];" : "+l"(at)::"memory");  // timed: shared
    }
    leave(times, warp, begin, clock_after(at), at);
}
