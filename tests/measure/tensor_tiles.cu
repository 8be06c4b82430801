// Each block fetches a tile, doubles it and sends it back.
#include <cuda.h>
#include <cuda/barrier>

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace tma = cuda::device::experimental;

extern "C" __global__ void twice(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ Barrier full;
    int x = blockIdx.x * 32, y = blockIdx.y * 8;
    if (threadIdx.x == 0) {
        init(&full, blockDim.x);
        tma::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        tma::cp_async_bulk_tensor_2d_global_to_shared(&tile, &in, x, y, full);
        token = cuda::device::barrier_arrive_tx(full, 1, sizeof(tile));
    } else {
        token = full.arrive();
    }
    full.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        tile[i / 32][i % 32] *= 2;
    tma::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        tma::cp_async_bulk_tensor_2d_shared_to_global(&out, x, y, &tile);
        tma::cp_async_bulk_commit_group();
        tma::cp_async_bulk_wait_group_read<0>();
    }
}
