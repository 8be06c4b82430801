// Structures whose fields have different widths, to arrays of their fields (`split_fields`) and back (`join_fields`). A structure has WORDS
// words of ELEMENT bytes. A field that begins with word `start` and has `width` words lies, on the side of the arrays, at
// start * pitch + structure * width. EACH_FIELD(X), in front of this text, calls X(start, width, region, period) for each field.

#include "elements.cuh"

#ifdef VECTORS

union Units {
    uint4 units[WORDS];
    Element elements[WORDS * PER_UNIT];
};

// A thread has PER_UNIT structures, which are `width` units of each field; a free unit behind each run of `period`, the least common
// multiple of what lies between two threads and 8, keeps eight neighbours in eight groups of banks.
__device__ inline unsigned padded(unsigned u, unsigned period) { return u + u / period; }

// Unit k of a field of the structures of this thread.
template <unsigned start, unsigned width>
__device__ inline uint4 taken(const Units& from, unsigned k) {
    union { uint4 unit; Element elements[PER_UNIT]; } one;
#pragma unroll
    for (unsigned e = 0; e < PER_UNIT; ++e) {
        const unsigned word = k * PER_UNIT + e;
        one.elements[e] = from.elements[word / width * WORDS + start + word % width];
    }
    return one.unit;
}

template <unsigned start, unsigned width>
__device__ inline void given(Units& to, unsigned k, uint4 value) {
    union { uint4 unit; Element elements[PER_UNIT]; } one;
    one.unit = value;
#pragma unroll
    for (unsigned e = 0; e < PER_UNIT; ++e) {
        const unsigned word = k * PER_UNIT + e;
        to.elements[word / width * WORDS + start + word % width] = one.elements[e];
    }
}

// The number of structures, the pitch and `first` are multiples of PER_UNIT. A field of one word is stored as it is; wider ones go
// through shared memory once more, so that neighbouring lanes store neighbouring units.
extern "C" __global__ void __launch_bounds__(THREADS)
split_fields(Element* out, const Element* in, Index first, Index count, Index pitch) {
    __shared__ uint4 staged[SHARED_UNITS];
    const Index begin = (Index)blockIdx.x * (THREADS * PER_UNIT), left = (count - begin) / PER_UNIT;
    const uint4* from = (const uint4*)(in + begin * WORDS);
    const bool mine = threadIdx.x < left;
#pragma unroll
    for (unsigned k = 0; k < WORDS; ++k) {
        const unsigned u = k * THREADS + threadIdx.x;
        if (u < left * WORDS) staged[padded(u, PERIOD)] = load_plain(from + u);
    }
    __syncthreads();
    Units loaded;
    if (mine)
#pragma unroll
        for (unsigned k = 0; k < WORDS; ++k) loaded.units[k] = staged[padded(threadIdx.x * WORDS + k, PERIOD)];
    __syncthreads();
    uint4* to;
#define PUT(start, width, region, period)                                                                                \
    to = (uint4*)(out + start * pitch + (first + begin) * width);                                                       \
    if (mine)                                                                                                            \
        _Pragma("unroll") for (unsigned k = 0; k < width; ++k) {                                                       \
            const uint4 unit = taken<start, width>(loaded, k);                                                           \
            if (width == 1) store_plain(to + threadIdx.x, unit);                                                         \
            else staged[region + padded(threadIdx.x * width + k, period)] = unit;                                        \
        }
    EACH_FIELD(PUT)
    __syncthreads();
#define COPY(start, width, region, period)                                                                               \
    to = (uint4*)(out + start * pitch + (first + begin) * width);                                                       \
    if (width > 1)                                                                                                       \
        _Pragma("unroll") for (unsigned k = 0; k < width; ++k) {                                                       \
            const unsigned u = k * THREADS + threadIdx.x;                                                                \
            if (u < left * width) store_plain(to + u, staged[region + padded(u, period)]);                               \
        }
    EACH_FIELD(COPY)
}

extern "C" __global__ void __launch_bounds__(THREADS)
join_fields(Element* out, const Element* in, Index first, Index count, Index pitch) {
    __shared__ uint4 staged[SHARED_UNITS];
    const Index begin = (Index)blockIdx.x * (THREADS * PER_UNIT), left = (count - begin) / PER_UNIT;
    const bool mine = threadIdx.x < left;
    const uint4* from;
#define FETCH(start, width, region, period)                                                                              \
    from = (const uint4*)(in + start * pitch + (first + begin) * width);                                                \
    if (width > 1)                                                                                                       \
        _Pragma("unroll") for (unsigned k = 0; k < width; ++k) {                                                       \
            const unsigned u = k * THREADS + threadIdx.x;                                                                \
            if (u < left * width) staged[region + padded(u, period)] = load_plain(from + u);                             \
        }
    EACH_FIELD(FETCH)
    __syncthreads();
    Units joined;
#define GET(start, width, region, period)                                                                                \
    from = (const uint4*)(in + start * pitch + (first + begin) * width);                                                \
    if (mine)                                                                                                            \
        _Pragma("unroll") for (unsigned k = 0; k < width; ++k)                                                         \
            given<start, width>(joined, k,                                                                               \
                                width == 1 ? load_plain(from + threadIdx.x)                                              \
                                           : staged[region + padded(threadIdx.x * width + k, period)]);
    EACH_FIELD(GET)
    __syncthreads();
    if (mine)
#pragma unroll
        for (unsigned k = 0; k < WORDS; ++k) staged[padded(threadIdx.x * WORDS + k, PERIOD)] = joined.units[k];
    __syncthreads();
    uint4* to = (uint4*)(out + begin * WORDS);
#pragma unroll
    for (unsigned k = 0; k < WORDS; ++k) {
        const unsigned u = k * THREADS + threadIdx.x;
        if (u < left * WORDS) store_plain(to + u, staged[padded(u, PERIOD)]);
    }
}

#else

// Any number of structures, any pitch: one word a lane.
extern "C" __global__ void __launch_bounds__(THREADS)
split_fields_any(Element* out, const Element* in, Index first, Index count, Index pitch) {
    __shared__ Element staged[THREADS * WORDS];
    const Index begin = (Index)blockIdx.x * THREADS, left = count - begin;
    for (unsigned u = threadIdx.x; u < THREADS * WORDS; u += THREADS)
        if (u < left * WORDS) staged[u] = in[begin * WORDS + u];
    __syncthreads();
#define PUT(start, width, region, period)                                                                                \
    for (unsigned u = threadIdx.x; u < THREADS * width; u += THREADS)                                                    \
        if (u < left * width) out[start * pitch + (first + begin) * width + u] = staged[u / width * WORDS + start + u % width];
    EACH_FIELD(PUT)
}

extern "C" __global__ void __launch_bounds__(THREADS)
join_fields_any(Element* out, const Element* in, Index first, Index count, Index pitch) {
    __shared__ Element staged[THREADS * WORDS];
    const Index begin = (Index)blockIdx.x * THREADS, left = count - begin;
#define GET(start, width, region, period)                                                                                \
    for (unsigned u = threadIdx.x; u < THREADS * width; u += THREADS)                                                    \
        if (u < left * width) staged[u / width * WORDS + start + u % width] = in[start * pitch + (first + begin) * width + u];
    EACH_FIELD(GET)
    __syncthreads();
    for (unsigned u = threadIdx.x; u < THREADS * WORDS; u += THREADS)
        if (u < left * WORDS) out[begin * WORDS + u] = staged[u];
}

#endif
