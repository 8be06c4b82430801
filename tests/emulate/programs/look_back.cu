// A scan in one pass over many blocks: each block publishes its sum, and looks back at those before it until it meets a prefix.
#include <cuda/atomic>

constexpr int THREADS = 128;
enum Flag : unsigned { NONE, SUM, PREFIX };

__device__ unsigned next_tile = 0;

__global__ void scan(int* out, const int* in, unsigned long long* state, int n) {
    __shared__ unsigned tile;
    __shared__ int warps[THREADS / 32], before;
    if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1);
    __syncthreads();
    int i = tile * THREADS + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int value = i < n ? in[i] : 0;
    for (int distance = 1; distance < 32; distance *= 2) {
        int other = __shfl_up_sync(~0u, value, distance);
        if (lane >= distance) value += other;
    }
    if (lane == 31) warps[warp] = value;
    __syncthreads();
    for (int w = 0; w < warp; ++w) value += warps[w];
    if (threadIdx.x == THREADS - 1) {
        auto word = [&](unsigned t) { return cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(state[t]); };
        auto packed = [](Flag flag, int sum) { return (unsigned long long)flag << 32 | (unsigned)sum; };
        word(tile).store(packed(tile ? SUM : PREFIX, value), cuda::memory_order_release);
        int sum = 0;
        for (int back = int(tile) - 1; back >= 0;) {
            unsigned long long seen = word(back).load(cuda::memory_order_acquire);
            if (seen >> 32 == NONE) continue;
            sum += int(seen);
            if (seen >> 32 == PREFIX) break;
            --back;
        }
        if (tile) word(tile).store(packed(PREFIX, sum + value), cuda::memory_order_release);
        before = sum;
    }
    __syncthreads();
    if (i < n) out[i] = before + value;
}
