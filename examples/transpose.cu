// out = transpose of in, both n x n floats in row-major order; one thread for each element, blocks of 32 x 32.
//
//   naive    reads rows and writes columns: each store of a warp touches 32 sectors where 4 would do.
//   tiled    turns a 32 x 32 tile in shared memory, so that both rows are read and rows are written; but the column of the
//            tile that a warp reads lies in one bank, and the 32 lanes take turns.
//   padded   the same with rows of 33 floats: the column now lies in 32 different banks.

#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

constexpr int TILE = 32;

__global__ void naive(float* out, const float* in, int n) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    if (x < n && y < n) {
        out[x * n + y] = in[y * n + x];
    }
}

__global__ void tiled(float* out, const float* in, int n) {
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    if (x < n && y < n) {
        tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < n && y < n) {
        out[y * n + x] = tile[threadIdx.x][threadIdx.y];
    }
}

__global__ void padded(float* out, const float* in, int n) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    if (x < n && y < n) {
        tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < n && y < n) {
        out[y * n + x] = tile[threadIdx.x][threadIdx.y];
    }
}

int main() {
    const int n = 1024;
    const size_t bytes = size_t(n) * n * sizeof(float);
    std::vector<float> host(n * n), back(n * n);
    for (int i = 0; i < n * n; ++i) host[i] = static_cast<float>(i);

    float *in, *out;
    cudaMalloc(&in, bytes);
    cudaMalloc(&out, bytes);
    cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);

    const dim3 block(TILE, TILE), grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
    naive<<<grid, block>>>(out, in, n);
    tiled<<<grid, block>>>(out, in, n);
    padded<<<grid, block>>>(out, in, n);
    cudaMemcpy(back.data(), out, bytes, cudaMemcpyDeviceToHost);

    int wrong = 0;
    for (int y = 0; y < n; ++y) {
        for (int x = 0; x < n; ++x) wrong += back[x * n + y] != host[y * n + x];
    }
    std::printf("%d of %d elements are wrong\n", wrong, n * n);
    cudaFree(in);
    cudaFree(out);
    return wrong != 0;
}
