// An array of shape (outer, length, inner), C-contiguous, along its middle axis. `values.cuh` stands in front of this text,
// and THREADS, UNROLL, LANES, WIDE.

// inner is 1: LANES threads for each row, which are a warp or the whole block.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_rows(Result* out, const STORED* in, long long outer, long long length)
{
    const int lane = threadIdx.x % LANES;
    const long long stride = (long long)gridDim.x * (THREADS / LANES);
    for (long long row = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES; row < outer; row += stride) {
        const STORED* mine = in + row * length;
        long long head = (16 - ((unsigned long long)mine & 15)) % 16 / sizeof(STORED);
        head = head < length ? head : length;
        const long long words = (length - head) / PER_WORDS, back = head + words * PER_WORDS;
        const Words* body = (const Words*)(mine + head);
        Partial chains[CHAINS];
#pragma unroll
        for (int k = 0; k < CHAINS; ++k)
            chains[k] = nothing();
        for (long long first = lane; first < words; first += LANES * UNROLL) {
            Words got[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                if (first + k * LANES < words)
                    got[k] = load(body + first + k * LANES);
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                if (first + k * LANES < words)
                    take(chains, got[k], head + (first + k * LANES) * PER_WORDS);
        }
        if (lane < head)
            chains[0] = both(chains[0], of(mine[lane], lane));
        if (lane < length - back)
            chains[0] = both(chains[0], of(mine[back + lane], back + lane));
        const Partial total = LANES == 32 ? of_warp(joined(chains)) : of_block(joined(chains));
        if (lane == 0)
            out[row] = result_of(total);
        if (LANES != 32)
            __syncthreads();  // the next row uses the same shared memory
    }
}

// inner is more: a thread for WIDE neighbouring columns, a warp for 32 of those, the warps of a block for rows in turn; gridDim.y blocks share
// the rows of a column, and the last of them adds up. Rows are read in whole lines.
#define WARPS (THREADS / 32)
#if WIDE == 1  // rows that do not begin at multiples of 16 bytes
typedef STORED Group;
#else
typedef Words Group;
#endif
extern "C" __global__ void __launch_bounds__(THREADS)
reduce_columns(Result* out, const STORED* in, long long length, long long inner, Partial* partials, unsigned* tickets)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const long long across = (inner + 32 * WIDE - 1) / (32 * WIDE), tile = blockIdx.x, plane = tile / across;
    const long long left = tile % across * 32 * WIDE, column = left + lane * WIDE;
    const bool inside = column < inner;
    const STORED* mine = in + plane * length * inner + column;
    Partial sums[WIDE];
#pragma unroll
    for (int k = 0; k < WIDE; ++k)
        sums[k] = nothing();
    const long long stride = (long long)WARPS * gridDim.y;
    if (inside)
        for (long long row = blockIdx.y * (long long)WARPS + warp; row < length; row += stride * UNROLL) {
            union {
                Group group;
                STORED elements[WIDE];
            } got[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                if (row + k * stride < length)
#if WIDE == 1
                    got[k].group = mine[(row + k * stride) * inner];
#else
                    got[k].group = load((const Words*)(mine + (row + k * stride) * inner));
#endif
#pragma unroll
            for (int k = 0; k < UNROLL; ++k)
                if (row + k * stride < length) {
#pragma unroll
                    for (int j = 0; j < WIDE; ++j)
                        sums[j] = both(sums[j], of(got[k].elements[j], row + k * stride));
                }
        }
    __shared__ Partial of_warps[WARPS][32 * WIDE];
#pragma unroll
    for (int k = 0; k < WIDE; ++k)
        of_warps[warp][k * 32 + lane] = sums[k];
    __syncthreads();
    for (int at = threadIdx.x; at < 32 * WIDE; at += THREADS) {
        Partial total = of_warps[0][at];
        for (int other = 1; other < WARPS; ++other)
            total = both(total, of_warps[other][at]);
        const long long where = left + at % 32 * WIDE + at / 32;
        if (gridDim.y > 1)
            partials[(tile * gridDim.y + blockIdx.y) * 32 * WIDE + at] = total;
        else if (where < inner)
            out[plane * inner + where] = result_of(total);
    }
    if (gridDim.y == 1)
        return;
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicInc(tickets + tile, gridDim.y - 1) == gridDim.y - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    for (int at = threadIdx.x; at < 32 * WIDE; at += THREADS) {
        Partial total = nothing();
        for (unsigned block = 0; block < gridDim.y; ++block)
            total = both(total, partials[(tile * gridDim.y + block) * 32 * WIDE + at]);
        const long long where = left + at % 32 * WIDE + at / 32;
        if (where < inner)
            out[plane * inner + where] = result_of(total);
    }
}
