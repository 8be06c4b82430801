// Tiles in shared memory: the ways in which a warp can meet the banks.

#include <cstdint>

// -- transposes of 32 x 32 tiles by 32 x 8 threads -----------------------------------------------------------------------------

template <int PAD>
__device__ void transpose(float* out, const float* in, int n) {
    __shared__ float tile[32][32 + PAD];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8) {
        tile[j][threadIdx.x] = in[(y + j) * n + x];
    }
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32;
    for (int j = threadIdx.y; j < 32; j += 8) {
        out[(y + j) * n + x] = tile[threadIdx.x][j];
    }
}

extern "C" __global__ void transpose_pad_0(float* out, const float* in, int n) {
    transpose<0>(out, in, n);
}
extern "C" __global__ void transpose_pad_1(float* out, const float* in, int n) {
    transpose<1>(out, in, n);
}
extern "C" __global__ void transpose_pad_2(float* out, const float* in, int n) {
    transpose<2>(out, in, n);
}

extern "C" __global__ void transpose_swizzled(float* out, const float* in, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8) {
        tile[j][threadIdx.x ^ j] = in[(y + j) * n + x];
    }
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32;
    for (int j = threadIdx.y; j < 32; j += 8) {
        out[(y + j) * n + x] = tile[threadIdx.x][j ^ threadIdx.x];
    }
}

template <class T, int PAD>
__device__ void transpose_wide(T* out, const T* in, int n) {
    __shared__ T tile[16][16 + PAD];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void transpose_double(double* out, const double* in, int n) {
    transpose_wide<double, 0>(out, in, n);
}
extern "C" __global__ void transpose_double_pad_1(double* out, const double* in, int n) {
    transpose_wide<double, 1>(out, in, n);
}
extern "C" __global__ void transpose_float4(float4* out, const float4* in, int n) {
    transpose_wide<float4, 0>(out, in, n);
}
extern "C" __global__ void transpose_float4_pad_1(float4* out, const float4* in, int n) {
    transpose_wide<float4, 1>(out, in, n);
}
extern "C" __global__ void transpose_bytes(uint8_t* out, const uint8_t* in, int n) {
    transpose_wide<uint8_t, 0>(out, in, n);
}

// -- one array in shared memory, blocks of 256 threads -------------------------------------------------------------------------

// Each thread stores an element where the stride says, which is odd so that no two meet, and loads its own.
template <class T>
__device__ void through_shared(T* out, const T* in, int stride) {
    __shared__ T tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    tile[threadIdx.x * stride % 256] = in[i];
    __syncthreads();
    out[i] = tile[threadIdx.x];
}

extern "C" __global__ void shared_stride_4(float* out, const float* in, int stride) {
    through_shared(out, in, stride);
}
extern "C" __global__ void shared_stride_8(float2* out, const float2* in, int stride) {
    through_shared(out, in, stride);
}
extern "C" __global__ void shared_stride_16(float4* out, const float4* in, int stride) {
    through_shared(out, in, stride);
}

// Pairs of one row: every thread reads both numbers of its pair at once, and those of its neighbour one by one.
extern "C" __global__ void pairs(float* out, const float2* in) {
    __shared__ float2 tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t] = in[i];
    __syncthreads();
    float2 mine = tile[t];
    out[i] = mine.x * tile[(t + 1) % 256].y - mine.y;
}

// All lanes of a warp read one element, four at a time.
extern "C" __global__ void shared_broadcast(float* out, const float4* in) {
    __shared__ float4 tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t] = in[i];
    __syncthreads();
    float sum = 0.0f;
    for (int j = 0; j < 8; ++j) {
        float4 one = tile[(t / 32 * 32 + j * 4) % 256];
        sum += one.x + one.y + one.z + one.w;
    }
    out[i] = sum;
}

extern "C" __global__ void reverse_in_shared(float* out, const float* in) {
    __shared__ float tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t] = in[i];
    __syncthreads();
    out[i] = tile[255 - t];
}

// Three points of a line, with a halo of one on either side.
extern "C" __global__ void stencil_line(float* out, const float* in, int n) {
    __shared__ float tile[258];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t + 1] = in[i];
    if (t == 0) {
        tile[0] = i > 0 ? in[i - 1] : 0.0f;
    }
    if (t == 255) {
        tile[257] = i + 1 < n ? in[i + 1] : 0.0f;
    }
    __syncthreads();
    out[i] = tile[t] - 2.0f * tile[t + 1] + tile[t + 2];
}

// Five points of a plane, tiles of 32 x 8 with their halo.
extern "C" __global__ void stencil_plane(float* out, const float* in, int n) {
    __shared__ float tile[10][34];
    int x0 = blockIdx.x * 32, y0 = blockIdx.y * 8;
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 340; k += 256) {
        int x = x0 + k % 34 - 1, y = y0 + k / 34 - 1;
        tile[k / 34][k % 34] = x >= 0 && x < n && y >= 0 && y < n ? in[y * n + x] : 0.0f;
    }
    __syncthreads();
    int x = threadIdx.x + 1, y = threadIdx.y + 1;
    out[(y0 + threadIdx.y) * n + x0 + threadIdx.x] =
        tile[y][x - 1] + tile[y][x + 1] + tile[y - 1][x] + tile[y + 1][x] - 4.0f * tile[y][x];
}

// Global memory to shared memory without a register in between, 16 bytes a thread, and back.
extern "C" __global__ void asynchronous(float4* out, const float4* in) {
    __shared__ float4 tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    unsigned to = (unsigned)__cvta_generic_to_shared(tile + t);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + i) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[i] = tile[t ^ 8];
}

// Fragments of four matrices of 8 x 8 half words a warp, whose rows of 16 bytes lie APART apart; stored again as one matrix and loaded plainly.
template <int APART>
__device__ void matrices(uint4* out, const uint4* in) {
    __shared__ __align__(128) uint4 rows[256 * APART];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    rows[t * APART] = in[i];
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(rows + t * APART);
    uint4 found;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                 : "r"(at)
                 : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(found.w) : "r"(at) : "memory");
    __syncthreads();
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(found.x), "r"(found.y) : "memory");
    __syncthreads();
    found.z += rows[t * APART].x;
    out[i] = found;
}
extern "C" __global__ void matrices_packed(uint4* out, const uint4* in) {
    matrices<1>(out, in);
}
extern "C" __global__ void matrices_apart(uint4* out, const uint4* in) {
    matrices<4>(out, in);
}

// Four plain loads in PTX, which NVVM leaves alone, so that the assembler can make one of them.
__device__ __forceinline__ void four_words(float* values, unsigned at) {
    asm("ld.shared.f32 %0, [%4];\n"
        "ld.shared.f32 %1, [%4 + 4];\n"
        "ld.shared.f32 %2, [%4 + 8];\n"
        "ld.shared.f32 %3, [%4 + 12];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
        : "r"(at)
        : "memory");
}

// Eight numbers of a row for each thread.
extern "C" __global__ void rows_of_eight(float* out, const float* in) {
    __shared__ __align__(16) float tile[32][8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t / 8][t % 8] = in[i];
    __syncthreads();
    unsigned row = (unsigned)__cvta_generic_to_shared(tile[t % 32]);
    float words[8], sum = 0.0f;
    four_words(words, row);
    four_words(words + 4, row + 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        sum += words[j];
    }
    out[i] = sum;
}

// The product of 16 x 16 tiles as the textbooks have it: the row of the left tile is read by neighbours, the column of the right one not.
extern "C" __global__ void product_of_tiles(float* c, const float* a, const float* b, int n) {
    __shared__ __align__(16) float left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    unsigned mine = (unsigned)__cvta_generic_to_shared(left[y]);
    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += 16) {
        left[y][x] = a[row * n + k0 + x];
        right[y][x] = b[(k0 + y) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k += 4) {
            float words[4];
            four_words(words, mine + 4 * k);
            sum += words[0] * right[k][x] + words[1] * right[k + 1][x] + words[2] * right[k + 2][x] + words[3] * right[k + 3][x];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}
