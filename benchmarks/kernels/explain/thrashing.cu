// What is read again no longer lies in the cache of the multiprocessor, because more was read in between than it holds.

__global__ void sweep(float* out, const float* in, int words, int sweeps) {
    int t = threadIdx.x;
    float sum = 0;
    for (int turn = 0; turn < sweeps; turn++) {
        for (int k = t; k < words; k += blockDim.x) {
            sum += in[blockIdx.x * words + k];  // planted
        }
    }
    out[blockIdx.x * blockDim.x + t] = sum;
}

__global__ void columns_of_blocks(float* out, const float* in, int rows, int columns) {
    int t = threadIdx.x;
    float sum = 0;
    for (int column = 0; column < columns; column++) {
        for (int row = 0; row < rows; row++) {
            float value = in[row * blockDim.x + t];  // planted
            sum += value * column;
        }
    }
    out[blockIdx.x * blockDim.x + t] = sum;
}

__global__ void table_passes(int* out, const int4* table, int entries, int passes) {
    int t = threadIdx.x, sum = 0;
    for (int pass = 0; pass < passes; pass++) {
        for (int k = t; k < entries; k += blockDim.x) {
            int4 entry = table[k];  // planted
            sum += entry.x ^ entry.y ^ entry.z ^ entry.w ^ pass;
        }
    }
    out[blockIdx.x * blockDim.x + t] = sum;
}
