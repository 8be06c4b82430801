// Each lane touches a sector of its own: 32 sectors move where 4 would do. The marked line is where it happens.

__global__ void column_copy(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[(i % n) * n + i / n];  // planted
}

struct Particle {
    float x, y, z, w, vx, vy, vz, m;
};

__global__ void one_field(float* out, const Particle* particles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = particles[i].x;  // planted
    out[i] = 2.0f * x;
}

__global__ void chunk_per_thread(float* out, const float* in, int chunk) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < chunk; k++) {
        sum += in[i * chunk + k];  // planted
    }
    out[i] = sum;
}

__global__ void scatter_rows(float* out, const float* in, int pitch) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = in[i];
    out[i * pitch] = value;  // planted
}
