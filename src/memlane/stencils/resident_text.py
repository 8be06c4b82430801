"""Hold the templates of kernels that keep the cells of a device in shared memory; `resident` fills in the names after dollar signs."""

TILE_ROW = """\
template <typename P, typename T> __device__ __forceinline__ P* tile_row(T* tile, int plane, int row, int x0) {
    return reinterpret_cast<P*>(tile + (plane * ($row) + row * NX + x0));
}
template <typename P, typename T> __device__ __forceinline__ P* cells_of(T* cells, int planes, int offset) {
    return reinterpret_cast<P*>(cells + (planes * PLANE + offset));
}"""

SENDING = """\
// Words that devices send each other lie beside the count of the step that made them, in 8 bytes that are stored and read at once.
__device__ __forceinline__ unsigned long long* place_of(unsigned long long* planes, int plane, int y, int x0) {
    return planes + ((plane * NY + y) * $row + x0 * (int)sizeof($T) / 4);
}
__device__ __forceinline__ unsigned long long counted(unsigned word, unsigned count) { return (unsigned long long)count << 32 | word; }
__device__ __forceinline__ void send_words(
    unsigned long long* planes, int plane, int y, int x0, int word, const $T* cells, unsigned count
) {
    const unsigned* const own = reinterpret_cast<const unsigned*>(cells) + word;
    unsigned long long* const to = place_of(planes, plane, y, x0) + word;
    if ($pair == 2) {
        const uint2 both = *reinterpret_cast<const uint2*>(own);
        asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
            :: "l"(to), "l"(counted(both.x, count)), "l"(counted(both.y, count)) : "memory");
    } else {
        *(volatile unsigned long long*)to = counted(*own, count);
    }
}
__device__ __forceinline__ void send_cells(unsigned long long* planes, int plane, int y, int x0, const $R* cells, unsigned count) {
    union { $T stored[$vector]; unsigned words[$words]; } own;
    for (int c = 0; c < $vector; ++c) narrow(own.stored[c], cells[c]);
    unsigned long long* const to = place_of(planes, plane, y, x0);
#pragma unroll
    for (int word = 0; word < $words; word += $pair) {
        if ($pair == 2) {
            asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
                :: "l"(to + word), "l"(counted(own.words[word], count)), "l"(counted(own.words[word + $pair - 1], count)) : "memory");
        } else {
            *(volatile unsigned long long*)(to + word) = counted(own.words[word], count);
        }
    }
}
// Says whether to look again for what has not arrived. A device that has waited too long goes on at once, and says for whom it waited.
__device__ __noinline__ bool waits_on(unsigned poll, unsigned seen, unsigned count, unsigned polls, unsigned* state, bool is_low) {
    if (*(volatile unsigned*)(state + $gave_up) != 0) return false;
    if (poll < polls) return true;
    if (atomicCAS(state + $gave_up, 0u, is_low ? ${wait_from_low}u : ${wait_from_high}u) == 0) {
        state[$gave_up + 1] = seen;
        state[$gave_up + 2] = count;
    }
    return false;
}
// Reads the cells of a thread in some rows, all at once, until all have arrived.
template <int PLANES, int ROWS> __device__ __forceinline__ void arrived_in(
    unsigned long long* arrivals, int plane, const int (&y)[ROWS], int x0, $R (*cells)[ROWS][$vector], unsigned count, unsigned polls,
    unsigned* state, bool is_low
) {
    union { $T stored[$vector]; unsigned words[$words]; } own[PLANES][ROWS];
    unsigned other, poll = 0;
    do {
        other = count;
#pragma unroll
        for (int at = 0; at < PLANES * ROWS; ++at) {
            const unsigned long long* const from = place_of(arrivals, plane + at / ROWS, y[at % ROWS], x0);
            unsigned* const words = own[at / ROWS][at % ROWS].words;
#pragma unroll
            for (int word = 0; word < $words; word += $pair) {
                unsigned long long both[2];
                if ($pair == 2) {
                    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(both[0]), "=l"(both[1]) : "l"(from + word) : "memory");
                } else {
                    both[0] = *(const volatile unsigned long long*)(from + word);
                }
                for (int one = 0; one < $pair; ++one) {
                    words[word + one] = (unsigned)both[one];
                    other = both[one] >> 32 != count ? (unsigned)(both[one] >> 32) : other;
                }
            }
        }
    } while (other != count && (++poll % 64 || waits_on(poll, other, count, polls, state, is_low)));
#pragma unroll
    for (int at = 0; at < PLANES * ROWS; ++at) {
        for (int c = 0; c < $vector; ++c) cells[at / ROWS][at % ROWS][c] = widened(own[at / ROWS][at % ROWS].stored[c]);
    }
}
template <int PLANES> __device__ __forceinline__ void arrived_rows(
    unsigned long long* arrivals, int y, int x0, $R (*cells)[$rows][$vector], unsigned count, unsigned polls, unsigned* state, bool is_low
) {
    int rows[$rows];
    for (int row = 0; row < $rows; ++row) rows[row] = y + row;
    arrived_in<PLANES, $rows>(arrivals, 0, rows, x0, cells, count, polls, state, is_low);
}
__device__ __forceinline__ void arrived_cells(
    unsigned long long* arrivals, int plane, int y, int x0, $R* cells, unsigned count, unsigned polls, unsigned* state, bool is_low
) {
    const int rows[1] = {y};
    arrived_in<1, 1>(arrivals, plane, rows, x0, reinterpret_cast<$R (*)[1][$vector]>(cells), count, polls, state, is_low);
}
__device__ __forceinline__ $R arrived_cell(
    unsigned long long* arrivals, int plane, int y, int x, unsigned count, unsigned polls, unsigned* state, bool is_low
) {
    $R cells[$vector];
    arrived_cells(arrivals, plane, y, x / $vector * $vector, cells, count, polls, state, is_low);
    $R found = cells[0];
#pragma unroll
    for (int c = 1; c < $vector; ++c) found = x % $vector == c ? cells[c] : found;
    return found;
}"""

KERNEL = """\
// Waits until the blocks around a block have made so many steps, and those of neighbouring devices all but two of them.
__device__ __forceinline__ void wait_around(
    unsigned* signals, unsigned count, int block_y, int block_z, int last_z, bool has_low, bool has_high, int thread, unsigned polls
) {
    constexpr bool WRAPS = $wraps, WRAPS_Z = $wraps_z;
    constexpr int OTHERS = $threads > 32 ? 32 : 8;  // a warp of its own, so that none of the two waits for the other one
    if (thread >= OTHERS + 6 || (thread >= 8 && thread < OTHERS)) return;
    const int at = thread < 4 ? thread : thread < 8 ? thread + 1 : thread - OTHERS;  // 0 to 8 around the block, three at either device
    const int from_y = block_y + at % 3 - 1, y = WRAPS ? (from_y + $across) % $across : from_y;
    if (y < 0 || y >= $across) return;
    if (thread < 8) {
        const int from_z = block_z + at / 3 - 1, z = WRAPS_Z ? (from_z + last_z + 1) % (last_z + 1) : from_z;
        if (z < 0 || z > last_z) return;
        unsigned seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                : "=r"(seen) : "l"(signals + ($own + z * $across + y) * $signal_words) : "memory");
        } while ((int)(seen - count) < 0);
    } else if (at < 3 ? has_low : has_high) {
        const unsigned* const flag = signals + ((at < 3 ? $from_low : $from_high) + y) * $signal_words;
        wait_for(flag, count - 2, at < 3 ? $wait_from_low : $wait_from_high, polls, signals + $state);
    }
}
template <bool IS_WHOLE, bool IS_UP>  // whether no boundary along z and y keeps a cell of the tile, and which way the block marches
__device__ __forceinline__ void ${rule}_stay(
    $T* tile, int begin, int tile_y,
    $parameters
) {
    const int thread = threadIdx.y * $bx + threadIdx.x, block_y = blockIdx.x % $across, block_z = blockIdx.x / $across;
    const int last_z = gridDim.x / $across - 1, read_first = start - $before, read_last = stop - 1 + $behind;
    const int first = IS_UP ? begin : begin + $planes - 1, y = tile_y + threadIdx.y * $rows;
$columns
$sides
$constants
    const $T* ${u}_field = ${u}_memory - (long long)origin * PLANE;
    const $T* ${new}_field = ${new}_memory - (long long)origin * PLANE;
    // The cells of the thread in the first plane of the march. All other places lie at a distance from them that is known in advance.
    $T* ${u}_cells = ${u}_memory + ((first - origin) * PLANE + y * PITCH + x0);
    $T* ${new}_cells = ${new}_memory + ((first - origin) * PLANE + y * PITCH + x0);
    // The last tile along an axis may begin inside the one before it. Each of the two then reads planes, or rows, inside the other one.
    const int seam = block_z == last_z ? start + last_z * $planes : block_z == last_z - 1 ? stop - $planes - $reach : stop;
    const int seam_end = seam + $reach;
    const int seam_y = block_y == $across - 1 ? ($across - 1) * $height : block_y == $across - 2 ? NY - $height - $reach_y : NY;
    const int seam_y_end = seam_y + $reach_y;
    const bool is_low = has_low && block_z == 0, is_high = has_high && block_z == last_z, is_end = $is_cut && (is_low || is_high);
    unsigned* const state = signals + $state;
    unsigned* const own = signals + ($own + blockIdx.x) * $signal_words;
    const unsigned made = *(volatile unsigned*)own;  // steps so far, of all blocks on all devices
    if (active) {
        for (int i = 0; i < $stored; ++i) {
$fill
        }
    }
$scalars
    for (int at = 0; at < steps; ++at) {
        const int step = row + at * more_rows;
        if (at == 0 || more_rows) {
$scalar_loads
        }
        wait_around(signals, made + at, block_y, block_z, last_z, is_low, is_high, thread, polls);
        __syncthreads();
        unsigned long long* const arrivals = from_others + (is_low ? 0 : $end_words) + (made + at) % $arrivals * $arrival_words;
        unsigned long long* const departures = (is_low ? to_low + $end_words : to_high) + (made + at + 1) % $arrivals * $arrival_words;
        if constexpr (IS_UP) {
$march_up
        } else {
$march_down
        }
        if (thread == 0) {
            __threadfence();  // what the block stored is there before its count
            *(volatile unsigned*)own = made + at + 1;
            // Nothing that the block stored is meant for other devices: they are told that it has read what they sent.
            if (is_low) *(volatile unsigned*)(low_signals + ($from_high + block_y) * $signal_words) = made + at + 1;
            if (is_high) *(volatile unsigned*)(high_signals + ($from_low + block_y) * $signal_words) = made + at + 1;
        }
        const $T* const field = ${u}_field;
        ${u}_field = ${new}_field, ${new}_field = field;
        $T* const cells = ${u}_cells;
        ${u}_cells = ${new}_cells, ${new}_cells = cells;
    }
    if (active) {
        for (int i = 0; i < $stored; ++i) {
$empty
        }
        if (is_end) {  // what comes next reads the halo
            unsigned long long* const arrivals = from_others + (is_low ? 0 : $end_words) + (made + steps) % $arrivals * $arrival_words;
            constexpr int PLANES = IS_UP ? $before : $behind;
            if constexpr (PLANES > 0) {
                $R halo[PLANES][$rows][$vector];
                arrived_rows<PLANES>(arrivals, y, x0, halo, made + steps, polls, state, is_low);
#pragma unroll
                for (int i = 0; i < PLANES; ++i) {
$halo
                }
            }
        }
    }
}
extern "C" __global__ void __launch_bounds__($threads, 1)
$name(
    $parameters
) {
    extern __shared__ __align__(16) unsigned char tile_bytes[];
    unsigned cooperative;  // reading %envreg1 is what makes a launch cooperative: all blocks are on the device at the same time
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(cooperative));
    $T* const tile = reinterpret_cast<$T*>(tile_bytes);
    const int begin = min(start + (int)blockIdx.x / $across * $planes, stop - $planes);
    const int tile_y = min((int)blockIdx.x % $across * $height, NY - $height);
    const bool is_up = blockIdx.x / $across + 1 < gridDim.x / $across;  // blocks at the ends march inwards
    if ($whole) {
        if (is_up) ${rule}_stay<true, true>(tile, begin, tile_y, $names);
        else ${rule}_stay<true, false>(tile, begin, tile_y, $names);
    } else {
        if (is_up) ${rule}_stay<false, true>(tile, begin, tile_y, $names);
        else ${rule}_stay<false, false>(tile, begin, tile_y, $names);
    }
}
"""
