// Lanes of a warp take different ways, one after the other. What each way reads lies side by side, so the accesses themselves are good.

__global__ void odd_and_even(float* out, const float* a, const float* b, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x / 2;
    float sum = 0;
    if (i & 1) {  // planted
        for (int k = 0; k < turns; k++) sum += a[k * n + (i >> 1)];
    } else {
        for (int k = 0; k < turns; k++) sum -= b[k * n + (i >> 1)];
    }
    out[i] = sum;
}

__global__ void four_ways(float* out, const float* in, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x / 4;
    float sum = 0;
    for (int way = 0; way < 4; way++) {
        if ((i & 3) == way) {  // planted
            for (int k = 0; k < turns; k++) sum += way * in[(way * turns + k) * n + (i >> 2)];
        }
    }
    out[i] = sum;
}

__global__ void few_lanes(float* out, const float* in, const int* flags, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x / 8;
    float sum = 0;
    if (flags[i]) {  // planted
        for (int k = 0; k < turns; k++) sum += in[k * n + (i >> 3)];
    }
    out[i] = sum;
}

__global__ void own_turns(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    float sum = 0;
    for (int k = 0; k < 32 - (i & 31); k++) {  // planted
        sum += in[k * n + i];
    }
    out[i] = sum;
}
