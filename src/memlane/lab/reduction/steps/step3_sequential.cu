// Step 3: sequential addressing.
//
// The second half is added to the first, then the second quarter to the first: lane k accesses element k, and no two lanes meet in a bank.
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

    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s)
            shared[tid] += shared[tid + s];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = shared[0];
}
