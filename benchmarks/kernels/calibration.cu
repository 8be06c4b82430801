// Kernels that each strain one part of a GPU, by which the model of a launch's time is calibrated.

#define NEVER 0x7fffffff

__device__ unsigned scrambled(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// -- atomic operations: the lanes of a warp at `lanes` words that lie `apart` words from each other, warps at one of `places` of these,
// `step` words from each other; both are powers of two

struct Add32 {
    typedef unsigned Type;
    static __device__ void at(Type* word, unsigned) { atomicAdd(word, 1u); }
};
struct AddAny {
    typedef unsigned Type;
    static __device__ void at(Type* word, unsigned value) { atomicAdd(word, value); }
};
struct AddFloat {
    typedef float Type;
    static __device__ void at(Type* word, unsigned value) { atomicAdd(word, float(value)); }
};
struct Add64 {
    typedef unsigned long long Type;
    static __device__ void at(Type* word, unsigned value) { atomicAdd(word, value); }
};
struct Maximum {
    typedef unsigned Type;
    static __device__ void at(Type* word, unsigned value) { atomicMax(word, value); }
};
struct Fetch {
    typedef unsigned Type;
    static __device__ void at(Type* word, unsigned value) {
        if (atomicAdd(word, value) == NEVER) *word = 0;
    }
};
struct Swap {
    typedef unsigned Type;
    static __device__ void at(Type* word, unsigned value) {
        if (atomicCAS(word, value, value + 1) == NEVER) *word = 0;
    }
};

template <typename Operation>
__global__ void atomic_ladder(typename Operation::Type* words, int n, unsigned lanes, unsigned apart, unsigned places, unsigned step) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned at = (i & 31 & lanes - 1) * apart + (scrambled(i >> 5) & places - 1) * step;
    if (i < n) Operation::at(words + at, i);
}

// -- loops: UNROLL copies of the body, or as the compiler and the assembler decide where it is 0

template <int UNROLL>
__global__ void dot(float* out, const float* a, const float* b, int n) {
    int stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if constexpr (UNROLL == 0) {
        for (int i = first; i < n; i += stride) sum += a[i] * b[i];
    } else {
#pragma unroll UNROLL
        for (int i = first; i < n; i += stride) sum += a[i] * b[i];
    }
    out[first] = sum;
}

// The greatest value of each of the columns of a matrix.
__global__ void greatest(int* out, const int* in, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, most = -NEVER;
    for (int row = 0; row < rows; ++row) most = max(most, in[row * columns + column]);
    out[column] = most;
}

// A filter of `taps` weights over a row, whose words stay in shared memory, or in L1.
__global__ void filter_shared(float* out, const float* in, const float* weights, int taps) {
    __shared__ float tile[1024], weight[256];
    int first = blockIdx.x * 256 + threadIdx.x;
    for (int k = threadIdx.x; k < 256 + taps; k += 256) tile[k] = in[blockIdx.x * 256 + k];
    if (threadIdx.x < taps) weight[threadIdx.x] = weights[threadIdx.x];
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < taps; ++k) sum += weight[k] * tile[threadIdx.x + k];
    out[first] = sum;
}

__global__ void filter_global(float* out, const float* in, const float* weights, int taps) {
    int first = blockIdx.x * 256 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < taps; ++k) sum += weights[k] * in[first + k];
    out[first] = sum;
}

// -- loads under way: each thread asks for K words at once, and waits for all of them

template <int K>
__global__ void independent(float* out, const float* in, int n) {
    int stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = first; i < n; i += K * stride) {
        float words[K];
#pragma unroll
        for (int k = 0; k < K; ++k) words[k] = in[i + k * stride];
#pragma unroll
        for (int k = 0; k < K; ++k) sum += words[k];
    }
    out[first] = sum;
}

// -- streams

__global__ void triad(float4* out, const float4* a, const float4* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 x = a[i], y = b[i];
        out[i] = make_float4(x.x + 3 * y.x, x.y + 3 * y.y, x.z + 3 * y.z, x.w + 3 * y.w);
    }
}

__global__ void scale(float4* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 x = a[i];
        a[i] = make_float4(3 * x.x, 3 * x.y, 3 * x.z, 3 * x.w);
    }
}

__global__ void copy4(float4* out, const float4* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

__global__ void read4(float4* out, const float4* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 x = in[i];
        if (x.x + x.y + x.z + x.w == NEVER) out[i] = x;
    }
}

__global__ void split(float* x, float* y, const float2* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float2 both = in[i];
        x[i] = both.x;
        y[i] = both.y;
    }
}

// -- L1: the lanes of a warp `stride` words from each other, in 16 KiB that a block reads again and again

template <typename T>
__global__ void near_reads(float* out, const T* in, int turns, int stride) {
    constexpr int SIZE = 16384 / sizeof(T);
    float sum = 0.0f;
    int at = threadIdx.x % 32 * stride % SIZE;
    for (int turn = 0; turn < turns; turn += 8) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            T value = in[at + k * 4 & SIZE - 1];
            sum += *reinterpret_cast<float*>(&value);
        }
        at = at + __float_as_int(sum) & SIZE - 1; // zero is added
    }
    if (sum != 0.0f) out[threadIdx.x] = sum;
}

// -- textures: where a thread reads is a linear function of where it is

__global__ void sampled(float* out, cudaTextureObject_t image, int width, float xx, float xy, float yx, float yy) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * width + x] = tex2D<float>(image, xx * x + xy * y + 0.5f, yx * x + yy * y + 0.5f);
}

__global__ void sampled_anywhere(float* out, cudaTextureObject_t image, int width, unsigned mask) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned place = scrambled(y * width + x);
    out[y * width + x] = tex2D<float>(image, (x + (place & mask)) % width + 0.5f, y + (place >> 16 & mask) + 0.5f);
}

// -- pipelines: STAGES tiles of 4 KiB are on their way to shared memory while one is added up; blocks of 128

__device__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }

template <int STAGES>
__global__ void bulk_pipeline(float* out, const float* in, int tiles) {
    __shared__ alignas(128) float stage[STAGES][1024];
    __shared__ unsigned long long full[STAGES];
    auto ask = [&](int tile) {
        unsigned barrier = shared_address(&full[tile % STAGES]);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(barrier) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];" ::"r"(
                         shared_address(stage[tile % STAGES])),
                     "l"(in + (tile * gridDim.x + blockIdx.x) * 1024), "r"(barrier)
                     : "memory");
    };
    if (threadIdx.x == 0) {
        for (int k = 0; k < STAGES; ++k) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[k])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 0; k < STAGES - 1; ++k) ask(k);
    float sum = 0.0f;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        if (threadIdx.x == 0 && tile + STAGES - 1 < tiles) ask(tile + STAGES - 1);
        asm volatile(
            "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(
                shared_address(&full[tile % STAGES])),
            "r"(tile / STAGES & 1)
            : "memory");
        for (int k = 0; k < 8; ++k) sum += stage[tile % STAGES][k * 128 + threadIdx.x];
        __syncthreads();
    }
    out[blockIdx.x * 128 + threadIdx.x] = sum;
}

template <int STAGES>
__global__ void copy_pipeline(float* out, const float* in, int tiles) {
    __shared__ alignas(128) float stage[STAGES][1024];
    auto ask = [&](int tile) {
        if (tile < tiles) {
            const float* from = in + (tile * gridDim.x + blockIdx.x) * 1024;
            for (int k = 0; k < 2; ++k)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                                 shared_address(&stage[tile % STAGES][(k * 128 + threadIdx.x) * 4])),
                             "l"(from + (k * 128 + threadIdx.x) * 4)
                             : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int k = 0; k < STAGES - 1; ++k) ask(k);
    float sum = 0.0f;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        ask(tile + STAGES - 1);
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
        __syncthreads();
        for (int k = 0; k < 8; ++k) sum += stage[tile % STAGES][k * 128 + threadIdx.x];
        __syncthreads();
    }
    out[blockIdx.x * 128 + threadIdx.x] = sum;
}

template __global__ void atomic_ladder<Add32>(unsigned*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void atomic_ladder<AddAny>(unsigned*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void atomic_ladder<AddFloat>(float*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void atomic_ladder<Add64>(unsigned long long*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void atomic_ladder<Maximum>(unsigned*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void atomic_ladder<Fetch>(unsigned*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void atomic_ladder<Swap>(unsigned*, int, unsigned, unsigned, unsigned, unsigned);
template __global__ void dot<0>(float*, const float*, const float*, int);
template __global__ void dot<1>(float*, const float*, const float*, int);
template __global__ void dot<8>(float*, const float*, const float*, int);
template __global__ void independent<2>(float*, const float*, int);
template __global__ void independent<4>(float*, const float*, int);
template __global__ void independent<8>(float*, const float*, int);
template __global__ void near_reads<float>(float*, const float*, int, int);
template __global__ void near_reads<float4>(float*, const float4*, int, int);
template __global__ void bulk_pipeline<2>(float*, const float*, int);
template __global__ void bulk_pipeline<4>(float*, const float*, int);
template __global__ void copy_pipeline<2>(float*, const float*, int);
template __global__ void copy_pipeline<4>(float*, const float*, int);
