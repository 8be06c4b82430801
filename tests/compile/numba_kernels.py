"""Ordinary Numba CUDA kernels, as people write them. Needs numba-cuda."""

from __future__ import annotations

import math

import numba
from numba import cuda, float32, int32

TILE = 16


def vector_add(out, a, b):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.jit
def saxpy(y, x, alpha):
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        y[i] += alpha * x[i]


def softmax(out, x):
    """One block of 128 threads for each row."""
    shared = cuda.shared.array(128, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    largest = float32(-math.inf)
    for column in range(t, x.shape[1], 128):
        largest = max(largest, x[row, column])
    shared[t] = largest
    cuda.syncthreads()
    half = 64
    while half > 0:
        if t < half:
            shared[t] = max(shared[t], shared[t + half])
        cuda.syncthreads()
        half //= 2
    largest = shared[0]
    cuda.syncthreads()
    total = float32(0)
    for column in range(t, x.shape[1], 128):
        total += math.exp(x[row, column] - largest)
    shared[t] = total
    cuda.syncthreads()
    half = 64
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    for column in range(t, x.shape[1], 128):
        out[row, column] = math.exp(x[row, column] - largest) / shared[0]


@cuda.jit(device=True)
def warp_sum(value):
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, distance)
    return value


def layer_norm(out, x, weight, bias, epsilon):
    """One warp for each row; blocks of (32, 4)."""
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    lane, width = cuda.threadIdx.x, x.shape[1]
    if row < x.shape[0]:
        total = float32(0)
        for column in range(lane, width, 32):
            total += x[row, column]
        mean = warp_sum(total) / float32(width)
        total = float32(0)
        for column in range(lane, width, 32):
            total += (x[row, column] - mean) ** 2
        scale = float32(1) / math.sqrt(warp_sum(total) / float32(width) + epsilon)
        for column in range(lane, width, 32):
            out[row, column] = (x[row, column] - mean) * scale * weight[column] + bias[column]


def matmul(c, a, b):
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range((a.shape[1] + TILE - 1) // TILE):
        inner = step * TILE
        tile_a[y, x] = a[row, inner + x] if row < a.shape[0] and inner + x < a.shape[1] else 0
        tile_b[y, x] = b[inner + y, column] if inner + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def reduction(out, x):
    shared = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    shared[t] = total
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(out, 0, shared[0])
        cuda.atomic.max(out, 1, shared[0])


def histogram(bins, values):
    counts = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t < 64:
        counts[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, values[i] % 64, 1)
    cuda.syncthreads()
    if t < 64:
        cuda.atomic.add(bins, t, counts[t])


def transpose(out, a):
    tile = cuda.shared.array((32, 33), numba.float64)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 32 + x, cuda.blockIdx.y * 32 + y
    for step in range(0, 32, 8):
        if row + step < a.shape[0] and column < a.shape[1]:
            tile[y + step, x] = a[row + step, column]
    cuda.syncthreads()
    column, row = cuda.blockIdx.y * 32 + x, cuda.blockIdx.x * 32 + y
    for step in range(0, 32, 8):
        if row + step < out.shape[0] and column < out.shape[1]:
            out[row + step, column] = tile[x, y + step]


def stencil(out, a, weight):
    i, j, k = cuda.grid(3)
    if 0 < i < a.shape[0] - 1 and 0 < j < a.shape[1] - 1 and 0 < k < a.shape[2] - 1:
        around = a[i - 1, j, k] + a[i + 1, j, k] + a[i, j - 1, k] + a[i, j + 1, k] + a[i, j, k - 1] + a[i, j, k + 1]
        out[i, j, k] = a[i, j, k] + weight * (around - 6 * a[i, j, k])


def scan(out, x):
    """Inclusive, within each block of 256."""
    shared = cuda.shared.array((2, 256), numba.int64)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    source = 0
    shared[source, t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    distance = 1
    while distance < 256:
        value = shared[source, t]
        if t >= distance:
            value += shared[source, t - distance]
        source = 1 - source
        shared[source, t] = value
        cuda.syncthreads()
        distance *= 2
    if i < x.size:
        out[i] = shared[source, t]


def gather(out, a, index):
    """A negative index counts from the end."""
    i = cuda.grid(1)
    if i < out.shape[0]:
        for column in range(out.shape[1]):
            out[i, column] = a[index[i], column]


def spmv(y, data, columns, rows, x):
    row = cuda.grid(1)
    if row < y.size:
        total = 0.0
        for at in range(rows[row], rows[row + 1]):
            total += data[at] * x[columns[at]]
        y[row] = total


def medians(out, x):
    """Of each five neighbours, sorted in a local array."""
    i = cuda.grid(1)
    if i < out.size:
        window = cuda.local.array(5, numba.int16)
        for k in range(5):
            window[k] = x[i + k]
        for k in range(1, 5):
            value, at = window[k], k
            while at > 0 and window[at - 1] > value:
                window[at] = window[at - 1]
                at -= 1
            window[at] = value
        out[i] = window[2]


@cuda.jit(device=True)
def escapes(real, imaginary, limit):
    z, c = 0j, complex(real, imaginary)
    for step in range(limit):
        z = z * z + c
        if z.real * z.real + z.imag * z.imag > 4:
            return step
    return limit


def mandelbrot(out, west, north, pixel, limit):
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        out[y, x] = escapes(west + x * pixel, north - y * pixel, limit)


def compact(out, count, x, threshold):
    """The values above a threshold, in any order; a warp reserves its places at once."""
    i = cuda.grid(1)
    keep = i < x.size and x[i] > threshold
    ballot = cuda.ballot_sync(0xFFFFFFFF, keep)
    base = 0
    if cuda.laneid == 0:
        base = cuda.atomic.add(count, 0, cuda.popc(ballot))
    base = cuda.shfl_sync(0xFFFFFFFF, base, 0)
    if keep:
        out[base + cuda.popc(ballot & ((1 << cuda.laneid) - 1))] = x[i]


def mirror_sums(a):
    """Every thread adds to its element, and after all have, its mirror image."""
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for _ in range(3):
        a[i] += 1
        grid.sync()
        mirrored = a[a.size - 1 - i]
        grid.sync()
        a[i] += mirrored
