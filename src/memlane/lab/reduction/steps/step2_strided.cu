// Step 2: interleaved, without divergent branches.
//
// The same additions as in step 1, by other threads: the first threads of the block take them, so whole warps work or do not. But thread k
// accesses element 2 * s * k, and lanes that are a power of two apart meet in one bank of shared memory.
#ifndef TYPE
#define TYPE int
#endif

extern "C" __global__ void reduce(TYPE* out, const TYPE* in, long long n)
{
    extern __shared__ TYPE shared[];
    const unsigned tid = threadIdx.x;
    const long long i = blockIdx.x * (long long)blockDim.x + tid;
    shared[tid] = i < n ? in[i] : 0;
    __syncthreads();

    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        const unsigned index = 2 * s * tid;
        if (index < blockDim.x)
            shared[index] += shared[index + s];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = shared[0];
}
