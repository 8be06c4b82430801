"""Hold the templates of kernels that keep the cells of a device in shared memory; `resident` fills in the names after dollar signs."""

TILE_ROW = """\
template <typename P, typename T> __device__ __forceinline__ P* tile_row(T* tile, int plane, int row, int x0) {
    return reinterpret_cast<P*>(tile + (plane * ($row) + row * NX + x0));
}
template <typename P, typename T> __device__ __forceinline__ P* cells_of(T* cells, int planes, int offset) {
    return reinterpret_cast<P*>(cells + (planes * PLANE + offset));
}"""

EXCHANGE = """\
// Planes of a neighbour, whole rows of them, the one next to the end of the device first.
__device__ __forceinline__ const $T* place_of(const $T* arrivals, int plane, int y, int x0) {
    return arrivals + ((plane * NY + y) * NX + x0);
}
__device__ __forceinline__ void arrived_cells(const $T* arrivals, int plane, int y, int x0, $R* cells) {
$loads
}
template <int PLANES> __device__ __forceinline__ void arrived_rows(const $T* arrivals, int y, int x0, $R (*cells)[$rows][$vector]) {
#pragma unroll
    for (int at = 0; at < PLANES * $rows; ++at) arrived_cells(arrivals, at / $rows, y + at % $rows, x0, cells[at / $rows][at % $rows]);
}
__device__ __forceinline__ $R arrived_cell(const $T* arrivals, int plane, int y, int x) {
    return widened(*place_of(arrivals, plane, y, x));
}
// Barriers of the block: of the threads that compute, of all, and one at which these arrive and the warp that sends waits.
__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, $threads;" ::: "memory"); }
__device__ __forceinline__ void meet_all() { asm volatile("bar.sync 2, $all_threads;" ::: "memory"); }
__device__ __forceinline__ void planes_are_made() {
#if $is_bulk
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the copy reads shared memory beside the threads
#endif
    asm volatile("bar.arrive 3, $all_threads;" ::: "memory");
}
__device__ __forceinline__ void wait_for_planes() { asm volatile("bar.sync 3, $all_threads;" ::: "memory"); }
// A warp copies the first planes of a tile to a neighbouring device. Behind it a release by the first lane covers them.
template <int PLANES> __device__ __forceinline__ void send($T* departures, const $T* tile, int tile_y, int lane) {
    constexpr int CELLS = $height * NX;
#if $is_bulk
    if (lane == 0) {
        for (int plane = 0; plane < PLANES; ++plane) {
            const unsigned from = (unsigned)__cvta_generic_to_shared(tile + plane * CELLS);
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                :: "l"(departures + (plane * NY + tile_y) * NX), "r"(from), "r"(CELLS * (int)sizeof($T)) : "memory");
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
#else
    for (int plane = 0; plane < PLANES; ++plane) {
        $piece* const to = reinterpret_cast<$piece*>(departures + (plane * NY + tile_y) * NX);
        const $piece* const from = reinterpret_cast<const $piece*>(tile + plane * CELLS);
#pragma unroll 4
        for (int at = lane; at < CELLS * (int)sizeof($T) / (int)sizeof($piece); at += 32) to[at] = from[at];
    }
    __syncwarp();
#endif
}"""

KERNEL = """\
// Waits until the blocks around a block have made so many steps, and until what its neighbours on other devices sent in the last one has
// arrived, or where they send nothing, until they have begun it.
__device__ __forceinline__ void wait_around(
    unsigned* signals, unsigned count, int block_y, int block_z, int last_z, bool is_low, bool is_high, int lane, unsigned polls
) {
    constexpr bool WRAPS = $wraps, WRAPS_Z = $wraps_z;
    const int at = lane < 4 ? lane : lane < 8 ? lane + 1 : lane - 8;  // 0 to 8 around the block, then three at either device
    const int from_y = block_y + at % 3 - 1, y = WRAPS ? (from_y + $across) % $across : from_y;
    const int from_z = block_z + at / 3 - 1, z = WRAPS_Z ? (from_z + last_z + 1) % (last_z + 1) : from_z;
    if (lane < 14 && y >= 0 && y < $across) {
        if (lane < 8 && z >= 0 && z <= last_z) {
            unsigned seen;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                    : "=r"(seen) : "l"(signals + ($own + z * $across + y) * $signal_words) : "memory");
            } while ((int)(seen - count) < 0);
        } else if (lane >= 8 && (at < 3 ? is_low : is_high)) {
            const unsigned* const flag = signals + ((at < 3 ? $from_low : $from_high) + y) * $signal_words;
            const bool arrives = at < 3 ? $before > 0 : $behind > 0;
            wait_for(flag, arrives ? count : count - 1, at < 3 ? $wait_from_low : $wait_from_high, polls, signals + $state);
        }
    }
    __syncwarp();
}
// What the warp beside those that compute does: it waits for other blocks before each step, and sends.
__device__ __forceinline__ void ${rule}_exchange(
    $T* tile, int tile_y,
    $parameters
) {
    const int lane = threadIdx.x, block_y = blockIdx.x % $across, block_z = blockIdx.x / $across, last_z = gridDim.x / $across - 1;
    const bool is_low = has_low && block_z == 0, is_high = has_high && block_z == last_z;
    const unsigned made = *(volatile unsigned*)(signals + ($own + blockIdx.x) * $signal_words);
    for (int at = 0; at < steps; ++at) {
        wait_around(signals, made + at, block_y, block_z, last_z, is_low, is_high, lane, polls);
        meet_all();
        if (!is_low && !is_high) continue;
        $T* const departures = (is_low ? to_low + $end_cells : to_high) + (made + at + 1) % $arrivals * $arrival_cells;
        if ((is_low ? $behind : $before) > 0) {
            wait_for_planes();
            if (is_low) send<$behind>(departures, tile, tile_y, lane);
            else send<$before>(departures, tile, tile_y, lane);
        }
        if (lane == 0) {
            raise(is_low ? low_signals + ($from_high + block_y) * $signal_words : high_signals + ($from_low + block_y) * $signal_words,
                made + at + 1);
        }
    }
    if (is_low || is_high) wait_around(signals, made + steps, block_y, block_z, last_z, is_low, is_high, lane, polls);
    meet_all();
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
$wait
        meet_all();
        const $T* const arrivals = from_others + (is_low ? 0 : $end_cells) + (made + at) % $arrivals * $arrival_cells;
        if constexpr (IS_UP) {
$march_up
        } else {
$march_down
        }
        if (thread == 0) {
            __threadfence();  // what the block stored is there before its count
            *(volatile unsigned*)own = made + at + 1;
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
    }
    meet_all();  // behind it all planes of the last step have arrived
    if (active && is_end) {  // what comes next reads the halo
        const $T* const arrivals = from_others + (is_low ? 0 : $end_cells) + (made + steps) % $arrivals * $arrival_cells;
        constexpr int PLANES = IS_UP ? $before : $behind;
        if constexpr (PLANES > 0) {
            $R halo[PLANES][$rows][$vector];
            arrived_rows<PLANES>(arrivals, y, x0, halo);
#pragma unroll
            for (int i = 0; i < PLANES; ++i) {
$halo
            }
        }
    }
}
extern "C" __global__ void __launch_bounds__($block_threads, 1)
$name(
    $parameters
) {
    extern __shared__ __align__(16) unsigned char tile_bytes[];
    unsigned cooperative;  // reading %envreg1 is what makes a launch cooperative: all blocks are on the device at the same time
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(cooperative));
    $T* const tile = reinterpret_cast<$T*>(tile_bytes);
    const int begin = min(start + (int)blockIdx.x / $across * $planes, stop - $planes);
    const int tile_y = min((int)blockIdx.x % $across * $height, NY - $height);
$role
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
