// Cycles around the accesses of warps to a tile in shared memory.
//
// In front of this text stand, as macros: ELEMENT (an unsigned type of 4 or 8 bytes), ROOM (elements that the tile takes), COUNT (accesses
// of a warp, one right behind the other), INCLUDED (1: the address is computed between the clock reads), TABLE (0: none; else `place` looks
// up a table, another one for each draw, in GLOBAL, CONSTANT or SHARED memory); and the function `place(i, j)`, or `place(i, j, table)`.
//
// Each run: every lane takes the places of its accesses from `rows` and `columns`, or their offsets from `offsets`; all warps meet; then
// each reads its clock, accesses COUNT times, and reads its clock again when the last access has completed. It does so twice, and the first
// time does not count: its warps wait for their places and for their instructions, each for another time.

#define LANES 32
#define GLOBAL 1
#define CONSTANT 2
#define SHARED 3
#define PASSES 2
#if WIDTH == 4
#define EVERY_WORD(value) (value)
#define LOAD(value, at) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(value) : "r"(at) : "memory")
#define STORE(value, at) asm volatile("st.volatile.shared.u32 [%1], %0;" ::"r"(value), "r"(at) : "memory")
#else
#define EVERY_WORD(value) (static_cast<unsigned>(value) | static_cast<unsigned>((value) >> 32))
#define LOAD(value, at) asm volatile("ld.volatile.shared.u64 %0, [%1];" : "=l"(value) : "r"(at) : "memory")
#define STORE(value, at) asm volatile("st.volatile.shared.u64 [%1], %0;" ::"l"(value), "r"(at) : "memory")
#endif

#if TABLE
#define PLACE(i, j, draw) place(i, j, shifts + (draw) * ROWS)
#else
#define PLACE(i, j, draw) place(i, j)
#endif

// The clock when `word` is there. `none` is 0, which the assembler cannot know.
__device__ __forceinline__ long long clock_behind(unsigned word, unsigned none)
{
    long long now = 0;
    asm volatile("{ .reg .pred there; setp.eq.u32 there, %1, 0; @there mov.u64 %0, %%clock64; }" : "+l"(now) : "r"(word & none) : "memory");
    return now;
}

__device__ __forceinline__ unsigned base_of(const ELEMENT* tile)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(tile));
}

// One run of a warp: its places, all of them in registers; all warps together; the accesses between two clock reads.
template <bool WRITE>
__device__ __forceinline__ void run(ELEMENT* tile, const int* offsets, const int* rows, const int* columns, const int* shifts, int draw,
                                    long long* times, unsigned none)
{
    const int threads = blockDim.x, at = draw * COUNT * threads + threadIdx.x;
    int i[COUNT], j[COUNT];
    unsigned address[COUNT], seen = 0;
    const unsigned base = base_of(tile), spare = base + (ROOM + threadIdx.x % LANES) * sizeof(ELEMENT);
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
#if INCLUDED
        i[k] = rows[at + k * threads];
        j[k] = columns[at + k * threads];
        seen |= i[k] | j[k];
#else
        address[k] = base + offsets[at + k * threads] * sizeof(ELEMENT);
        seen |= address[k];
#endif
    }
    seen |= spare;
    long long start = 0, end = 0;
#pragma unroll 1
    for (int pass = 0; pass < PASSES; ++pass) {
        __syncthreads();
        start = clock_behind(seen, none);
        const int bound = static_cast<int>(start) & none;  // so that no address is computed before the clock is read
        ELEMENT value[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
#if INCLUDED
            address[k] = base + PLACE(i[k] ^ bound, j[k] ^ bound, draw) * sizeof(ELEMENT);
#endif
            if constexpr (WRITE) {
                STORE(static_cast<ELEMENT>(threadIdx.x), address[k]);
            } else {
                LOAD(value[k], address[k]);
            }
        }
        // A store brings nothing. Shared memory keeps the order of a warp, so a load behind it, of a word without conflicts, completes
        // after it.
        if constexpr (WRITE)
            LOAD(value[0], spare);
        unsigned brought = 0;
#pragma unroll
        for (int k = 0; k < (WRITE ? 1 : COUNT); ++k)
            brought |= EVERY_WORD(value[k]);  // one that is not needed would not be loaded, whatever the instruction says
        end = clock_behind(brought, none);
    }
    if (threadIdx.x % LANES == 0) {
        times[threadIdx.x / LANES * 2] = start;
        times[threadIdx.x / LANES * 2 + 1] = end;
    }
    __syncthreads();
}

// The same as the published experiment does it: bare reads of the 32-bit clock, which wait neither for the address nor for the value, once.
template <bool WRITE>
__device__ __forceinline__ void bare_run(ELEMENT* tile, const int* offsets, const int* rows, const int* columns, const int* shifts, int draw,
                                         long long* times)
{
    const int at = draw * COUNT * blockDim.x + threadIdx.x;
#if INCLUDED
    const int i = rows[at], j = columns[at];
#else
    const int offset = offsets[at];
#endif
    unsigned start, end;
    ELEMENT value = threadIdx.x;
    __syncthreads();
    asm volatile("mov.u32 %0, %%clock;" : "=r"(start)::"memory");
#if INCLUDED
    const int offset = PLACE(i, j, draw);
#endif
    if constexpr (WRITE) {
        STORE(value, static_cast<unsigned>(base_of(tile) + offset * sizeof(ELEMENT)));
    } else {
        LOAD(value, static_cast<unsigned>(base_of(tile) + offset * sizeof(ELEMENT)));
    }
    asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
    if (threadIdx.x % LANES == 0) {
        times[threadIdx.x / LANES * 2] = 0;
        times[threadIdx.x / LANES * 2 + 1] = end - start;
    }
    __syncthreads();
}

#if TABLE == CONSTANT
__constant__ int constant_table[TABLE_WORDS];
#endif

template <bool WRITE, bool BARE>
__device__ __forceinline__ void measure(const int* offsets, const int* rows, const int* columns, const int* tables, int draws, int runs,
                                        long long* times, unsigned none)
{
    __shared__ ELEMENT tile[ROOM + LANES];
    for (int k = threadIdx.x; k < ROOM + LANES; k += blockDim.x)
        tile[k] = k;
#if TABLE == SHARED
    __shared__ int shifts[TABLE_WORDS];
    for (int k = threadIdx.x; k < draws * ROWS; k += blockDim.x)
        shifts[k] = tables[k];
#elif TABLE == CONSTANT
    const int* shifts = constant_table;  // which the host fills
#else
    const int* shifts = tables;
#endif
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < runs; ++turn, times += blockDim.x / LANES * 2) {
        if constexpr (BARE)
            bare_run<WRITE>(tile, offsets, rows, columns, shifts, turn % draws, times);
        else
            run<WRITE>(tile, offsets, rows, columns, shifts, turn % draws, times, none);
    }
}

#define PARAMETERS \
    const int *offsets, const int *rows, const int *columns, const int *tables, int draws, int runs, long long *times, unsigned none

#define KERNEL(name, writes, bare)                                                          \
    extern "C" __global__ void name(PARAMETERS)                                             \
    {                                                                                       \
        measure<writes, bare>(offsets, rows, columns, tables, draws, runs, times, none);    \
    }

#if COUNT == 1
KERNEL(bare_read, false, true)
KERNEL(bare_write, true, true)
#endif
KERNEL(read, false, false)
KERNEL(write, true, false)
