// Barriers of parts of a block: those of the hardware by number and count, and objects in shared memory.
__device__ void arrive(int number, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory"); }
__device__ void await(int number, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory"); }

// One warp fetches, the other computes; two buffers, each with a barrier for "full" and one for "empty".
__global__ void hand_over(int* out, const int* in, int rounds) {
    __shared__ int buffer[2][32];
    int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int round = 0; round < rounds; ++round) {
            int which = round % 2;
            if (round >= 2) await(3 + which, 64);
            buffer[which][lane] = in[round * 32 + lane];
            arrive(1 + which, 64);
        }
    } else {
        int sum = 0;
        for (int round = 0; round < rounds; ++round) {
            int which = round % 2;
            await(1 + which, 64);
            sum += buffer[which][31 - lane];
            if (round + 2 < rounds) arrive(3 + which, 64);
        }
        out[lane] = sum;
    }
}

__global__ void votes(int* out, const int* in) {
    int mine = in[threadIdx.x];
    out[3 * threadIdx.x] = __syncthreads_count(mine > 50);
    out[3 * threadIdx.x + 1] = __syncthreads_and(mine >= 0);
    out[3 * threadIdx.x + 2] = __syncthreads_or(mine == 1000);
}

// Threads that have exited do not hold the others back.
__global__ void early(int* out, const int* in, int leave) {
    __shared__ int cells[128];
    if (threadIdx.x < leave) return;
    cells[threadIdx.x] = in[threadIdx.x];
    asm volatile("barrier.sync 0;" ::: "memory");
    out[threadIdx.x] = cells[blockDim.x - 1 - (threadIdx.x - leave)];
}
