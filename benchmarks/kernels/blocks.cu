// Algorithms of one block: scans, sorts, sums, products.

// -- exclusive scan of 512 numbers by 256 threads, up and down a tree ----------------------------------------------------------

template <int BANKS>
__device__ int place(int i) {
    return BANKS ? i + i / BANKS : i;
}

template <int BANKS>
__device__ void scan(int* out, const int* in) {
    __shared__ int tree[512 + 32];
    int t = threadIdx.x, base = blockIdx.x * 512;
    tree[place<BANKS>(t)] = in[base + t];
    tree[place<BANKS>(t + 256)] = in[base + t + 256];
    int step = 1;
    for (int active = 256; active > 0; active /= 2) {
        __syncthreads();
        if (t < active) {
            int left = place<BANKS>(step * (2 * t + 1) - 1), right = place<BANKS>(step * (2 * t + 2) - 1);
            tree[right] += tree[left];
        }
        step *= 2;
    }
    if (t == 0) {
        tree[place<BANKS>(511)] = 0;
    }
    for (int active = 1; active <= 256; active *= 2) {
        step /= 2;
        __syncthreads();
        if (t < active) {
            int left = place<BANKS>(step * (2 * t + 1) - 1), right = place<BANKS>(step * (2 * t + 2) - 1);
            int held = tree[left];
            tree[left] = tree[right];
            tree[right] += held;
        }
    }
    __syncthreads();
    out[base + t] = tree[place<BANKS>(t)];
    out[base + t + 256] = tree[place<BANKS>(t + 256)];
}

extern "C" __global__ void scan_plain(int* out, const int* in) {
    scan<0>(out, in);
}
extern "C" __global__ void scan_padded(int* out, const int* in) {
    scan<32>(out, in);
}

// -- bitonic sort of 256 numbers -----------------------------------------------------------------------------------------------

extern "C" __global__ void bitonic(int* out, const int* in) {
    __shared__ int tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t] = in[i];
    __syncthreads();
    for (int length = 2; length <= 256; length *= 2) {
        for (int distance = length / 2; distance > 0; distance /= 2) {
            int other = t ^ distance;
            if (other > t) {
                int a = tile[t], b = tile[other];
                if ((a > b) == ((t & length) == 0)) {
                    tile[t] = b;
                    tile[other] = a;
                }
            }
            __syncthreads();
        }
    }
    out[i] = tile[t];
}

// -- rows of a matrix, a block of 128 threads for each -------------------------------------------------------------------------

// Softmax without the division by the largest, which the tests keep small: weights are powers of two, so that sums are exact.
extern "C" __global__ void softmax_rows(float* out, const float* in, int columns) {
    __shared__ float sums[128];
    int t = threadIdx.x;
    const float* row = in + blockIdx.x * columns;
    float largest = -1e30f, sum = 0.0f;
    for (int j = t; j < columns; j += 128) {
        largest = fmaxf(largest, row[j]);
    }
    sums[t] = largest;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) {
            sums[t] = fmaxf(sums[t], sums[t + half]);
        }
        __syncthreads();
    }
    largest = sums[0];
    __syncthreads();
    for (int j = t; j < columns; j += 128) {
        sum += exp2f(row[j] - largest);
    }
    sums[t] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) {
            sums[t] += sums[t + half];
        }
        __syncthreads();
    }
    for (int j = t; j < columns; j += 128) {
        out[blockIdx.x * columns + j] = exp2f(row[j] - largest) / sums[0];
    }
}

// A thread for each row: the lanes of a warp are a row apart.
extern "C" __global__ void matvec_thread_a_row(float* y, const float* a, const float* x, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) {
            sum += a[row * n + j] * x[j];
        }
        y[row] = sum;
    }
}

// A thread for each row of the transposed matrix: the lanes lie side by side.
extern "C" __global__ void matvec_thread_a_column(float* y, const float* a, const float* x, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < n) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) {
            sum += a[j * n + column] * x[j];
        }
        y[column] = sum;
    }
}

// A warp for each row.
extern "C" __global__ void matvec_warp_a_row(float* y, const float* a, const float* x, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row < n) {
        float sum = 0.0f;
        for (int j = lane; j < n; j += 32) {
            sum += a[row * n + j] * x[j];
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, distance);
        }
        if (lane == 0) {
            y[row] = sum;
        }
    }
}

// -- matrix product, tiles of 64 x 64 by 256 threads, 4 x 4 a thread -----------------------------------------------------------

extern "C" __global__ void gemm_float4(float* c, const float* a, const float* b, int n) {
    __shared__ float rows[16][64 + 4];
    __shared__ float4 columns[16][16];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int top = blockIdx.y * 64, left = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        float4 four = *reinterpret_cast<const float4*>(a + (top + t / 4) * n + k0 + t % 4 * 4);
        rows[t % 4 * 4 + 0][t / 4] = four.x;
        rows[t % 4 * 4 + 1][t / 4] = four.y;
        rows[t % 4 * 4 + 2][t / 4] = four.z;
        rows[t % 4 * 4 + 3][t / 4] = four.w;
        columns[ty][tx] = *reinterpret_cast<const float4*>(b + (k0 + ty) * n + left + tx * 4);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; ++k) {
            float4 x = *reinterpret_cast<const float4*>(&rows[k][ty * 4]), y = columns[k][tx];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += xs[i] * ys[j];
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<float4*>(c + (top + ty * 4 + i) * n + left + tx * 4) =
            make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    }
}
