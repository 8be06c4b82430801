// Kernels in families of variants, by which modelled times are judged. Those that only one launch shape tells apart stand once.

#define NEVER 0x7fffffff

// -- launches: nothing

__global__ void nothing() {}

// -- copies and stores

template <typename T>
__global__ void copy(T* out, const T* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}

template <typename T>
__global__ void fill(T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = T{};
}

// `n` threads store one word each, `stride` words apart.
__global__ void fill_strided(float* out, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i * stride] = 1.0f;
}

// A grid that stays: one element of a thread is under way at a time. Dynamic shared memory only keeps other blocks away.
__global__ void resident_copy(float* out, const float* in, int n) {
    int stride = gridDim.x * blockDim.x;
#pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = in[i];
}

// -- gathers

__global__ void gather_strided(float* out, const float* in, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i * stride];
}

__device__ unsigned scrambled(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__global__ void gather_random(float* out, const float* in, int n, unsigned mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[scrambled(i) & mask];
}

// -- shared memory

template <typename T>
__device__ float of(T value);
template <>
__device__ float of<float>(float value) {
    return value;
}
template <>
__device__ float of<float4>(float4 value) {
    return value.x + value.y + value.z + value.w;
}

template <typename T>
__global__ void banks(float* out, int turns, int stride) {
    constexpr int SIZE = 16384 / sizeof(T);
    __shared__ T words[SIZE];
    for (int i = threadIdx.x; i < SIZE; i += blockDim.x) words[i] = T{};
    __syncthreads();
    float sum = 0.0f;
    int at = threadIdx.x % 32 * stride % SIZE;
    for (int turn = 0; turn < turns; turn += 8) {
#pragma unroll
        for (int k = 0; k < 8; ++k) sum += of<T>(words[(at + k * 32) % SIZE]);
        at = at + __float_as_int(sum) & SIZE - 1; // zero is added
    }
    if (sum != 0.0f) out[threadIdx.x] = sum;
}

__global__ void barriers(float* out, int turns) {
    __shared__ float words[1024];
    float value = threadIdx.x;
    for (int turn = 0; turn < turns; ++turn) {
        words[threadIdx.x] = value;
        __syncthreads();
        value += words[threadIdx.x ^ 32];
        __syncthreads();
    }
    if (value == NEVER) out[threadIdx.x] = value;
}

// -- atomics

__global__ void scatter_add(unsigned* bins, int n, unsigned mask) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[scrambled(i) & mask], 1u);
}

// -- arithmetic: CHAINS that do not need each other

struct Fma {
    typedef float Type;
    static __device__ float step(float x) { return fmaf(x, 0.999f, 0.5f); }
};
struct Fp64 {
    typedef double Type;
    static __device__ double step(double x) { return fma(x, 0.999, 0.5); }
};
struct Sine {
    typedef float Type;
    static __device__ float step(float x) { return __sinf(x); }
};
struct Divide {
    typedef float Type;
    static __device__ float step(float x) { return 1.5f / (x + 1.0f); }
};
struct Multiply {
    typedef unsigned Type;
    static __device__ unsigned step(unsigned x) { return x * x + 12345u; }
};
struct Shift {
    typedef unsigned Type;
    static __device__ unsigned step(unsigned x) { return (x ^ x >> 7) + 77u; }
};
struct Remainder {
    typedef unsigned Type;
    static __device__ unsigned step(unsigned x) { return 4000000007u % (x | 1u); }
};
struct Root {
    typedef float Type;
    static __device__ float step(float x) { return sqrtf(x + 1.0f); }
};

template <typename Operation, int CHAINS>
__global__ void arithmetic(typename Operation::Type* out, int turns) {
    typename Operation::Type x[CHAINS];
    for (int k = 0; k < CHAINS; ++k) x[k] = threadIdx.x + k + 1;
    for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
        for (int again = 0; again < 4; ++again) {
#pragma unroll
            for (int k = 0; k < CHAINS; ++k) x[k] = Operation::step(x[k]);
        }
    }
    typename Operation::Type sum = 0;
    for (int k = 0; k < CHAINS; ++k) sum += x[k];
    if (sum == (typename Operation::Type)NEVER) out[threadIdx.x] = sum;
}

// -- tensor products: m16n8k16 of halves, CHAINS that do not need each other

template <int CHAINS>
__global__ void products(float* out, int turns) {
    unsigned a[4] = {threadIdx.x, threadIdx.x, 0, 0}, b[2] = {threadIdx.x, 0};
    float c[CHAINS][4] = {};
    for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
        for (int k = 0; k < CHAINS; ++k) {
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                         : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        }
    }
    float sum = 0.0f;
    for (int k = 0; k < CHAINS; ++k) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    if (sum == NEVER) out[threadIdx.x] = sum;
}

// -- matrix products

__global__ void product_plain(float* c, const float* a, const float* b, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

// A block of TILE x TILE threads computes ROWS tiles below each other; n is a multiple of both.
template <int TILE, int ROWS>
__global__ void product_tiled(float* __restrict__ c, const float* __restrict__ a, const float* __restrict__ b, int n) {
    __shared__ float tile_a[ROWS * TILE][TILE], tile_b[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * TILE + x, row = blockIdx.y * TILE * ROWS + y;
    float sum[ROWS] = {};
    for (int start = 0; start < n; start += TILE) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) tile_a[r * TILE + y][x] = a[(row + r * TILE) * n + start + x];
        tile_b[y][x] = b[(start + y) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) {
            float factor = tile_b[k][x];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) sum[r] += tile_a[r * TILE + y][k] * factor;
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) c[(row + r * TILE) * n + column] = sum[r];
}

// -- stencils in the plane

__global__ void five_point(float* __restrict__ out, const float* __restrict__ in, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * n + x;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    out[i] = 0.5f * in[i] + 0.125f * (in[i - 1] + in[i + 1] + in[i - n] + in[i + n]);
}

__global__ void five_point_tiled(float* __restrict__ out, const float* __restrict__ in, int n) {
    __shared__ float tile[10][34];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y, i = y * n + x;
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    tile[ty][tx] = in[i];
    if (tx == 1 && x > 0) tile[ty][0] = in[i - 1];
    if (tx == 32 && x < n - 1) tile[ty][33] = in[i + 1];
    if (ty == 1 && y > 0) tile[0][tx] = in[i - n];
    if (ty == 8 && y < n - 1) tile[9][tx] = in[i + n];
    __syncthreads();
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    out[i] = 0.5f * tile[ty][tx] + 0.125f * (tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx]);
}

template __global__ void copy<char>(char*, const char*, int);
template __global__ void copy<short>(short*, const short*, int);
template __global__ void copy<float>(float*, const float*, int);
template __global__ void copy<float2>(float2*, const float2*, int);
template __global__ void copy<float4>(float4*, const float4*, int);
template __global__ void fill<float>(float*, int);
template __global__ void fill<float4>(float4*, int);
template __global__ void banks<float>(float*, int, int);
template __global__ void banks<float4>(float*, int, int);
template __global__ void arithmetic<Fma, 1>(float*, int);
template __global__ void arithmetic<Fma, 4>(float*, int);
template __global__ void arithmetic<Fp64, 1>(double*, int);
template __global__ void arithmetic<Sine, 1>(float*, int);
template __global__ void arithmetic<Divide, 1>(float*, int);
template __global__ void arithmetic<Root, 1>(float*, int);
template __global__ void arithmetic<Multiply, 1>(unsigned*, int);
template __global__ void arithmetic<Shift, 1>(unsigned*, int);
template __global__ void arithmetic<Remainder, 1>(unsigned*, int);
template __global__ void products<1>(float*, int);
template __global__ void products<4>(float*, int);
template __global__ void product_tiled<8, 1>(float*, const float*, const float*, int);
template __global__ void product_tiled<16, 1>(float*, const float*, const float*, int);
template __global__ void product_tiled<32, 1>(float*, const float*, const float*, int);
template __global__ void product_tiled<16, 4>(float*, const float*, const float*, int);
template __global__ void product_tiled<32, 4>(float*, const float*, const float*, int);
