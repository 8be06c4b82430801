// Step 4: the first addition while loading.
//
// In step 3 half of the threads do nothing but load. Here each thread loads two elements and adds them: half the blocks, and no thread idles
// before the tree begins.
#ifndef TYPE
#define TYPE int
#endif

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

    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s)
            shared[tid] += shared[tid + s];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = shared[0];
}
