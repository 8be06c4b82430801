// Volume rendering by ray casting: a thread for each pixel walks along its ray and fetches from a 3D texture.

struct Camera {
    float right[3], up[3], forward[3]; // axes of the image in the volume, and the direction of sight
    float eye[3];
};

// A volume of n^3 bytes, x fastest: shells of a gyroid inside a ball that fades to its border.
extern "C" __global__ void make(unsigned char* volume, int n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)n * n * n) return;
    float x = 2.0f * ((float)(i % n) + 0.5f) / n - 1.0f;
    float y = 2.0f * ((float)(i / n % n) + 0.5f) / n - 1.0f;
    float z = 2.0f * ((float)(i / n / n) + 0.5f) / n - 1.0f;
    const float turns = 14.0f;
    float shells = sinf(turns * x) * cosf(turns * y) + sinf(turns * y) * cosf(turns * z) + sinf(turns * z) * cosf(turns * x);
    float inside = fminf(1.0f, fmaxf(0.0f, 4.0f * (0.98f - sqrtf(x * x + y * y + z * z))));
    volume[i] = (unsigned char)(255.0f * inside * fmaxf(0.0f, 1.0f - fabsf(shells)) + 0.5f);
}

// Front to back until the ray has left the cube [-1, 1]^3 or lets through less than 1 - threshold. `focal`: how far the image, of side 2, is
// from the eye. `spacing`: of the samples along a ray. `density`: opacity of a sample of value 1. A pixel is 8 bits each of red, green,
// blue and opacity.
extern "C" __global__ void render(unsigned* image, cudaTextureObject_t volume, Camera camera, int width, int height, int n, float focal,
                                  float spacing, float density, float threshold) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float u = 2.0f * (x + 0.5f) / width - 1.0f, v = 1.0f - 2.0f * (y + 0.5f) / height;
    float way[3], near = 0.0f, far = 1e30f, length = 0.0f;
    for (int axis = 0; axis < 3; axis++) {
        way[axis] = u * camera.right[axis] + v * camera.up[axis] + focal * camera.forward[axis];
        length += way[axis] * way[axis];
    }
    for (int axis = 0; axis < 3; axis++) {
        way[axis] /= sqrtf(length);
        float first = (-1.0f - camera.eye[axis]) / way[axis], second = (1.0f - camera.eye[axis]) / way[axis];
        near = fmaxf(near, fminf(first, second));
        far = fminf(far, fmaxf(first, second));
    }
    float red = 0.0f, green = 0.0f, blue = 0.0f, opacity = 0.0f;
    int samples = far > near ? (int)((far - near) / spacing) : 0;
    // Not unrolled: one fetch of a warp is under way at a time, with probes and without.
#pragma unroll 1
    for (int sample = 0; sample < samples; sample++) {
        float t = near + (sample + 0.5f) * spacing;
        float value = tex3D<float>(volume, 0.5f * n * (camera.eye[0] + t * way[0] + 1.0f), 0.5f * n * (camera.eye[1] + t * way[1] + 1.0f),
                                   0.5f * n * (camera.eye[2] + t * way[2] + 1.0f));
        float weight = (1.0f - opacity) * density * value;
        red += weight * value;
        green += weight * value * value;
        blue += weight * (1.0f - value);
        opacity += weight;
        if (opacity > threshold) break;
    }
    unsigned channels[4] = {(unsigned)(255.0f * red + 0.5f), (unsigned)(255.0f * green + 0.5f), (unsigned)(255.0f * blue + 0.5f),
                            (unsigned)(255.0f * opacity + 0.5f)};
    image[(long long)y * width + x] = channels[0] | channels[1] << 8 | channels[2] << 16 | channels[3] << 24;
}
