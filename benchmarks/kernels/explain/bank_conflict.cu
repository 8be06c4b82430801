// Lanes ask for different words of one bank of shared memory.

__global__ void tile_column(float* out, const float* in, int n) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) {
        out[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];  // planted
    }
}

__global__ void every_eighth(float* out, const float* in, int rounds) {
    __shared__ float words[2048];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    for (int k = t; k < 2048; k += blockDim.x) words[k] = in[(blockIdx.x * blockDim.x + k) & 0xffff];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < rounds; k++) {
        sum += words[(t * 8 + k) & 2047];  // planted
    }
    out[i] = sum;
}

struct Cell {
    float values[16];
};

__global__ void cell_per_thread(float* out, const float* in) {
    __shared__ Cell cells[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float mine = in[i];
    for (int k = 0; k < 16; k++) {
        cells[t].values[k] = mine * k;  // planted
    }
    __syncthreads();
    out[i] = cells[0].values[t & 15];
}

__global__ void butterfly(float* out, const float* in) {
    __shared__ float words[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    for (int k = t; k < 1024; k += blockDim.x) words[k] = in[i];
    __syncthreads();
    float sum = 0;
    for (int step = 512; step >= 64; step >>= 1) {
        for (int k = 0; k < 8; k++) {
            sum += words[(t * 16 + k + step) & 1023];  // planted
        }
    }
    out[i] = sum;
}
