// y = A x for a sparse matrix in compressed rows: row r owns the entries row_start[r] .. row_start[r + 1) of `column` and `value`.
//
//   csr_scalar   one thread for each row: the lanes of a warp read entries of 32 different rows, far apart.
//   csr_warp     one warp for each row: the lanes read neighbouring entries, and shuffles add the 32 partial sums.
//
// In both, x is gathered at whatever columns the matrix has.

#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

__global__ void csr_scalar(float* y, const int* row_start, const int* column, const float* value, const float* x, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = row_start[row]; k < row_start[row + 1]; ++k) {
        sum += value[k] * x[column[k]];
    }
    y[row] = sum;
}

__global__ void csr_warp(float* y, const int* row_start, const int* column, const float* value, const float* x, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    int lane = threadIdx.x % WARP;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = row_start[row] + lane; k < row_start[row + 1]; k += WARP) {
        sum += value[k] * x[column[k]];
    }
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(ALL_LANES, sum, offset);
    }
    if (lane == 0) y[row] = sum;
}

template <typename T>
T* to_device(const std::vector<T>& host) {
    T* device;
    cudaMalloc(&device, host.size() * sizeof(T));
    cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    return device;
}

int main() {
    // Row r has 1 + r % 61 entries, spread over the columns by a fixed step.
    const int rows = 4096;
    std::vector<int> row_start{0}, column;
    std::vector<float> value, x(rows), y(rows);
    for (int r = 0; r < rows; ++r) {
        for (int k = 0; k < 1 + r % 61; ++k) {
            column.push_back((r + 67 * k) % rows);
            value.push_back(static_cast<float>(1 + k % 3));
        }
        row_start.push_back(static_cast<int>(column.size()));
        x[r] = static_cast<float>(r % 10);
    }
    int *device_start = to_device(row_start), *device_column = to_device(column);
    float *device_value = to_device(value), *device_x = to_device(x), *device_y = to_device(y);

    const int block = 128;
    csr_scalar<<<(rows + block - 1) / block, block>>>(device_y, device_start, device_column, device_value, device_x, rows);
    csr_warp<<<rows / (block / WARP), block>>>(device_y, device_start, device_column, device_value, device_x, rows);
    cudaMemcpy(y.data(), device_y, rows * sizeof(float), cudaMemcpyDeviceToHost);

    int wrong = 0;
    for (int r = 0; r < rows; ++r) {
        float sum = 0.0f;
        for (int k = row_start[r]; k < row_start[r + 1]; ++k) sum += value[k] * x[column[k]];
        wrong += sum != y[r];
    }
    std::printf("%d of %d rows are wrong\n", wrong, rows);
    return wrong != 0;
}
