// Lanes and warps update one address, one after the other.

__global__ void one_counter(int* count, int* places, const int* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = in[i];
    places[i] = atomicAdd(count, value);  // planted
}

__global__ void four_bins(int* bins, const int* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = in[i];
    atomicAdd(&bins[value & 3], value);  // planted
}

__global__ void counter_of_block(int* out, const int* in) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = in[i];
    out[i] = atomicAdd(&count, value);  // planted
}

__global__ void running_maximum(int* most, const int* in, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < rounds; k++) {
        int value = in[k * gridDim.x * blockDim.x + i];
        atomicMax(most, value ^ i);  // planted
    }
}

__global__ void warp_sums(unsigned* sum, const unsigned* in, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < rounds; k++) {
        unsigned total = __reduce_add_sync(0xffffffff, in[k * gridDim.x * blockDim.x + i]);
        if (threadIdx.x % 32 == 0) atomicAdd(sum, total);  // planted
    }
}

__global__ void best_of_warps(unsigned* best, const unsigned* in, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < rounds; k++) {
        unsigned most = __reduce_max_sync(0xffffffff, in[k * gridDim.x * blockDim.x + i]);
        if (threadIdx.x % 32 == 0) atomicMax(&best[k & 1], most ^ i);  // planted
    }
}

__global__ void tickets(int* next, int* out, const int* in, int rounds) {
    for (int k = 0; k < rounds; k++) {
        int ticket = 0;
        if (threadIdx.x % 32 == 0) ticket = atomicAdd(next, 1);  // planted
        ticket = __shfl_sync(0xffffffff, ticket, 0);
        out[32 * ticket + threadIdx.x % 32] = in[32 * ticket + threadIdx.x % 32] + 1;
    }
}
