// Sectors move of which only a part is used, though several lanes share each of them.

__global__ void every_second(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[2 * i];  // planted
}

struct Vector {
    float x, y, z;
};

__global__ void one_of_three(float* out, const Vector* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i].y;  // planted
}

__global__ void real_parts(double* out, const double2* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i].x;  // planted
}

__global__ void every_fourth_store(float* out, const float* in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = in[i];
    out[4 * i] = value;  // planted
}
