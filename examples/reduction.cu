// The sum of n numbers: each block leaves one partial sum, and a second launch of one block adds the partial sums.
//
//   block_sum<T>   a grid-stride loop, then a tree in shared memory whose active threads stay side by side, then shuffles in
//                  the last warp. Blocks of 256 threads.
//   interleaved<T> the tree of the first textbook version: at each step the active threads are further apart, so that warps
//                  diverge and the lanes of a warp collide in the banks.

#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

constexpr int BLOCK = 256;
constexpr unsigned ALL_LANES = 0xffffffffu;

template <typename T>
__global__ void block_sum(T* partial, const T* in, int n) {
    __shared__ T sums[BLOCK];
    int t = threadIdx.x;

    T sum = 0;
    for (int i = blockIdx.x * BLOCK + t; i < n; i += gridDim.x * BLOCK) {
        sum += in[i];
    }
    sums[t] = sum;
    __syncthreads();

    for (int half = BLOCK / 2; half >= 32; half /= 2) {
        if (t < half) sums[t] += sums[t + half];
        __syncthreads();
    }
    if (t < 32) {
        sum = sums[t];
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(ALL_LANES, sum, offset);
        }
        if (t == 0) partial[blockIdx.x] = sum;
    }
}

template <typename T>
__global__ void interleaved(T* partial, const T* in, int n) {
    __shared__ T sums[BLOCK];
    int t = threadIdx.x;
    int i = blockIdx.x * BLOCK + t;
    sums[t] = i < n ? in[i] : T(0);
    __syncthreads();

    for (int step = 1; step < BLOCK; step *= 2) {
        int left = 2 * step * t;
        if (left < BLOCK) sums[left] += sums[left + step];
        __syncthreads();
    }
    if (t == 0) partial[blockIdx.x] = sums[0];
}

template <typename T>
T sum_on_device(const std::vector<T>& values, int blocks) {
    T *in, *partial, *total, result;
    const int n = static_cast<int>(values.size());
    cudaMalloc(&in, n * sizeof(T));
    cudaMalloc(&partial, blocks * sizeof(T));
    cudaMalloc(&total, sizeof(T));
    cudaMemcpy(in, values.data(), n * sizeof(T), cudaMemcpyHostToDevice);
    block_sum<T><<<blocks, BLOCK>>>(partial, in, n);
    block_sum<T><<<1, BLOCK>>>(total, partial, blocks);
    cudaMemcpy(&result, total, sizeof(T), cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(partial);
    cudaFree(total);
    return result;
}

// The versions that are compiled even if nothing in this file launches them.
template __global__ void block_sum<int>(int*, const int*, int);
template __global__ void block_sum<float>(float*, const float*, int);
template __global__ void interleaved<int>(int*, const int*, int);
template __global__ void interleaved<float>(float*, const float*, int);

int main() {
    const int n = 1 << 20;
    int integers = sum_on_device(std::vector<int>(n, 3), 128);
    float floats = sum_on_device(std::vector<float>(n, 0.5f), 128);
    std::printf("%d (expected %d), %g (expected %g)\n", integers, 3 * n, floats, 0.5 * n);
    return integers != 3 * n || floats != 0.5f * n;
}
