#include <cooperative_groups.h>
namespace cg = cooperative_groups;

/* A histogram whose bins are spread over the shared memory of the blocks of a cluster. */
extern "C" __global__ void histogram(unsigned *bins, const unsigned *values, int count, int bins_per_block) {
    extern __shared__ unsigned mine[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int bin = threadIdx.x; bin < bins_per_block; bin += blockDim.x) mine[bin] = 0;
    cluster.sync();  // before the first access of a neighbour
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        unsigned value = values[at];
        unsigned *theirs = cluster.map_shared_rank(mine, value / bins_per_block);
        atomicAdd(theirs + value % bins_per_block, 1);  // remote
    }
    cluster.sync();  // before anybody ends
    unsigned *out = bins + cluster.block_rank() * bins_per_block;
    for (int bin = threadIdx.x; bin < bins_per_block; bin += blockDim.x) atomicAdd(out + bin, mine[bin]);
}

/* What a block is told of its cluster, and what its neighbour left. */
extern "C" __global__ void __cluster_dims__(4, 2, 1) ring(unsigned *out, unsigned early) {
    __shared__ unsigned tile[64];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks();
    unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
    tile[threadIdx.x] = 1000 * block + threadIdx.x;
    cluster.barrier_arrive();
    unsigned seen = early * cluster.num_threads();
    cluster.barrier_wait();
    unsigned *theirs = cluster.map_shared_rank(tile, next);
    unsigned at = (block * blockDim.x + threadIdx.x) * 4;
    out[at] = theirs[threadIdx.x ^ 1];
    out[at + 1] = cluster.query_shared_rank(theirs) * 100 + cluster.thread_rank();
    out[at + 2] = cluster.block_index().x + 10 * cluster.block_index().y + 100 * cluster.dim_blocks().x + 1000 * cluster.dim_blocks().y;
    out[at + 3] = seen;
    cluster.sync();
}

/* What a neighbour reads here may be the 1 that comes behind it, or what it was to read. */
extern "C" __global__ void __cluster_dims__(2, 1, 1) unordered(unsigned *out) {
    __shared__ unsigned tile[64];
    cg::cluster_group cluster = cg::this_cluster();
    tile[threadIdx.x] = threadIdx.x;
    cluster.sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1)[threadIdx.x];
    tile[threadIdx.x] = 1;
    cluster.sync();
}

/* The neighbour may not be there yet. */
extern "C" __global__ void __cluster_dims__(2, 1, 1) early(unsigned *out) {
    __shared__ unsigned tile[64];
    cg::cluster_group cluster = cg::this_cluster();
    cluster.map_shared_rank(tile, cluster.block_rank() ^ 1)[threadIdx.x] = threadIdx.x;
    cluster.sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x];
}

/* One word too far. */
extern "C" __global__ void __cluster_dims__(2, 1, 1) beyond(unsigned *out) {
    __shared__ unsigned tile[64];
    cg::cluster_group cluster = cg::this_cluster();
    tile[threadIdx.x] = threadIdx.x;
    cluster.sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1)[threadIdx.x + 1];
    cluster.sync();
}
