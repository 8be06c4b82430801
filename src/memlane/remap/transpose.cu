// Transposition of matrices, many at once: element (r, c) of a matrix goes from in[r * in_pitch + c] to out[c * out_pitch + r].
// ELEMENT: bytes of an element. ROW_UNITS x COLUMN_UNITS threads move a tile; a unit is 16 bytes.

#include "elements.cuh"

struct Shape {
    Index rows, columns, in_pitch, out_pitch;
    Index inner, in_inner, out_inner, in_outer, out_outer;   // batches: how many inner ones, and the strides of both
};


// Which tile a block moves. Blocks that run together share a square of tiles, so that both sides touch long pieces of memory.
__device__ inline void place_block(unsigned tiles_down, unsigned tiles_across, unsigned& down, unsigned& across, Index& batch) {
    const unsigned tiles = tiles_down * tiles_across;
    batch = blockIdx.x / tiles;
    const unsigned flat = blockIdx.x - (unsigned)batch * tiles;
#if GROUP > 1
    unsigned group = flat / (GROUP * tiles_across), first = group * GROUP;
    unsigned height = min(GROUP, tiles_down - first), within = flat - first * tiles_across;
    down = first + within % height;
    across = within / height;
#elif GROUP == 0
    down = flat % tiles_down;
    across = flat / tiles_down;
#else
    down = flat / tiles_across;
    across = flat % tiles_across;
#endif
}

__device__ inline void move_to_batch(Element*& out, const Element*& in, const Shape& s, Index batch) {
    Index outer = batch / s.inner, inner = batch - outer * s.inner;
    in += outer * s.in_outer + inner * s.in_inner;
    out += outer * s.out_outer + inner * s.out_inner;
}

#ifdef ROW_UNITS

__device__ inline unsigned word_of(const uint4& v, int w) { return w == 0 ? v.x : w == 1 ? v.y : w == 2 ? v.z : v.w; }

// Transpose PER_UNIT rows of PER_UNIT elements in registers.
__device__ inline void turn(const uint4 (&rows)[PER_UNIT], uint4 (&columns)[PER_UNIT]) {
#if ELEMENT == 16
    columns[0] = rows[0];
#elif ELEMENT == 8
    columns[0] = make_uint4(rows[0].x, rows[0].y, rows[1].x, rows[1].y);
    columns[1] = make_uint4(rows[0].z, rows[0].w, rows[1].z, rows[1].w);
#elif ELEMENT == 4
#pragma unroll
    for (int k = 0; k < 4; ++k)
        columns[k] = make_uint4(word_of(rows[0], k), word_of(rows[1], k), word_of(rows[2], k), word_of(rows[3], k));
#elif ELEMENT == 2
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        unsigned words[4], chosen = k % 2 ? 0x7632 : 0x5410;
#pragma unroll
        for (int w = 0; w < 4; ++w) words[w] = __byte_perm(word_of(rows[2 * w], k / 2), word_of(rows[2 * w + 1], k / 2), chosen);
        columns[k] = make_uint4(words[0], words[1], words[2], words[3]);
    }
#else
#pragma unroll
    for (int block = 0; block < 4; ++block) {
        unsigned turned[4][4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            unsigned a = word_of(rows[4 * w], block), b = word_of(rows[4 * w + 1], block);
            unsigned c = word_of(rows[4 * w + 2], block), d = word_of(rows[4 * w + 3], block);
            unsigned low_ab = __byte_perm(a, b, 0x5140), low_cd = __byte_perm(c, d, 0x5140);
            unsigned high_ab = __byte_perm(a, b, 0x7362), high_cd = __byte_perm(c, d, 0x7362);
            turned[0][w] = __byte_perm(low_ab, low_cd, 0x5410);
            turned[1][w] = __byte_perm(low_ab, low_cd, 0x7632);
            turned[2][w] = __byte_perm(high_ab, high_cd, 0x5410);
            turned[3][w] = __byte_perm(high_ab, high_cd, 0x7632);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) columns[4 * block + k] = make_uint4(turned[k][0], turned[k][1], turned[k][2], turned[k][3]);
    }
#endif
}

// Rows, columns, pitches and strides are multiples of PER_UNIT. The exclusive or keeps eight neighbours in eight groups of banks, both
// when a row of units is written and when one is read.
extern "C" __global__ void __launch_bounds__(ROW_UNITS * COLUMN_UNITS)
transpose(Element* out, const Element* in, Index rows, Index columns, Index in_pitch, Index out_pitch, Index inner, Index in_inner,
          Index out_inner, Index in_outer, Index out_outer) {
    const Shape s = {rows, columns, in_pitch, out_pitch, inner, in_inner, out_inner, in_outer, out_outer};
    extern __shared__ uint4 tile[];
    const unsigned tile_rows = ROW_UNITS * PER_UNIT, tile_columns = COLUMN_UNITS * PER_UNIT;
    unsigned down, across;
    Index batch;
    place_block((unsigned)((rows + tile_rows - 1) / tile_rows), (unsigned)((columns + tile_columns - 1) / tile_columns), down, across, batch);
    move_to_batch(out, in, s, batch);
    const Index row0 = (Index)down * tile_rows, column0 = (Index)across * tile_columns;
    {
        const unsigned column_unit = threadIdx.x % COLUMN_UNITS, row_unit = threadIdx.x / COLUMN_UNITS;
        const Index row = row0 + row_unit * PER_UNIT, column = column0 + column_unit * PER_UNIT;
        if (row < rows && column < columns) {
            uint4 loaded[PER_UNIT], turned[PER_UNIT];
            const uint4* from = (const uint4*)(in + row * in_pitch + column);
            const Index step = in_pitch / PER_UNIT;
#pragma unroll
            for (int k = 0; k < PER_UNIT; ++k) loaded[k] = LOAD(from + k * step);
            turn(loaded, turned);
#pragma unroll
            for (int k = 0; k < PER_UNIT; ++k)
                tile[(column_unit * PER_UNIT + k) * ROW_UNITS + (row_unit ^ (column_unit & 7))] = turned[k];
        }
    }
    __syncthreads();
    const unsigned row_unit = threadIdx.x % ROW_UNITS, first = threadIdx.x / ROW_UNITS;
    const Index row = row0 + row_unit * PER_UNIT;
    if (row >= rows) return;
    uint4* to = (uint4*)(out + row);
    const Index step = out_pitch / PER_UNIT;
#pragma unroll
    for (int k = 0; k < PER_UNIT; ++k) {
        const unsigned column = first + k * COLUMN_UNITS;
        if (column0 + column < columns)
            STORE(to + (column0 + column) * step, tile[column * ROW_UNITS + (row_unit ^ (column / PER_UNIT & 7))]);
    }
}

#else

// Any rows, columns, pitches and addresses: one element a lane, rows of 33 in shared memory. In place, where the matrix is square, a block
// exchanges two tiles that mirror each other.
extern "C" __global__ void __launch_bounds__(256)
transpose_any(Element* out, const Element* in, Index rows, Index columns, Index in_pitch, Index out_pitch, Index inner, Index in_inner,
              Index out_inner, Index in_outer, Index out_outer) {
    const Shape s = {rows, columns, in_pitch, out_pitch, inner, in_inner, out_inner, in_outer, out_outer};
    __shared__ Element tile[32][32 + (ELEMENT < 16)];
    unsigned down, across;
    Index batch;
    place_block((unsigned)((rows + 31) / 32), (unsigned)((columns + 31) / 32), down, across, batch);
    move_to_batch(out, in, s, batch);
    const Index row0 = (Index)down * 32, column0 = (Index)across * 32;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (unsigned k = warp; k < 32; k += 8)
        if (row0 + k < rows && column0 + lane < columns) tile[k][lane] = in[(row0 + k) * in_pitch + column0 + lane];
    __syncthreads();
#pragma unroll
    for (unsigned k = warp; k < 32; k += 8)
        if (column0 + k < columns && row0 + lane < rows) out[(column0 + k) * out_pitch + row0 + lane] = tile[lane][k];
}

extern "C" __global__ void __launch_bounds__(256) transpose_in_place(Element* data, Index side, Index pitch) {
    __shared__ Element upper[32][33], lower[32][33];
    if (blockIdx.x < blockIdx.y) return;
    const Index row0 = (Index)blockIdx.y * 32, column0 = (Index)blockIdx.x * 32;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (unsigned k = warp; k < 32; k += 8) {
        if (row0 + k < side && column0 + lane < side) upper[k][lane] = data[(row0 + k) * pitch + column0 + lane];
        if (column0 + k < side && row0 + lane < side) lower[k][lane] = data[(column0 + k) * pitch + row0 + lane];
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = warp; k < 32; k += 8) {
        if (column0 + k < side && row0 + lane < side) data[(column0 + k) * pitch + row0 + lane] = upper[lane][k];
        if (row0 + k < side && column0 + lane < side) data[(row0 + k) * pitch + column0 + lane] = lower[lane][k];
    }
}

#endif
