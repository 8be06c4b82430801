// Streams of accesses of one kind, as many as the memory takes: `requests` of each warp, at addresses that the host chooses by a few numbers.
//
// Request r of a launch, in which those of all warps alternate, goes to the words
//
//     (r mod 2^period) * step + (r / 2^period) * footprint + (lane / group) * apart + lane mod group,     all of it modulo mask + 1
//
// so `group` lanes stand side by side and the groups `apart` words from each other. `cycles` gets what each block took from its first access
// to its last one's completion. `sink` is never written, as no sum is `NEVER`.

#define NEVER 0x7e57ab1eu
#define UNROLL 8

struct Read {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned, unsigned) { return __ldcg(data + at); }
};

struct ReadWide {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned, unsigned) {
        uint4 four = __ldcg(reinterpret_cast<uint4*>(data + at));
        return four.x ^ four.y ^ four.z ^ four.w;
    }
};

struct ReadNear {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned, unsigned) { return __ldca(data + at); }
};

struct Write {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned value, unsigned) {
        data[at] = value;
        return 0;
    }
};

struct WriteWide {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned value, unsigned) {
        *reinterpret_cast<uint4*>(data + at) = make_uint4(value, at, value, at);
        return 0;
    }
};

struct Add {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned, unsigned) {
        atomicAdd(data + at, 1u);
        return 0;
    }
};

// Reads from below the limit of the mask and writes as far above it.
struct Copy {
    static __device__ __forceinline__ unsigned access(unsigned* data, unsigned at, unsigned, unsigned limit) {
        data[limit + at] = __ldcg(data + at);
        return 0;
    }
};

template <typename Access>
__global__ void stream(unsigned* data, long long* cycles, unsigned* sink, unsigned mask, unsigned period, unsigned step, unsigned footprint,
                       unsigned group, unsigned apart, int requests) {
    unsigned lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    unsigned mine = lane / group * apart + lane % group, sum = 0;
    __syncthreads();
    long long begin = clock64();
    for (int i = 0; i < requests; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            unsigned r = warp + (i + k) * warps;
            unsigned at = (r & ((1u << period) - 1)) * step + (r >> period) * footprint + mine;
            sum ^= Access::access(data, at & mask, r, mask + 1);
        }
    }
    if (sum == NEVER) *sink = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}

// Each block reads again and again what it alone uses, `words` of them, so that L1 has it all.
template <typename Access>
__global__ void resident(unsigned* data, long long* cycles, unsigned* sink, unsigned words, unsigned group, unsigned apart, int requests) {
    unsigned lane = threadIdx.x % 32, mine = lane / group * apart + lane % group, sum = 0;
    unsigned* own = data + blockIdx.x * words;
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x) sum ^= __ldca(own + i);
    __syncthreads();
    long long begin = clock64();
    for (int i = 0; i < requests; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) sum ^= Access::access(own, (mine + 32 * (i + k)) & (words - 1), 0, 0);
    }
    if (sum == NEVER) *sink = sum;
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}

// Loads from shared memory whose lanes are `apart` words from each other.
__global__ void banks(long long* cycles, unsigned* sink, unsigned apart, int requests) {
    __shared__ volatile unsigned words[4096];
    unsigned mine = threadIdx.x % 32 * apart, sum = 0;
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) words[i] = i;
    __syncthreads();
    long long begin = clock64();
    for (int i = 0; i < requests; i += UNROLL) {
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) sum += words[(mine + 32 * k) & 4095];
    }
    if (sum == NEVER) *sink = sum;
    __syncthreads();
    if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
}

template __global__ void stream<Read>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, int);
template __global__ void stream<Write>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, int);
template __global__ void stream<ReadWide>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, int);
template __global__ void stream<WriteWide>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, int);
template __global__ void stream<Add>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, int);
template __global__ void stream<Copy>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, int);
template __global__ void resident<ReadNear>(unsigned*, long long*, unsigned*, unsigned, unsigned, unsigned, int);
