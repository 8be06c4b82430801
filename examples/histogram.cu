// How often each of the 256 byte values occurs among n bytes. `bins` starts as zeros.
//
//   global_atomics   every byte is one atomic addition in global memory; equal bytes in a warp queue up at one address.
//   shared_atomics   each block counts in its own copy of the bins in shared memory and adds that to `bins` once, at the end.

#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

constexpr int BINS = 256;

__global__ void global_atomics(unsigned int* bins, const uint8_t* data, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        atomicAdd(&bins[data[i]], 1u);
    }
}

__global__ void shared_atomics(unsigned int* bins, const uint8_t* data, int n) {
    __shared__ unsigned int local_bins[BINS];
    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        local_bins[b] = 0;
    }
    __syncthreads();

    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        atomicAdd(&local_bins[data[i]], 1u);
    }
    __syncthreads();

    for (int b = threadIdx.x; b < BINS; b += blockDim.x) {
        atomicAdd(&bins[b], local_bins[b]);
    }
}

int main() {
    const int n = 1 << 20;
    uint8_t* data;
    unsigned int* bins;
    cudaMallocManaged(&data, n);
    cudaMallocManaged(&bins, BINS * sizeof(unsigned int));
    for (int i = 0; i < n; ++i) data[i] = static_cast<uint8_t>((i * 7) ^ (i >> 9));

    unsigned int expected[BINS] = {};
    for (int i = 0; i < n; ++i) expected[data[i]] += 2;
    for (int b = 0; b < BINS; ++b) bins[b] = 0;

    global_atomics<<<128, 256>>>(bins, data, n);
    shared_atomics<<<128, 256>>>(bins, data, n);
    cudaDeviceSynchronize();

    int wrong = 0;
    for (int b = 0; b < BINS; ++b) wrong += bins[b] != expected[b];
    std::printf("%d of %d bins are wrong\n", wrong, BINS);
    cudaFree(data);
    cudaFree(bins);
    return wrong != 0;
}
