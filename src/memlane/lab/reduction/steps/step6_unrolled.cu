// Step 6: completely unrolled.
//
// The number of threads is a parameter of the template, so the compiler decides every test but those of `tid`: no loop is left, and no
// instruction that only keeps count. Blocks of 64 to 1024 threads.
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

template <unsigned BLOCK>
__global__ void reduce(TYPE* out, const TYPE* in, long long n)
{
    extern __shared__ TYPE shared[];
    const unsigned tid = threadIdx.x;
    const long long i = blockIdx.x * (2ll * BLOCK) + tid;
    TYPE sum = i < n ? in[i] : 0;
    if (i + BLOCK < n)
        sum += in[i + BLOCK];
    shared[tid] = sum;
    __syncthreads();

    if (BLOCK >= 1024) {
        if (tid < 512)
            shared[tid] += shared[tid + 512];
        __syncthreads();
    }
    if (BLOCK >= 512) {
        if (tid < 256)
            shared[tid] += shared[tid + 256];
        __syncthreads();
    }
    if (BLOCK >= 256) {
        if (tid < 128)
            shared[tid] += shared[tid + 128];
        __syncthreads();
    }
    if (BLOCK >= 128) {
        if (tid < 64)
            shared[tid] += shared[tid + 64];
        __syncthreads();
    }

    if (tid < 32) {
        sum = of_last_warp(shared, tid);
        if (tid == 0)
            out[blockIdx.x] = sum;
    }
}
