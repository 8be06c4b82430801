// Some warps, or some multiprocessors, have much more to do than others.

__global__ void triangle(float* out, const float* in, int step) {
    int t = threadIdx.x, warp = t / 32, i = blockIdx.x * blockDim.x + t;
    int turns = warp == 7 ? 16 * step : step;
    float sum = 0;
    for (int k = 0; k < turns; k++) {
        sum += in[((blockIdx.x * 16 * step + k) * 8 + warp) * 32 + t % 32];  // planted
    }
    __syncthreads();
    out[i] = sum;
}

__global__ void heavy_blocks(float* out, const float* in, int turns) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int mine = blockIdx.x % 33 == 0 ? 16 * turns : turns;
    float sum = 0;
    for (int k = 0; k < mine; k++) {
        sum += in[(blockIdx.x * 16 * turns + k) * blockDim.x + t];  // planted
    }
    out[i] = sum;
}

__global__ void ragged_rows(float* out, const float* values, const int* begins, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    int begin = begins[row], end = begins[row + 1];
    for (int k = begin; k < end; k += 32) {
        sum += values[k + lane];  // planted
    }
    out[row * 32 + lane] = sum;
}

__global__ void one_busy_warp(float* out, const float* in, int turns) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = in[i];
    if (t < 32) {
        for (int k = 1; k <= turns; k++) {
            sum += in[(k * gridDim.x + blockIdx.x) * blockDim.x + t];  // planted
        }
    }
    __syncthreads();
    out[i] = sum;
}
