// Groups of threads: tiles of a warp, the lanes that are here together, and parts of a tile by a label.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

template <int Size>
__device__ void reduce_tile(int* sums, int* maxima, int value, int i) {
    auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
    sums[i] = cg::reduce(tile, value, cg::plus<int>());
    int best = value;
    for (int distance = tile.size() / 2; distance; distance /= 2) best = max(best, tile.shfl_xor(best, distance));
    maxima[i] = best;
}

__global__ void tiles(int* sums, int* maxima, int* scanned, const int* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    reduce_tile<8>(sums, maxima, in[i], i);
    reduce_tile<16>(sums + n, maxima + n, in[i], i);
    reduce_tile<32>(sums + 2 * n, maxima + 2 * n, in[i], i);
    scanned[i] = cg::inclusive_scan(cg::tiled_partition<16>(cg::this_thread_block()), in[i]);
}

__global__ void compact(int* kept, int* out, const int* in) {
    int value = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (value % 3 == 0) {
        auto here = cg::coalesced_threads();
        int first = 0;
        if (here.thread_rank() == 0) first = atomicAdd(kept, here.size());
        out[here.shfl(first, 0) + here.thread_rank()] = value;
    }
}

__global__ void parts(int* sizes, const int* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    sizes[i] = 100 * cg::labeled_partition(warp, in[i] & 3).size() + cg::binary_partition(warp, in[i] > 50).size();
}
