// Kernels that are as they should be: nothing is to be found in them.

__global__ void copy(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

__global__ void scaled_sum(float* y, const float* x, float a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

__global__ void wide_copy(float4* out, const float4* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

__global__ void padded_transpose(float* out, const float* in, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int row = 0; row < 32; row += 8) out[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
}

__global__ void tiled_stencil(float* out, const float* in, int n) {
    __shared__ float tile[258];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tile[t + 1] = in[i];
    if (t == 0) tile[0] = i > 0 ? in[i - 1] : 0.0f;
    if (t == 255) tile[257] = i + 1 < n ? in[i + 1] : 0.0f;
    __syncthreads();
    out[i] = 0.25f * tile[t] + 0.5f * tile[t + 1] + 0.25f * tile[t + 2];
}

__global__ void shuffled_sum(float* out, const float* in, int n) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_down_sync(0xffffffff, sum, step);
    __shared__ float parts[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int k = 0; k < 8; k++) total += parts[k];
        out[blockIdx.x] = total;
    }
}

__global__ void tiled_product(float* c, const float* a, const float* b, int n) {
    __shared__ float left[32][32], right[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    float sum = 0;
    for (int first = 0; first < n; first += 32) {
        left[threadIdx.y][threadIdx.x] = a[y * n + first + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * n + x];
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}

__global__ void cached_stencil(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) out[i] = 0.25f * in[i - 1] + 0.5f * in[i] + 0.25f * in[i + 1];
}

__global__ void row_norm(float* out, const float* in, int columns) {
    int lane = threadIdx.x % 32, row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    float sum = 0;
    for (int k = lane; k < columns; k += 32) {
        float value = in[row * columns + k];
        sum += value * value;
    }
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, step);
    float scale = rsqrtf(sum + 1e-12f);
    for (int k = lane; k < columns; k += 32) out[row * columns + k] = in[row * columns + k] * scale;
}

__global__ void polynomial(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i], sum = 1.0f;
    for (int k = 1; k < 24; k++) sum = sum * x + 0.5f * k;
    out[i] = sum;
}
