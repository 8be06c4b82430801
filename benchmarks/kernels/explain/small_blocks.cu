// Lanes that no thread has: blocks smaller than a warp, or with a part of one at the end. What they access lies side by side.

__global__ void eight_threads(float* out, const float* in, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        sum += in[k * gridDim.x * blockDim.x + i];  // planted
    }
    out[i] = sum;
}

__global__ void forty_threads(float* out, const float* in, int rounds) {
    __shared__ float tile[40];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        tile[t] = in[k * gridDim.x * blockDim.x + i];  // planted
        __syncthreads();
        sum += tile[39 - t];
        __syncthreads();
    }
    out[i] = sum;
}

__global__ void rows_of_sixteen(float* out, const float* in, int columns) {
    const float* row = in + blockIdx.x * columns;
    float sum = 0;
    for (int k = threadIdx.x; k < columns; k += blockDim.x) {
        sum += row[k] * row[k];  // planted
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
