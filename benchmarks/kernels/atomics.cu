// Atomic operations in shared and in global memory. Histograms have 64 bins and start as zeros.

#include <cstdint>

constexpr int BINS = 64;

extern "C" __global__ void histogram_global(unsigned* bins, const uint8_t* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&bins[in[i] % BINS], 1u);
    }
}

extern "C" __global__ void histogram_shared(unsigned* bins, const uint8_t* in, int n) {
    __shared__ unsigned mine[BINS];
    if (threadIdx.x < BINS) {
        mine[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[in[i] % BINS], 1u);
    }
    __syncthreads();
    if (threadIdx.x < BINS) {
        atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
    }
}

// A copy of the bins for each of eight groups of threads, side by side.
extern "C" __global__ void histogram_private(unsigned* bins, const uint8_t* in, int n) {
    __shared__ unsigned mine[BINS * 8];
    for (int k = threadIdx.x; k < BINS * 8; k += blockDim.x) {
        mine[k] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[in[i] % BINS * 8 + threadIdx.x % 8], 1u);
    }
    __syncthreads();
    if (threadIdx.x < BINS) {
        unsigned sum = 0;
        for (int k = 0; k < 8; ++k) {
            sum += mine[threadIdx.x * 8 + k];
        }
        atomicAdd(&bins[threadIdx.x], sum);
    }
}

// Sums of values by key: what is added is no constant.
extern "C" __global__ void sums_by_key(unsigned* sums, const uint8_t* keys, const unsigned* values, int n) {
    __shared__ unsigned mine[BINS];
    if (threadIdx.x < BINS) {
        mine[threadIdx.x] = 0;
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&mine[keys[i] % BINS], values[i]);
    }
    __syncthreads();
    if (threadIdx.x < BINS) {
        atomicAdd(&sums[threadIdx.x], mine[threadIdx.x]);
    }
}

extern "C" __global__ void largest_by_key(unsigned* largest, const uint8_t* keys, const unsigned* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicMax(&largest[keys[i] % BINS], values[i]);
    }
}

// Floats in shared memory: a loop of compare and swap.
extern "C" __global__ void float_sums(float* sums, const uint8_t* keys, const float* values, int n) {
    __shared__ float mine[BINS];
    if (threadIdx.x < BINS) {
        mine[threadIdx.x] = 0.0f;
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&mine[keys[i] % BINS], values[i]);
    }
    __syncthreads();
    if (threadIdx.x < BINS) {
        atomicAdd(&sums[threadIdx.x], mine[threadIdx.x]);
    }
}

// What passes goes to the front of the block's part, in no order; `counts` tells how many did.
extern "C" __global__ void compacted(unsigned* out, unsigned* counts, const unsigned* in, unsigned limit) {
    __shared__ unsigned count;
    int t = threadIdx.x, base = blockIdx.x * blockDim.x;
    if (t == 0) {
        count = 0;
    }
    __syncthreads();
    unsigned value = in[base + t];
    if (value < limit) {
        out[base + atomicAdd(&count, 1u)] = value;
    }
    __syncthreads();
    if (t == 0) {
        counts[blockIdx.x] = count;
    }
}

// Each lane adds to a word of its own: no two meet.
extern "C" __global__ void spread_additions(unsigned* sums, const unsigned* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&sums[i % 1024], in[i]);
    }
}

extern "C" __global__ void exchanged(unsigned* out, unsigned* slots, const unsigned* in) {
    __shared__ unsigned tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t] = slots[i];
    __syncthreads();
    out[i] = atomicExch(&tile[t * 5 % 256], in[i]);
    __syncthreads();
    slots[i] = tile[t];
}
