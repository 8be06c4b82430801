// An array of each thread is indexed at run time, so it lies in local memory and not in registers.

__global__ void own_stack(int* out, const int* in, int rounds) {
    int stack[32], top = 0, i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = in[i];
    for (int k = 0; k < rounds; k++) {
        stack[top] = value + k;  // planted
        top = (top + 1 + (value & 1)) & 31;
    }
    out[i] = stack[(top + value) & 31] + stack[value & 31];  // planted
}

__global__ void own_bins(int* out, const int* in, int rounds) {
    int bins[16], i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (int k = 0; k < 16; k++) bins[k] = 0;  // planted
    for (int k = 0; k < rounds; k++) {
        int value = in[k * n + i];
        bins[value & 15] += 1;  // planted
    }
    int most = 0;
    for (int k = 0; k < 16; k++) most = max(most, bins[k]);  // planted
    out[i] = most;
}

__global__ void own_permutation(int* out, const int* in, int rounds) {
    int order[24], i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 24; k++) order[k] = k;  // planted
    int seed = in[i];
    for (int k = 0; k < rounds; k++) {
        int a = (seed + 7 * k) % 24, b = (seed + 11 * k + 5) % 24;
        int swapped = order[a];  // planted
        order[a] = order[b];  // planted
        order[b] = swapped;  // planted
    }
    out[i] = order[seed % 24];  // planted
}
