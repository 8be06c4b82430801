// out[k] = in[indices[k]] for rows of ROW_UNITS units of ELEMENT bytes. A thread moves TURNS units, whose loads are in flight together.
// The first position whose index is out of range goes to `wrong`, which held the number of places before; such places are not written.

#include "elements.cuh"

#if INDEX == 4
typedef int Position;
#else
typedef long long Position;
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
gather(Element* out, const Element* in, const Position* indices, unsigned long long* wrong, Index places, Index first, Index rows) {
    const Index begin = (Index)blockIdx.x * (THREADS * TURNS) + threadIdx.x;
    const Index units = places * ROW_UNITS;
    Position index[TURNS];
    Element moved[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const Index u = begin + t * THREADS;
        index[t] = u < units ? indices[u / ROW_UNITS] : 0;
    }
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const Index u = begin + t * THREADS;
        const bool inside = (unsigned long long)(Index)index[t] < (unsigned long long)rows;
        if (u < units && inside) moved[t] = LOAD(in + (Index)index[t] * ROW_UNITS + u % ROW_UNITS);
        if (u < units && !inside) atomicMin(wrong, (unsigned long long)(first + u / ROW_UNITS));
    }
#pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const Index u = begin + t * THREADS;
        if (u < units && (unsigned long long)(Index)index[t] < (unsigned long long)rows) STORE(out + u, moved[t]);
    }
}
