/* Kernels that are launched in every roundabout way, so that only a compiler can tell with which template arguments. */
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thrust/device_vector.h>
#include <vector>

template <int N> __global__ void constant(float* p) { *p = N; }
template <class T, int N = 3> __global__ void deduced(const T* a, T* b) { *b = *a + N; }
template <template <class> class W, class T> __global__ void wrapped(W<T>* w) { w->x = 1; }
template <class T> struct Box { T x; };
enum class Mode { A, B };
template <Mode M> __global__ void moded(int* p) { *p = (int)M; }
template <class F> __global__ void apply(int* p, F f) { *p = f(*p); }
struct Twice { __host__ __device__ int operator()(int x) const { return 2 * x; } };
template <class T> __global__ void never(T* p) { *p = 0; }
__global__ void plain(int* p) { *p = 1; }

template <int N> void run(float* p) { constant<N><<<1, 32>>>(p); }
template <int N> void nest() {
    run<N>(nullptr);
    if constexpr (N > 1) nest<N / 2>(); else std::map<int, int> x;
}
template <class T> struct Launcher {
    T* p; std::vector<T> v;
    Launcher(int n) : p(nullptr), v(n) { cudaMalloc(&p, n); }
    void go() { deduced<<<dim3(1), dim3(32), 0, 0>>>(p, p); }
};
template <template <class> class W> void pick() { W<int>* w = nullptr; wrapped<W, int><<<1, 1>>>(w); }
#define LAUNCH(M) moded<M><<<1, \
    1>>>(q)
void selected(int which) {
    int* q = (int*)malloc(4);
    switch (which) {
        case 0: LAUNCH(Mode::A); break;
        case 1: LAUNCH(Mode::B); break;
        default: throw std::runtime_error("neither");
    }
}
template <int N> void explicitly(float*) { constant<N * 100><<<1, 1>>>(nullptr); }
template void explicitly<3>(float*);

template <class T> void in_vectors(thrust::device_vector<T>& v) {
    deduced<T, sizeof(T)><<<1, 1>>>(thrust::raw_pointer_cast(v.data()), v.data().get());
}

int main(int argc, char** argv) try {
    std::vector<float> host(100);
    const int k = 5;
    run<k + 1>(host.data());
    nest<8>();
    Launcher<double> launcher(4);
    launcher.go();
    pick<Box>();
    selected(argc);
    short* s;
    if (cudaMalloc((void**)&s, 4) != cudaSuccess) { printf("no memory"); return 1; }
    deduced<<<1, 1>>>(s, s);
    for (auto x : host) { constant<77><<<1, 1>>>(&x); }
    void (*pointer)(float*) = constant<88>;
    pointer<<<1, 1>>>(nullptr);
    thrust::device_vector<long long> numbers(3);
    in_vectors(numbers);
    auto words = std::make_unique<unsigned[]>(8);
    apply<<<1, 1>>>((int*)words.get(), Twice());
    plain<<<1, 1>>>(nullptr);
    return 0;
} catch (const std::exception& e) {
    constant<99><<<1, 1>>>(nullptr);
}
