// out = an image turned about its centre, width x height floats in row-major order; one thread for each pixel, blocks of 32 x 8.
//
//   turn     finds where its pixel comes from, mostly between four others, and lets the texture unit take their mean; what
//            comes from outside the image is zero. Neighbours in a block read neighbours in the image, along no row of it.

#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__global__ void turn(float* out, cudaTextureObject_t image, int width, int height, float cosine, float sine) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        float right = x + 0.5f - 0.5f * width, down = y + 0.5f - 0.5f * height;
        float from_x = cosine * right - sine * down + 0.5f * width;
        float from_y = sine * right + cosine * down + 0.5f * height;
        out[y * width + x] = tex2D<float>(image, from_x, from_y);
    }
}

int main() {
    const int width = 512, height = 257;
    const size_t row = width * sizeof(float);
    std::vector<float> host(width * height, 1.0f), back(width * height);

    cudaArray_t texels;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMallocArray(&texels, &format, width, height);
    cudaMemcpy2DToArray(texels, 0, 0, host.data(), row, row, height, cudaMemcpyHostToDevice);

    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = texels;
    cudaTextureDesc sampling = {};
    sampling.addressMode[0] = sampling.addressMode[1] = cudaAddressModeBorder;
    sampling.filterMode = cudaFilterModeLinear;
    sampling.readMode = cudaReadModeElementType;
    cudaTextureObject_t image;
    cudaCreateTextureObject(&image, &resource, &sampling, nullptr);

    float* out;
    cudaMalloc(&out, row * height);
    const float angle = 0.35f;
    const dim3 block(32, 8), grid((width + 31) / 32, (height + 7) / 8);
    turn<<<grid, block>>>(out, image, width, height, std::cos(angle), std::sin(angle));
    cudaMemcpy(back.data(), out, row * height, cudaMemcpyDeviceToHost);

    double sum = 0;
    for (float pixel : back) sum += pixel;
    std::printf("%.1f %% of the image is left\n", 100 * sum / back.size());
    cudaDestroyTextureObject(image);
    cudaFreeArray(texels);
    cudaFree(out);
    return sum <= 0;
}
