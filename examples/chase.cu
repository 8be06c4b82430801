// A pointer chase: each load needs the value of the one before, so that the time of the whole chain divided by its length is the
// latency of one load. The size of the ring and the stride decide which level of the memory answers.
//
//   link_ring      writes a ring of absolute addresses into global memory: slot i points to slot (i + stride) % slots.
//   chase_global   follows it for `steps` loads and leaves where it arrived. One thread.
//   chase_shared   the same in shared memory, through indices. One block, whose first thread does the walking; the launch gives
//                  slots * 4 bytes of dynamic shared memory.

#include <cstdio>
#include <cuda_runtime.h>

__global__ void link_ring(unsigned long long* ring, int slots, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < slots) {
        ring[i] = reinterpret_cast<unsigned long long>(ring + (i + stride) % slots);
    }
}

__global__ void chase_global(unsigned long long* end, const unsigned long long* ring, int steps) {
    unsigned long long at = reinterpret_cast<unsigned long long>(ring);
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
        at = *reinterpret_cast<const unsigned long long*>(at);
    }
    *end = at;
}

__global__ void chase_shared(unsigned int* end, int slots, int stride, int steps) {
    extern __shared__ unsigned int next[];
    for (int i = threadIdx.x; i < slots; i += blockDim.x) {
        next[i] = (i + stride) % slots;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned int at = 0;
#pragma unroll 1
        for (int i = 0; i < steps; ++i) {
            at = next[at];
        }
        *end = at;
    }
}

int main() {
    const int slots = 1 << 16, stride = 17, steps = 10000;
    unsigned long long *ring, *end;
    unsigned int* index;
    cudaMallocManaged(&ring, slots * sizeof(*ring));
    cudaMallocManaged(&end, sizeof(*end));
    cudaMallocManaged(&index, sizeof(*index));

    link_ring<<<slots / 256, 256>>>(ring, slots, stride);
    chase_global<<<1, 1>>>(end, ring, steps);
    chase_shared<<<1, 32, 4096 * sizeof(unsigned int)>>>(index, 4096, stride, steps);
    cudaDeviceSynchronize();

    const auto* arrived = reinterpret_cast<unsigned long long*>(*end);
    std::printf("global: slot %td, expected %lld\n", arrived - ring, 1LL * steps * stride % slots);
    std::printf("shared: slot %u, expected %d\n", *index, steps * stride % 4096);
    return 0;
}
