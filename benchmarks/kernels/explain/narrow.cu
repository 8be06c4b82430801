// Lanes lie side by side, but each asks for a byte or two: a request moves a quarter or a half of what it could.

__global__ void inverted_bytes(unsigned char* out, const unsigned char* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 255 - in[i];  // planted
}

__global__ void summed_frames(int* out, const unsigned char* frames, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, pixels = gridDim.x * blockDim.x;
    int sum = 0;
    for (int k = 0; k < amount; k++) {
        sum += frames[k * pixels + i];  // planted
    }
    out[i] = sum;
}

__global__ void loudest_sample(short* out, const short* samples, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, channels = gridDim.x * blockDim.x;
    int loudest = 0;
    for (int k = 0; k < amount; k++) {
        int sample = samples[k * channels + i];  // planted
        loudest = max(loudest, abs(sample));
    }
    out[i] = loudest;
}
