// CUB inside a kernel.
#include <cub/cub.cuh>

__global__ void __launch_bounds__(128) reduce(int* out, const int* in) {
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ typename Reduce::TempStorage storage;
    int sum = Reduce(storage).Sum(in[blockIdx.x * 128 + threadIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(128) scan(int* out, const int* in) {
    using Scan = cub::BlockScan<int, 128>;
    __shared__ typename Scan::TempStorage storage;
    int items[4], total, first = blockIdx.x * 512 + threadIdx.x * 4;
    for (int k = 0; k < 4; ++k) items[k] = in[first + k];
    Scan(storage).ExclusiveSum(items, items, total);
    for (int k = 0; k < 4; ++k) out[first + k] = items[k];
}

__global__ void __launch_bounds__(64) sort(unsigned* keys, int* places, const unsigned* in) {
    using Sort = cub::BlockRadixSort<unsigned, 64, 2, int>;
    __shared__ typename Sort::TempStorage storage;
    unsigned key[2];
    int place[2], first = threadIdx.x * 2;
    for (int k = 0; k < 2; ++k) {
        place[k] = first + k;
        key[k] = in[first + k];
    }
    Sort(storage).Sort(key, place, 0, 8);
    for (int k = 0; k < 2; ++k) {
        keys[first + k] = key[k];
        places[first + k] = place[k];
    }
}

__global__ void maxima(float* out, const float* in) {
    using Reduce = cub::WarpReduce<float>;
    __shared__ typename Reduce::TempStorage storage[4];
    int warp = threadIdx.x / 32;
    float best = Reduce(storage[warp]).Reduce(in[threadIdx.x], cuda::maximum<>());
    if (threadIdx.x % 32 == 0) out[warp] = best;
}
