// Few warps fit on a multiprocessor because of the shared memory of a block, though more blocks wait. Any access to global memory shows it.

__global__ void big_tile(float* out, const float* in, int rounds) {
    __shared__ float tile[12288];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        float value = in[(k * gridDim.x + blockIdx.x) * blockDim.x + t];  // planted
        tile[(t + k * 64) % 12288] = value;
        sum += value;
    }
    __syncthreads();
    out[i] = sum + tile[t];
}

extern __shared__ float room[];

__global__ void huge_dynamic(float* out, const float* in, int rounds, int words) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        float value = in[(k * gridDim.x + blockIdx.x) * blockDim.x + t];  // planted
        room[(t + k * 128) % words] = value;
        sum += value;
    }
    __syncthreads();
    out[i] = sum + room[t];
}

__global__ void lonely_warps(float* out, const float* in, int rounds) {
    __shared__ float tile[5120];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        float value = in[(k * gridDim.x + blockIdx.x) * blockDim.x + t];  // planted
        tile[t + k * 32] = value;
        sum += value;
    }
    __syncwarp();
    out[i] = sum + tile[t];
}
