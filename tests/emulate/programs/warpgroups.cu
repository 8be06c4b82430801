// Products of Hopper's warpgroups, as libraries write them: descriptors, swizzled tiles, two buffers, one group of products under way.
#include <cuda_fp16.h>

constexpr int ROWS = 128, COLUMNS = 32, DEPTH = 64;  // of a tile; a row of 64 halves has 128 bytes, as the swizzle wants it

__device__ unsigned long long described(const void* tile) {
    unsigned long long address = __cvta_generic_to_shared(tile);
    return (address & 0x3FFFF) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[16], unsigned long long a, unsigned long long b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b));
}

template <int LEFT>
__device__ void wait(float (&d)[16]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    for (int i = 0; i < 16; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Rows of 128 bytes, each chunk of 16 where the swizzle puts it.
__device__ void fill(__half* tile, const __half* from, int rows, int stride) {
    for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
        int row = i / 8, chunk = i % 8;
        reinterpret_cast<uint4*>(tile)[8 * row + (chunk ^ row % 8)] = *reinterpret_cast<const uint4*>(from + row * stride + 8 * chunk);
    }
}

// C = A B, B given by columns; a block has two warpgroups, one for each 64 rows.
__global__ void product(float* c, const __half* a, const __half* b, int n, int k) {
    __shared__ alignas(1024) __half left[2][ROWS * DEPTH];
    __shared__ alignas(1024) __half right[2][COLUMNS * DEPTH];
    float d[16] = {};
    int group = threadIdx.x / 128, first = ROWS * blockIdx.y, column = COLUMNS * blockIdx.x;
    for (int tile = 0; tile < k / DEPTH; ++tile) {
        __half *from_left = left[tile % 2], *from_right = right[tile % 2];
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        __syncthreads();
        fill(from_left, a + first * k + tile * DEPTH, ROWS, k);
        fill(from_right, b + column * k + tile * DEPTH, COLUMNS, k);
        asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int step = 0; step < DEPTH; step += 16) {
            multiply(d, described(from_left + 64 * DEPTH * group) + step * 2 / 16, described(from_right) + step * 2 / 16);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    wait<0>(d);
    int row = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    for (int i = 0; i < 16; ++i) c[(row + 8 * (i / 2 % 2)) * n + column + 8 * (i / 4) + threadIdx.x % 4 * 2 + i % 2] = d[i];
}
