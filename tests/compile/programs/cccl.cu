#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/std/array>
#include <cuda/std/complex>
__global__ void sum(int* out, const int* in) {
    using BlockReduce = cub::BlockReduce<int, 128>;
    __shared__ typename BlockReduce::TempStorage temp;
    int v = BlockReduce(temp).Sum(in[threadIdx.x]);
    if (threadIdx.x == 0) { cuda::atomic_ref<int, cuda::thread_scope_device> r(*out); r.fetch_add(v); }
}
__global__ void cplx(cuda::std::complex<float>* z) { z[0] = z[0] * z[1]; }
void host(int* d, int n) { size_t bytes; cub::DeviceReduce::Sum(nullptr, bytes, d, d, n); }
