// Most accesses of a line are quick, and few of them take most of its time.

__global__ void rare_jump(float* out, const float* in, int hot, int rounds) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        int far = hot + (blockIdx.x * rounds + k) * blockDim.x + t;
        sum += in[k % 32 == 20 ? far : (k % 4) * blockDim.x + t];  // planted
    }
    out[i] = sum;
}

__global__ void rare_hash(float* out, const float* in, int rounds) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        unsigned hash = (k * 2654435761u) >> 27;
        int row = hash == 9 ? 4 + blockIdx.x * rounds + k : hash & 3;
        sum += in[row * blockDim.x + t];  // planted
    }
    out[i] = sum;
}

__global__ void late_refill(float* out, const float* in, int rounds) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        int page = k / 24;
        sum += in[(blockIdx.x * 8 + page) * blockDim.x + t];  // planted
    }
    out[i] = sum;
}
