// c = a b for n x n matrices of floats in row-major order, by tiles of 16 x 16 in shared memory.
//
// Each block computes one tile of c. It walks along a row of tiles of a and a column of tiles of b; every element that is loaded
// from global memory is used 16 times from shared memory. n need not be a multiple of 16: what lies outside counts as zero.

#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

constexpr int TILE = 16;

__global__ void matmul(float* __restrict__ c, const float* __restrict__ a, const float* __restrict__ b, int n) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int column = blockIdx.x * TILE + tx;
    int row = blockIdx.y * TILE + ty;

    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        tile_a[ty][tx] = row < n && start + tx < n ? a[row * n + start + tx] : 0.0f;
        tile_b[ty][tx] = start + ty < n && column < n ? b[(start + ty) * n + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            sum += tile_a[ty][k] * tile_b[k][tx];
        }
        __syncthreads();
    }
    if (row < n && column < n) {
        c[row * n + column] = sum;
    }
}

int main() {
    const int n = 500;
    const size_t bytes = size_t(n) * n * sizeof(float);
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; ++i) {
        a[i] = static_cast<float>(i % 7);
        b[i] = static_cast<float>(i % 5);
    }
    float *device_a, *device_b, *device_c;
    cudaMalloc(&device_a, bytes);
    cudaMalloc(&device_b, bytes);
    cudaMalloc(&device_c, bytes);
    cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice);

    const int tiles = (n + TILE - 1) / TILE;
    matmul<<<dim3(tiles, tiles), dim3(TILE, TILE)>>>(device_c, device_a, device_b, n);
    cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost);

    double worst = 0.0;
    for (int row = 0; row < n; row += 37) {
        for (int column = 0; column < n; column += 41) {
            double sum = 0.0;
            for (int k = 0; k < n; ++k) sum += double(a[row * n + k]) * b[k * n + column];
            worst = std::fmax(worst, std::fabs(sum - c[row * n + column]));
        }
    }
    std::printf("largest difference %g\n", worst);
    cudaFree(device_a);
    cudaFree(device_b);
    cudaFree(device_c);
    return worst > 1e-3;
}
