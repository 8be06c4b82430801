// The block that finishes last adds what all blocks left.
__device__ unsigned finished = 0;

__global__ void sum(float* total, float* partial, const float* in, int n) {
    __shared__ float cells[128];
    __shared__ bool last;
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += in[i];
    cells[threadIdx.x] = mine;
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) cells[threadIdx.x] += cells[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = cells[0];
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        float sum = 0;
        for (int block = 0; block < gridDim.x; ++block) sum += partial[block];
        *total = sum;
    }
}
