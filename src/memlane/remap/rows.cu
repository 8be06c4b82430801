// Copy between two strided arrays of up to six axes, one element of ELEMENT bytes a thread; both sides go along the last axis.

#include "elements.cuh"

extern "C" __global__ void __launch_bounds__(256)
copy_strided(Element* out, const Element* in, Index count, Index n1, Index n2, Index n3, Index n4, Index n5, Index i0, Index i1, Index i2,
             Index i3, Index i4, Index i5, Index o0, Index o1, Index o2, Index o3, Index o4, Index o5) {
    Index flat = (Index)blockIdx.x * 256 + threadIdx.x;
    if (flat >= count) return;
    const Index extents[5] = {n5, n4, n3, n2, n1}, from[6] = {i5, i4, i3, i2, i1, i0}, to[6] = {o5, o4, o3, o2, o1, o0};
    Index source = 0, destination = 0;
#pragma unroll
    for (int axis = 0; axis < 5; ++axis) {
        const Index outer = flat / extents[axis], one = flat - outer * extents[axis];
        source += one * from[axis];
        destination += one * to[axis];
        flat = outer;
    }
    out[destination + flat * to[5]] = in[source + flat * from[5]];
}
