// Copies from global to shared memory that no register takes part in.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

__global__ void grouped(int* out, const int* in) {
    __shared__ __align__(16) int cells[256];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, cells, in, cuda::aligned_size_t<16>(sizeof cells));
    cg::wait(block);
    for (int i = block.thread_rank(); i < 256; i += block.size()) out[i] = cells[255 - i];
}

__global__ void staged(float* out, const float* in, int tiles) {
    __shared__ float cells[2][128];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&cells[0][t], &in[t], 4);
    __pipeline_commit();
    float sum = 0;
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) __pipeline_memcpy_async(&cells[(tile + 1) % 2][t], &in[(tile + 1) * 128 + t], 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += cells[tile % 2][127 - t];
        __syncthreads();
    }
    out[t] = sum;
}
