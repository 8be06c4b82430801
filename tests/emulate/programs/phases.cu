// Barriers that are objects in shared memory.
#include <cuda/barrier>

__global__ void reverse(int* out, const int* in) {
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int cells[64];
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        cells[threadIdx.x] = in[threadIdx.x] + round;
        barrier.arrive_and_wait();
        out[round * 64 + threadIdx.x] = cells[63 - threadIdx.x];
        barrier.arrive_and_wait();
    }
}
