"""Kernels with arrays in shared memory, each with what NumPy says must come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memlane.launch import Kernel
from memlane.layout import (
    BitLinear,
    ColumnMajor,
    DiagonalStrip,
    Gather,
    Layout,
    Morton,
    Padded,
    RandomPermuteShift,
    RandomShift,
    Skewed,
    Swizzle,
    XorSwizzle,
)

SOURCE = """
extern "C" __global__ void turn(float* out, const float* in)           // the textbook transpose of one tile
{
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void pipeline(int* out, const int* in)           // two tiles in turn, by columns and by rows
{
    __shared__ int tile[2][32][32];
    int t = threadIdx.x;
    int sum = 0;
    #pragma unroll 1
    for (int stage = 0; stage < 4; ++stage) {
        #pragma unroll 1
        for (int row = 0; row < 32; ++row) tile[stage & 1][row][t] = in[(stage * 32 + row) * 32 + t];
        __syncwarp();
        #pragma unroll
        for (int step = 0; step < 4; ++step) sum = sum * 3 + tile[stage & 1][t][step * 4] + tile[stage & 1][step * 8][t];
        if (stage) sum += tile[1][0][0];
        __syncwarp();
    }
    out[t] = sum;
}

extern "C" __global__ void wide(float4* out, const float4* in)         // four elements at once, and their neighbours one by one
{
    __shared__ __align__(16) float tile[32][32];
    int t = threadIdx.x;
    *reinterpret_cast<float4*>(&tile[t / 8][t % 8 * 4]) = in[t];
    __syncthreads();
    float4 v = *reinterpret_cast<float4*>(&tile[t % 32][t / 32 * 4]);
    v.x += tile[t % 32][(t / 32 * 4 + 5) % 32];
    out[t] = v;
}

extern "C" __global__ void bytes(unsigned char* out, const unsigned char* in)   // parts of elements
{
    __shared__ unsigned int words[8][32];
    unsigned char* cells = reinterpret_cast<unsigned char*>(words);
    int t = threadIdx.x;
    #pragma unroll 1
    for (int k = t; k < 1024; k += 32) cells[k] = in[k];
    __syncwarp();
    atomicAdd(&words[t % 8][t], 0x01010101u * (t % 3));
    atomicXor(&words[3][7], 1u << t);
    __syncwarp();
    #pragma unroll 1
    for (int k = t; k < 1024; k += 32) out[k] = cells[(k * 5 + 3) % 1024];
}

extern "C" __global__ void pointers(int* out, const int* in)           // addresses that move, are chosen, compared and generic
{
    __shared__ int ring[32][8];
    int* first = &ring[0][0];
    int t = threadIdx.x;
    #pragma unroll 1
    for (int k = t; k < 256; k += 32) first[k] = in[k];
    __syncwarp();
    int* at = t & 1 ? first + t : first + 255 - t;
    int sum = 0;
    for (volatile int* end = first + 256; at < end; at += 37) sum = sum * 7 + *at;
    if (t % 5 == 0) sum += ring[t][3];
    out[t] = sum;
}

extern "C" __global__ void dynamic(int* out, const int* in)            // two arrays in one piece of memory
{
    extern __shared__ int memory[];
    int* tile = memory;
    int* rows = memory + 1024;
    int t = threadIdx.x;
    #pragma unroll 1
    for (int k = t; k < 1024; k += 32) tile[k] = in[k];
    rows[t] = t * 100;
    __syncwarp();
    int sum = 0;
    #pragma unroll 1
    for (int k = 0; k < 32; ++k) sum = sum * 3 + tile[t * 32 + k] + rows[(t + k) % 32];
    out[t] = sum;
}
"""


def wrapped(values: list[int]) -> np.ndarray:
    return np.array([value & 0xFFFFFFFF for value in values], np.uint32).view(np.int32)


@dataclass(frozen=True)
class Case:
    """One launch of a kernel."""

    block: int | tuple[int, int]
    shape: tuple[int, int]
    """Of the array in shared memory."""
    arrays: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    """What goes in, and what comes out."""
    shared: str = ""
    shared_bytes: int = 0
    vector: int = 1
    """Elements that an access of the kernel has at most."""


def turn(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    given = random.random((32, 32), np.float32)
    return given, given.T.copy()


def pipeline(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    given = random.integers(0, 1000, (4, 32, 32)).astype(np.int32)
    sums, tiles = np.zeros(32, np.uint32), np.zeros((2, 32, 32), np.uint32)
    for stage in range(4):
        tiles[stage & 1] = given[stage]
        for step in range(4):
            sums = sums * np.uint32(3) + tiles[stage & 1][:, step * 4] + tiles[stage & 1][step * 8]
        sums = sums + tiles[1, 0, 0] * np.uint32(stage > 0)
    return given, sums.view(np.int32)


def wide(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    given = random.random((32, 32), np.float32)
    out = np.empty((256, 4), np.float32)
    for t in range(256):
        out[t] = given[t % 32, t // 32 * 4 : t // 32 * 4 + 4]
        out[t, 0] += given[t % 32, (t // 32 * 4 + 5) % 32]
    return given, out


def bytes_(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    given = random.integers(0, 250, 1024).astype(np.uint8)
    words = given.view(np.uint32).reshape(8, 32).copy()
    for t in range(32):
        words[t % 8, t] += np.uint32(0x01010101 * (t % 3))
    words[3, 7] ^= np.uint32(0xFFFFFFFF)
    return given, words.view(np.uint8).ravel()[(np.arange(1024) * 5 + 3) % 1024]


def pointers(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    given = random.integers(0, 1000, 256).astype(np.int32)
    values = [int(one) for one in given]
    sums = []
    for t in range(32):
        total = 0
        for at in range(t if t & 1 else 255 - t, 256, 37):
            total = total * 7 + values[at]
        sums.append(total + (values[t * 8 + 3] if t % 5 == 0 else 0))
    return given, wrapped(sums)


def dynamic(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    given = random.integers(0, 1000, (32, 32)).astype(np.int32)
    sums = []
    for t in range(32):
        total = 0
        for k in range(32):
            total = total * 3 + int(given[t, k]) + (t + k) % 32 * 100
        sums.append(total)
    return given, wrapped(sums)


CASES = {
    "turn": Case((32, 32), (32, 32), turn),
    "pipeline": Case(32, (32, 32), pipeline),
    "wide": Case(256, (32, 32), wide, vector=4),
    "bytes": Case(32, (8, 32), bytes_),
    "pointers": Case(32, (32, 8), pointers),
    "dynamic": Case(32, (32, 32), dynamic, "dynamic[0:4096]", 4096 + 128),
}


def layouts(rows: int, columns: int) -> list[Layout]:
    """One of each kind that keeps elements apart."""
    images = [19, 10, 13, 23, 8][: rows.bit_length() - 1]
    return [
        Padded(rows, columns, 1),
        Padded(rows, columns, 4),
        XorSwizzle(rows, columns),
        Skewed(rows, columns, 1),
        Swizzle(rows, columns, 3, 2, 3),
        RandomShift(rows, columns, 1),
        RandomPermuteShift(rows, columns, 1),
        BitLinear.of_rows(rows, columns, [image % columns for image in images]),
        DiagonalStrip(rows, columns),
        Morton(rows, columns),
        ColumnMajor(rows, columns),
        Gather(rows, columns, np.random.default_rng(1).permutation(rows * columns)),
    ]


def run(kernel: Kernel, name: str) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel gives, and what it should."""
    case = CASES[name]
    given, expected = case.arrays(np.random.default_rng(5))
    target = kernel.target
    out = target.zeros(expected.shape, expected.dtype)
    kernel[1, case.block, None, case.shared_bytes](out, target.array(given))
    return out.numpy(), expected
