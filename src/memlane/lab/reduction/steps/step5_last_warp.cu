// Step 5: the last warp unrolled.
//
// When 32 threads are left, they are one warp: no loop, no test, no barrier of the block. The lanes of a warp do not run in step by themselves
// since Volta, so between what they read and what they write stands __syncwarp, which costs next to nothing. Blocks of 64 threads or more.
#ifndef TYPE
#define TYPE int
#endif

__device__ TYPE of_last_warp(TYPE* shared, unsigned tid)
{
    TYPE sum = shared[tid] + shared[tid + 32];
#pragma unroll
    for (unsigned s = 16; s > 0; s /= 2) {
        __syncwarp();
        shared[tid] = sum;
        __syncwarp();
        sum += shared[tid + s];
    }
    return sum;
}

extern "C" __global__ void reduce(TYPE* out, const TYPE* in, long long n)
{
    extern __shared__ TYPE shared[];
    const unsigned tid = threadIdx.x;
    const long long i = blockIdx.x * (2ll * blockDim.x) + tid;
    TYPE sum = i < n ? in[i] : 0;
    if (i + blockDim.x < n)
        sum += in[i + blockDim.x];
    shared[tid] = sum;
    __syncthreads();

    for (unsigned s = blockDim.x / 2; s > 32; s /= 2) {
        if (tid < s)
            shared[tid] += shared[tid + s];
        __syncthreads();
    }

    if (tid < 32) {
        sum = of_last_warp(shared, tid);
        if (tid == 0)
            out[blockIdx.x] = sum;
    }
}
