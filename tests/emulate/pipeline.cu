// A product of matrices as Hopper is meant to do it: one warpgroup fetches boxes by tensor maps into a ring of stages, another multiplies.
#include <cuda_fp16.h>

struct alignas(64) TensorMap {
    char bytes[128];
};
constexpr int STAGES = 2, ROWS = 64, COLUMNS = 64, DEPTH = 64;

__device__ unsigned shared_address(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

__device__ void await(unsigned long long* barrier, int parity) {
    asm volatile(
        "{\n.reg .pred over;\nASK:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra ASK;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void fetch(void* tile, const TensorMap* map, int x, int y, unsigned long long* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(tile)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
        : "memory");
}

__device__ unsigned long long described(const void* tile) {
    return (shared_address(tile) & 0x3FFFF) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(256)
    pipeline(const __grid_constant__ TensorMap left, const __grid_constant__ TensorMap right, float* c, int n, int k) {
    extern __shared__ __align__(1024) __half ring[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    __half *lefts = ring, *rights = ring + STAGES * ROWS * DEPTH;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[stage])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(shared_address(&empty[stage])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 128) {
            for (int tile = 0; tile < k / DEPTH; ++tile) {
                int stage = tile % STAGES;
                await(&empty[stage], (tile / STAGES + 1) % 2);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full[stage])),
                             "r"((ROWS + COLUMNS) * DEPTH * 2)
                             : "memory");
                fetch(lefts + stage * ROWS * DEPTH, &left, tile * DEPTH, ROWS * blockIdx.y, &full[stage]);
                fetch(rights + stage * COLUMNS * DEPTH, &right, tile * DEPTH, COLUMNS * blockIdx.x, &full[stage]);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[32] = {};
        for (int tile = 0; tile < k / DEPTH; ++tile) {
            int stage = tile % STAGES;
            await(&full[stage], tile / STAGES % 2);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            for (int step = 0; step < DEPTH; step += 16) {
                multiply(d, described(lefts + stage * ROWS * DEPTH) + step * 2 / 16, described(rights + stage * COLUMNS * DEPTH) + step * 2 / 16);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[stage])) : "memory");
        }
        int row = ROWS * blockIdx.y + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = COLUMNS * blockIdx.x + threadIdx.x % 4 * 2;
        for (int i = 0; i < 32; ++i) c[(row + 8 * (i / 2 % 2)) * n + column + 8 * (i / 4) + i % 2] = d[i];
    }
}
