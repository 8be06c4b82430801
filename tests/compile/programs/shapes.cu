// Ünïcode cömment — “quotes”
#include "include/library.cuh"
#include <cuda_fp16.h>
#if 0
this is prose: don't parse { it
#endif
#ifdef USE_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#define DEFINE_UNARY(name, expr)                            \
    __global__ void name##_kernel(real* p, int n) {         \
        int i = blockIdx.x * blockDim.x + threadIdx.x;      \
        if (i < n) { real x = p[i]; p[i] = (expr); }        \
    }
DEFINE_UNARY(square, x * x)
DEFINE_UNARY(neg, -x);
#define KERNEL __global__ void
#define LAUNCHER(name) void launch_##name(real* p, int n) { name##_kernel<<<n / 256, 256>>>(p, n); }
LAUNCHER(square)
LAUNCHER(neg)

KERNEL __launch_bounds__(256) half_kernel(__half* p) { p[threadIdx.x] = __hadd(p[threadIdx.x], p[0]); }

namespace outer::inner {
namespace {
__global__ void hidden(float* p) { p[threadIdx.x] = twice(p[threadIdx.x]); }
}
static __global__ void stat(lib::Vec2<float>* v) { v[0] = v[1] + lib::Vec2<float>(lib::lowest<float>(), INFINITY); }
void run() { hidden<<<1, 2>>>(nullptr); stat<<<1,1>>>(nullptr); }
template <typename... Ts> void variadic(Ts&&... ts) { (void)sizeof...(ts); }
}

typedef void (*callback_t)(int, void*);
static callback_t g_cb = nullptr;
void (*g_fp)(int) = nullptr;
using Op = float (*)(float, float);
__device__ float add(float a, float b) { return a + b; }
__device__ Op d_op = add;

template <typename T, int N> class Stack {
    T data[N];
    int n = 0;
    int (*fp)(int);
  public:
    __device__ void push(T t) { data[n++] = t; }
    __device__ T pop() { return data[--n]; }
    void dump() { for (int i = 0; i < n; ++i) { printf("%d", i); } }
    template <typename F> void each(F f) { for (auto& x : data) f(x); }
    template <typename F> __device__ void deach(F f) { for (auto& x : data) f(x); }
};

struct Functor { float a; __host__ __device__ float operator()(float x) const { return a * x; } };

template <typename F> __global__ void apply(float* p, F f) { p[threadIdx.x] = f(p[threadIdx.x]); }

__global__ void uses_stack(int* p) {
    Stack<int, 8> s;
    s.push(p[0]); s.push(p[1]);
    p[2] = s.pop();
    auto l = [=] (int a) { return a + 1; };
    p[3] = l(p[4]);
    p[5] = d_op(p[0], p[1]);
}

#ifdef A
int conditional(int a) {
#else
int conditional(float a) {
#endif
    return (int)a;
}

#ifdef __CUDACC__
__host__ __device__
#endif
inline int both(int a) { return a; }

auto trailing(int a) -> std::vector<int> { return {a}; }
[[nodiscard]] int attributed() noexcept(true) { return 1; }
int* pointer_return(void) { return new int[3]{1, 2, 3}; }
unsigned long long operator"" _kb(unsigned long long n) { return n * 1024; }
struct Config { int n = 3; const char* name = "x"; } config;
int array2d[2][2] = {{1, 2}, {3, 4}};

static void usage()
{
    puts("usage: {");
#pragma omp parallel for
    for (int i = 0; i < 3; ++i) { }
}

int main() {
    const int B = 128;
    apply<Functor><<<1, 32>>>(nullptr, Functor{2.f});
    apply<<<1, 32>>>(nullptr, Functor{2.f});
    return 0;
}
