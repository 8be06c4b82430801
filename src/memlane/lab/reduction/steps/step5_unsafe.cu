// Step 5 as it was taught until Volta: wrong since. Kept to be caught, not to be used.
//
// Nothing makes the lanes of the warp wait for each other; that worked only as long as the hardware ran them in step. (Declaring the array
// `volatile`, as was taught next, makes every addition go to memory, but still no lane waits.) `memlane check` names the race.
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

    for (unsigned s = blockDim.x / 2; s > 32; s /= 2) {
        if (tid < s)
            shared[tid] += shared[tid + s];
        __syncthreads();
    }

    if (tid < 32) {
        shared[tid] += shared[tid + 32];
        shared[tid] += shared[tid + 16];
        shared[tid] += shared[tid + 8];
        shared[tid] += shared[tid + 4];
        shared[tid] += shared[tid + 2];
        shared[tid] += shared[tid + 1];
    }

    if (tid == 0)
        out[blockIdx.x] = shared[0];
}
