// Lanes lie side by side, but their row does not begin at a sector, so each request touches one more.

__global__ void shifted_copy(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i + 1];  // planted
}

__global__ void odd_pitch(float* out, const float* in, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y;
    if (x < width) {
        float value = in[y * width + x];  // planted
        out[y * 1024 + x] = value;
    }
}

__global__ void after_a_header(unsigned char* out, const unsigned char* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[12 + i];  // planted
}

__global__ void shifted_store(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = in[i];
    out[i + 3] = value;  // planted
}
