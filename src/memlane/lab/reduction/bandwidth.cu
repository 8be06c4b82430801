// The floors: an array to another, an array that is only read, and nothing at all. 16 bytes a load, UNROLL of them in flight.
struct alignas(16) Words {
    unsigned x, y, z, w;
};

__device__ __forceinline__ Words load(const Words* at)
{
    Words got;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w) : "l"(at));
    return got;
}

extern "C" __global__ void __launch_bounds__(512) copy(Words* out, const Words* in, long long words)
{
    const long long tile = 512 * UNROLL;
    for (long long start = blockIdx.x * tile + threadIdx.x; start < words; start += gridDim.x * tile) {
        Words got[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k)
            if (start + k * 512 < words)
                got[k] = load(in + start + k * 512);
#pragma unroll
        for (int k = 0; k < UNROLL; ++k)
            if (start + k * 512 < words)
                out[start + k * 512] = got[k];
    }
}

// Writes only if the array says so, which it does not: the loads must happen, and nothing else does.
extern "C" __global__ void __launch_bounds__(512) read(unsigned* out, const Words* in, long long words)
{
    const long long tile = 512 * UNROLL;
    unsigned seen = 0;
    for (long long start = blockIdx.x * tile + threadIdx.x; start < words; start += gridDim.x * tile) {
        Words got[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k)
            if (start + k * 512 < words)
                got[k] = load(in + start + k * 512);
#pragma unroll
        for (int k = 0; k < UNROLL; ++k)
            if (start + k * 512 < words)
                seen |= got[k].x | got[k].y | got[k].z | got[k].w;
    }
    if (seen == 0x9e3779b9u)
        *out = seen;
}

extern "C" __global__ void empty() {}
