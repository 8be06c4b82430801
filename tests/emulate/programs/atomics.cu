// Atomic operations on types that are not plain integers, and through the C++ interface.
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void sums(double* total, __half2* halves, __nv_bfloat162* brains, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(total, double(in[i]));
    atomicAdd(halves, __floats2half2_rn(1.0f, 2.0f));
    atomicAdd(brains, __floats2bfloat162_rn(1.0f, 0.5f));
}

__device__ cuda::atomic<int, cuda::thread_scope_device> owner{0};

__global__ void references(int* counters, unsigned long long* highest, int* plain, const int* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cuda::atomic_ref<int, cuda::thread_scope_device> counter(counters[in[i] % 4]);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_device> top(*highest);
    counter.fetch_add(1, cuda::memory_order_relaxed);
    unsigned long long known = top.load();
    while (known < in[i] && !top.compare_exchange_weak(known, in[i])) {}
    if (threadIdx.x == 0) {
        int nobody = 0;
        while (!owner.compare_exchange_strong(nobody, 1, cuda::memory_order_acquire)) nobody = 0;
        *plain += 1;
        owner.store(0, cuda::memory_order_release);
    }
}

__global__ void products(float* product, short* least, const float* in) {
    float old = *(volatile float*)product, seen;
    do {
        seen = old;
        old = __uint_as_float(atomicCAS((unsigned*)product, __float_as_uint(seen), __float_as_uint(seen * in[threadIdx.x])));
    } while (__float_as_uint(old) != __float_as_uint(seen));
    unsigned short expected = *(volatile unsigned short*)least, mine = (unsigned short)in[threadIdx.x];
    while (mine < expected) {
        unsigned short found = atomicCAS((unsigned short*)least, expected, mine);
        if (found == expected) break;
        expected = found;
    }
}
