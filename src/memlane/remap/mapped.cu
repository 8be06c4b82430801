// Any layout, by its own function `place`, which stands in front of this text: `scatter` stores elements there, `collect` reads them there.
// COORDINATES turns the row-major index `flat` into the arguments of `place`.

#include "elements.cuh"

#ifdef DIAGONAL

// A warp reads rows of a tile that leans by one column a row, so that its columns are diagonals, which are contiguous on the other side.
template <bool scatter>
__device__ inline void lean(Element* out, const Element* in, Index first, Index rows, Index columns) {
    __shared__ Element tile[32][33];
    const Index row0 = first + (Index)blockIdx.y * 32, diagonal0 = row0 + (Index)blockIdx.x * 32;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Index end = first + rows;
#pragma unroll
    for (unsigned k = warp; k < 32; k += 8) {
        const Index row = scatter ? row0 + k : row0 + lane, diagonal = scatter ? diagonal0 + lane : diagonal0 + k, column = diagonal - row;
        if (row < end && column >= 0 && column < columns) {
            if (scatter) tile[k][lane] = in[(row - first) * columns + column];
            else tile[k][lane] = in[place(row, column)];
        }
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = warp; k < 32; k += 8) {
        const Index row = scatter ? row0 + lane : row0 + k, diagonal = scatter ? diagonal0 + k : diagonal0 + lane, column = diagonal - row;
        if (row < end && column >= 0 && column < columns) {
            if (scatter) out[place(row, column)] = tile[lane][k];
            else out[(row - first) * columns + column] = tile[lane][k];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) scatter(Element* out, const Element* in, Index first, Index rows, Index columns) {
    lean<true>(out, in, first, rows, columns);
}

extern "C" __global__ void __launch_bounds__(256) collect(Element* out, const Element* in, Index first, Index rows, Index columns) {
    lean<false>(out, in, first, rows, columns);
}

#else

extern "C" __global__ void __launch_bounds__(256) scatter(Element* out, const Element* in, Index first, Index count) {
    const Index here = (Index)blockIdx.x * 256 + threadIdx.x, flat = here + first;
    if (here < count) out[place(COORDINATES)] = in[here];
}

extern "C" __global__ void __launch_bounds__(256) collect(Element* out, const Element* in, Index first, Index count) {
    const Index here = (Index)blockIdx.x * 256 + threadIdx.x, flat = here + first;
    if (here < count) out[here] = in[place(COORDINATES)];
}

#endif
