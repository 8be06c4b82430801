// Step 7: many elements a thread.
//
// As many blocks as the chip holds at once; each thread adds elements a whole grid apart until there are none, in a register. The tree, its
// barriers and the writing of sums happen once for each block that is resident, not once for each 2 * BLOCK elements.
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
    const long long stride = 2ll * BLOCK * gridDim.x;
    TYPE sum = 0;
    for (long long i = blockIdx.x * (2ll * BLOCK) + tid; i < n; i += stride) {
        sum += in[i];
        if (i + BLOCK < n)
            sum += in[i + BLOCK];
    }
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
