// Arrays of structures to structures of arrays (`split`) and back (`join`). A structure has FIELDS elements of ELEMENT bytes; element f of
// structure s lies at s * FIELDS + f on one side and at f * pitch + s on the other.

#include "elements.cuh"
#define UNITS (THREADS * FIELDS)

// Where unit u of a block's structures lies in shared memory. A thread has FIELDS units in a row; a free unit behind each run of PERIOD
// (the least common multiple of FIELDS and 8) keeps eight neighbours in eight groups of banks.
__device__ inline unsigned shared_place(unsigned u) { return u + u / PERIOD; }
#define SHARED_UNITS (UNITS + UNITS / PERIOD + 1)

union Units {
    uint4 units[FIELDS];
    Element elements[FIELDS * PER_UNIT];
};

#ifdef VECTORS

// The number of structures and the pitch are multiples of PER_UNIT; a thread moves PER_UNIT structures.
extern "C" __global__ void __launch_bounds__(THREADS) split_structures(Element* out, const Element* in, Index count, Index pitch) {
    __shared__ uint4 staged[SHARED_UNITS];
    const Index first = (Index)blockIdx.x * (THREADS * PER_UNIT), all = count * FIELDS / PER_UNIT;
    const uint4* from = (const uint4*)in + first / PER_UNIT * FIELDS;
    const Index left = all - first / PER_UNIT * FIELDS;
#pragma unroll
    for (unsigned k = 0; k < FIELDS; ++k) {
        const unsigned u = k * THREADS + threadIdx.x;
        if (u < left) staged[shared_place(u)] = LOAD(from + u);
    }
    __syncthreads();
    const Index mine = first + (Index)threadIdx.x * PER_UNIT;
    if (mine >= count) return;
    Units loaded;
#pragma unroll
    for (unsigned k = 0; k < FIELDS; ++k) loaded.units[k] = staged[shared_place(threadIdx.x * FIELDS + k)];
#pragma unroll
    for (unsigned field = 0; field < FIELDS; ++field) {
        union { uint4 unit; Element elements[PER_UNIT]; } one;
#pragma unroll
        for (unsigned k = 0; k < PER_UNIT; ++k) one.elements[k] = loaded.elements[k * FIELDS + field];
        STORE((uint4*)(out + field * pitch + mine), one.unit);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) join_structures(Element* out, const Element* in, Index count, Index pitch) {
    __shared__ uint4 staged[SHARED_UNITS];
    const Index first = (Index)blockIdx.x * (THREADS * PER_UNIT), mine = first + (Index)threadIdx.x * PER_UNIT;
    if (mine < count) {
        Units joined;
#pragma unroll
        for (unsigned field = 0; field < FIELDS; ++field) {
            union { uint4 unit; Element elements[PER_UNIT]; } one;
            one.unit = LOAD((const uint4*)(in + field * pitch + mine));
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; ++k) joined.elements[k * FIELDS + field] = one.elements[k];
        }
#pragma unroll
        for (unsigned k = 0; k < FIELDS; ++k) staged[shared_place(threadIdx.x * FIELDS + k)] = joined.units[k];
    }
    __syncthreads();
    uint4* to = (uint4*)out + first / PER_UNIT * FIELDS;
    const Index left = count * FIELDS / PER_UNIT - first / PER_UNIT * FIELDS;
#pragma unroll
    for (unsigned k = 0; k < FIELDS; ++k) {
        const unsigned u = k * THREADS + threadIdx.x;
        if (u < left) STORE(to + u, staged[shared_place(u)]);
    }
}

#else

// Any number of structures, any pitch: one element a lane.
extern "C" __global__ void __launch_bounds__(THREADS) split_structures_any(Element* out, const Element* in, Index count, Index pitch) {
    __shared__ Element staged[THREADS * FIELDS];
    const Index first = (Index)blockIdx.x * THREADS;
    const Index left = (count - first) * FIELDS;
    for (unsigned u = threadIdx.x; u < THREADS * FIELDS; u += THREADS)
        if (u < left) staged[u] = in[first * FIELDS + u];
    __syncthreads();
    if (first + threadIdx.x >= count) return;
    for (unsigned field = 0; field < FIELDS; ++field) out[field * pitch + first + threadIdx.x] = staged[threadIdx.x * FIELDS + field];
}

extern "C" __global__ void __launch_bounds__(THREADS) join_structures_any(Element* out, const Element* in, Index count, Index pitch) {
    __shared__ Element staged[THREADS * FIELDS];
    const Index first = (Index)blockIdx.x * THREADS;
    const Index left = (count - first) * FIELDS;
    if (first + threadIdx.x < count)
        for (unsigned field = 0; field < FIELDS; ++field) staged[threadIdx.x * FIELDS + field] = in[field * pitch + first + threadIdx.x];
    __syncthreads();
    for (unsigned u = threadIdx.x; u < THREADS * FIELDS; u += THREADS)
        if (u < left) out[first * FIELDS + u] = staged[u];
}

#endif
