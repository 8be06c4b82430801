// Step 1: interleaved, with divergent branches.
//
// A block sums its elements in shared memory as a tree: first neighbours, then what lies two apart, then four. Which threads work is told by
// `tid % (2 * s)`, so from the first turn on every warp has lanes that work and lanes that wait, down to one lane of each warp.
// `out` gets one sum of each block; the sums are summed by the same kernel, until one is left.
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
        if (tid % (2 * s) == 0)
            shared[tid] += shared[tid + s];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = shared[0];
}
