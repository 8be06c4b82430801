// Four ways to copy n floats, which cost very different numbers of 32-byte sectors.
//
//   direct    thread i copies element i: a warp touches 128 consecutive bytes, 4 sectors a request.
//   vectors   thread i copies four floats at once: the same sectors, a quarter of the requests.
//   shifted   thread i reads element i + shift: unless shift is a multiple of 8, each load touches a fifth sector.
//   strided   neighbouring threads are `stride` elements apart: with stride 8 or more, every lane pays a sector of its own.

#include <cstdio>
#include <cuda_runtime.h>

__global__ void direct(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

// `n` is a multiple of 4; one thread for each group of four.
__global__ void vectors(float4* out, const float4* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) out[i] = in[i];
}

// Copies in[shift .. n) to out[0 .. n - shift).
__global__ void shifted(float* out, const float* in, int n, int shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + shift < n) out[i] = in[i + shift];
}

// `n` is a multiple of `stride`: the array is walked as a matrix of `stride` columns, column by column.
__global__ void strided(float* out, const float* in, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int rows = n / stride;
    int k = (i % rows) * stride + i / rows;
    out[k] = in[k];
}

int main() {
    const int n = 1 << 20, block = 256, grid = (n + block - 1) / block;
    float *in, *out;
    cudaMallocManaged(&in, n * sizeof(float));
    cudaMallocManaged(&out, n * sizeof(float));
    for (int i = 0; i < n; ++i) in[i] = static_cast<float>(i);

    direct<<<grid, block>>>(out, in, n);
    vectors<<<grid / 4, block>>>(reinterpret_cast<float4*>(out), reinterpret_cast<const float4*>(in), n);
    shifted<<<grid, block>>>(out, in, n, 1);
    strided<<<grid, block>>>(out, in, n, 32);
    cudaDeviceSynchronize();

    int wrong = 0;
    for (int i = 0; i < n; ++i) wrong += out[i] != in[i];
    std::printf("%d of %d elements are wrong\n", wrong, n);
    cudaFree(in);
    cudaFree(out);
    return wrong != 0;
}
