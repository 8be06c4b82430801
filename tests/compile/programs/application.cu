/* An application in the usual style: error macro, timer class, Thrust containers, kernels launched from templates. */
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>
#include <thrust/device_vector.h>
#include <thrust/sort.h>
#include <helper_cuda.h>

namespace cg = cooperative_groups;
using namespace std;
using Clock = std::chrono::high_resolution_clock;
typedef std::vector<float> FloatVector;

#define CUDA_CHECK(call)                                                     \
    do {                                                                     \
        cudaError_t status = (call);                                         \
        if (status != cudaSuccess) {                                         \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(status));                             \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

#ifdef __CUDACC__
#define BOTH __host__ __device__
#else
#define BOTH
#endif
#define BOTH_INLINE BOTH __forceinline__

static const char* names[] = {"a", "b{", "c\"}"};
std::vector<int> values;
static int counter = 0;
const int EXTRA = 1 << 10;
enum { WARPS = 4 };
enum class Mode : int { Fast, Slow };
__constant__ float coefficients[16];
static __device__ float table[4] = {1.f, 2.f, 3.f, 4.f};

struct __align__(16) Particle {
    float3 position;
    float mass;
    BOTH Particle() : position{0, 0, 0}, mass(0.f) {}
    BOTH float energy() const { return 0.5f * mass; }
    void print() const { std::cout << mass << "}" << std::endl; }
    friend std::ostream& operator<<(std::ostream& out, const Particle& p) { return out << p.mass; }
};

class Timer {
    cudaEvent_t start_, stop_;
    std::string name_;

  public:
    explicit Timer(const std::string& name) : name_(name), start_{} { cudaEventCreate(&start_); }
    ~Timer() { cudaEventDestroy(start_); }
    float elapsed();
};
float Timer::elapsed() {
    float ms;
    cudaEventElapsedTime(&ms, start_, stop_);
    return ms;
}

constexpr int square(int x) { return x * x; }
BOTH_INLINE float lerp(float a, float b, float t) { return a + t * (b - a); }
template <typename T> BOTH inline T larger(T a, T b) { return a > b ? a : b; }

template <typename T, int BLOCK>
__global__ __launch_bounds__(BLOCK, 2) void reduce(const T* __restrict__ in, T* __restrict__ out, int n) {
    extern __shared__ __align__(sizeof(double)) unsigned char memory[];
    T* s = reinterpret_cast<T*>(memory);
    cg::thread_block block = cg::this_thread_block();
    int i = blockIdx.x * BLOCK + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : T(0);
    block.sync();
    auto tile = cg::tiled_partition<32>(block);
    for (int o = 16; o > 0; o >>= 1) s[threadIdx.x] = larger(s[threadIdx.x], tile.shfl_down(s[threadIdx.x], o));
    if (threadIdx.x == 0) {
        out[blockIdx.x] = s[0] * square(3) + lerp(coefficients[0], table[blockIdx.x & 3], 0.5f) + std::min(1.f, float(n));
    }
}

extern "C" __global__ void particles(Particle* p, int n, uint32_t seed, Mode mode) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    assert(n > 0);
    p[i].mass = p[i].energy() + EXTRA + WARPS + (mode == Mode::Fast ? seed : 0);  // the store of particles
    if (i == 0) printf("hello %d\n", n);
}

template <typename T> void launch(const thrust::device_vector<T>& in, thrust::device_vector<T>& out) {
    constexpr int B = 128;
    reduce<T, B><<<8, B, B * sizeof(T)>>>(thrust::raw_pointer_cast(in.data()), thrust::raw_pointer_cast(out.data()), (int)in.size());
}
template void launch<float>(const thrust::device_vector<float>&, thrust::device_vector<float>&);

auto callback = [](int x) -> int {
    if (x > 1) { return x; }
    return 0;
};

int main(int argc, char** argv)
try {
    const int block = 2 * 32;
    thrust::device_vector<float> a(1000), b(10);
    launch(a, b);
    reduce<float, 256><<<dim3(4), dim3(256), 1024>>>(nullptr, nullptr, 3);
    reduce<double, square(4)><<<4, 16>>>(nullptr, nullptr, 3);
    reduce<int, block><<<4, block>>>(nullptr, nullptr, 3);
    reduce<int, sizeof(argv)><<<4, 8>>>(nullptr, nullptr, 3);
    auto f = [=] __device__ (int i) { return i; };
    const char* raw = R"delim(
      } } { "unbalanced" )" __global__ void not_a_kernel() {
      )delim";
    char c = '{', d = '\'', e = '"';
    int big = 1'000'000;
    CUDA_CHECK(cudaDeviceSynchronize());
    return 0;
} catch (const std::exception& e) {
    return 1;
}
