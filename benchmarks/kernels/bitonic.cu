// Sorts N keys in each block by a bitonic network. The compiler unrolls all of it, which makes a long kernel without long loops.

template <typename T>
__device__ void order(T &low, T &high, bool rising) {
    if ((low > high) == rising) {
        T other = low;
        low = high;
        high = other;
    }
}

template <typename T, int N>
__global__ void bitonic(T *keys) {
    __shared__ T own[N];
    T *mine = keys + blockIdx.x * N;
    own[threadIdx.x] = mine[threadIdx.x];
    own[threadIdx.x + N / 2] = mine[threadIdx.x + N / 2];
#pragma unroll
    for (int run = 2; run <= N; run *= 2) {
#pragma unroll
        for (int step = run / 2; step > 0; step /= 2) {
            __syncthreads();
            int first = 2 * step * (threadIdx.x / step) + threadIdx.x % step;
            if (first & run) {
                order(own[first], own[first + step], false);
            } else {
                order(own[first], own[first + step], true);
            }
        }
    }
    __syncthreads();
    mine[threadIdx.x] = own[threadIdx.x];
    mine[threadIdx.x + N / 2] = own[threadIdx.x + N / 2];
}

template __global__ void bitonic<float, 512>(float *);
template __global__ void bitonic<float, 32>(float *);
