// Numbers of 16 bits, alone and in pairs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void axpy(__half* y, const __half* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hadd(__hmul(__float2half(a), x[i]), y[i]);
}

__global__ void pairs(__half2* y, const __half2* x, const __half2* z) {
    int i = threadIdx.x;
    y[i] = __hmax2(__hadd2_rn(x[i], z[i]), __hmul2(x[i], z[i]));
}

__global__ void brain(__nv_bfloat16* y, const __nv_bfloat16* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2bfloat16(__bfloat162float(x[i]) * 3.0f + 1.0f);
}
