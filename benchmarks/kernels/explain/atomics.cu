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
