// The same sectors are loaded over and over from the nearest cache, and could be kept in registers or shared memory.

__global__ void naive_product(float* c, const float* a, const float* b, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k++) {
        sum += a[y * n + k] * b[k * n + x];  // planted
    }
    c[y * n + x] = sum;
}

__global__ void window_sum(float* out, const float* in, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < width; k++) {
        sum += in[i + k];  // planted
    }
    out[i] = sum;
}

__global__ void all_coefficients(float* out, const float* in, const float* coefficients, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i], sum = 0;
    for (int k = 0; k < n; k++) {
        sum = sum * x + coefficients[k];  // planted
    }
    out[i] = sum;
}

__global__ void all_pairs(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float force = 0, mine = out[i];
    for (int k = 0; k < n; k++) {
        float distance = in[k] - mine;  // planted
        force += distance * distance;
    }
    out[i] = force;
}
