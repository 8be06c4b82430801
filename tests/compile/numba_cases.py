"""What each kernel of `numba_kernels` is launched with, and what NumPy says must come of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from memlane.compile import numba
from tests.compile import numba_kernels as kernels
from tests.compile.cases import Case

CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    CASES[build.__name__] = cache(lambda: build(np.random.default_rng(5)))
    return build


@case
def vector_add(random: np.random.Generator) -> Case:
    a, b = random.random((2, 1000), np.float32)
    module = numba(kernels.vector_add, "void(float32[:], float32[::1], float32[:])")
    return Case(module, (8, 128), (np.zeros_like(a), a, b), {0: a + b})


@case
def saxpy(random: np.random.Generator) -> Case:
    x, y = random.random((2, 3000), np.float32)
    module = numba(kernels.saxpy, "void(float32[::1], float32[::1], float32)")
    return Case(module, (4, 96), (y, x, 0.5), {0: y + np.float32(0.5) * x}, 1e-6)


@case
def softmax(random: np.random.Generator) -> Case:
    x = random.normal(size=(5, 300)).astype(np.float32)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    module = numba(kernels.softmax, "void(float32[:, ::1], float32[:, ::1])")
    return Case(module, (5, 128), (np.zeros_like(x), x), {0: powers / powers.sum(axis=1, keepdims=True)}, 1e-5)


@case
def layer_norm(random: np.random.Generator) -> Case:
    x = random.normal(2, 3, (10, 200)).astype(np.float32)
    weight, bias = random.random((2, 200), np.float32)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    module = numba(kernels.layer_norm, "void(float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], float32)", fastmath=True)
    return Case(module, (3, (32, 4)), (np.zeros_like(x), x, weight, bias, 1e-5), {0: expected}, 1e-5)


@case
def matmul(random: np.random.Generator) -> Case:
    a, b = (random.integers(-4, 5, shape).astype(np.float32) for shape in ((37, 50), (50, 45)))
    module = numba(kernels.matmul, "void(float32[:, ::1], float32[:, :], float32[:, ::1])")
    return Case(module, ((3, 3), (16, 16)), (np.zeros((37, 45), np.float32), a, b), {0: a @ b})


@case
def reduction(random: np.random.Generator) -> Case:
    x = random.integers(0, 9, 5000).astype(np.float32)
    partial = [sum(x[start : start + 128].sum() for start in range(128 * block, 5000, 128 * 8)) for block in range(8)]
    module = numba(kernels.reduction, "void(float32[:], float32[::1])")
    return Case(module, (8, 128, None, 512), (np.zeros(2, np.float32), x), {0: np.array([x.sum(), max(partial)])})


@case
def histogram(random: np.random.Generator) -> Case:
    values = random.integers(0, 1000, 4000)
    module = numba(kernels.histogram, "void(int32[::1], int64[::1])")
    return Case(module, (4, 96), (np.zeros(64, np.int32), values), {0: np.bincount(values % 64, minlength=64)})


@case
def transpose(random: np.random.Generator) -> Case:
    a = random.random((50, 70))
    module = numba(kernels.transpose, "void(float64[:, :], float64[:, ::1])")
    return Case(module, ((3, 2), (32, 8)), (np.zeros((70, 50)), a), {0: a.T})


@case
def stencil(random: np.random.Generator) -> Case:
    a = random.random((9, 10, 40))
    expected, middle = np.zeros_like(a), a[1:-1, 1:-1, 1:-1]
    around = sum(np.roll(a, shift, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for shift in (1, -1))
    expected[1:-1, 1:-1, 1:-1] = middle + 0.1 * (around - 6 * middle)
    module = numba(kernels.stencil, "void(float64[:, :, ::1], float64[:, :, ::1], float64)")
    return Case(module, ((2, 5, 10), (8, 2, 4)), (np.zeros_like(a), a, 0.1), {0: expected}, 1e-14)


@case
def scan(random: np.random.Generator) -> Case:
    x = random.integers(-100, 100, 700)
    expected = np.concatenate([np.cumsum(x[start : start + 256]) for start in range(0, 700, 256)])
    return Case(numba(kernels.scan, "void(int64[::1], int64[::1])"), (3, 256), (np.zeros_like(x), x), {0: expected})


@case
def gather(random: np.random.Generator) -> Case:
    a = random.integers(0, 255, (60, 7)).astype(np.uint8)
    index = random.integers(-60, 60, 200).astype(np.int32)
    module = numba(kernels.gather, "void(uint8[:, :], uint8[:, ::1], int32[::1])")
    return Case(module, (2, 128), (np.zeros((200, 7), np.uint8), a, index), {0: a[index]})


@case
def spmv(random: np.random.Generator) -> Case:
    dense = random.random((100, 80)) * (random.random((100, 80)) < random.random((100, 1)) * 0.3)
    columns, rows = np.nonzero(dense)[1].astype(np.int32), np.concatenate([[0], np.count_nonzero(dense, axis=1).cumsum()])
    x = random.random(80)
    module = numba(kernels.spmv, "void(float64[::1], float64[::1], int32[::1], int64[::1], float64[::1])")
    return Case(module, (4, 32), (np.zeros(100), dense[dense != 0], columns, rows, x), {0: dense @ x}, 1e-14)


@case
def medians(random: np.random.Generator) -> Case:
    x = random.integers(-99, 99, 304).astype(np.int16)
    windows = np.lib.stride_tricks.sliding_window_view(x, 5)
    module = numba(kernels.medians, "void(int16[::1], int16[::1])")
    return Case(module, (3, 128), (np.zeros(300, np.int16), x), {0: np.median(windows, axis=1)})


@case
def mandelbrot(random: np.random.Generator) -> Case:
    c = (-2 + np.arange(48) * 0.0625) + 1j * (1 - np.arange(32) * 0.0625)[:, None]
    expected, z = np.full(c.shape, 30), np.zeros_like(c)
    for step in range(30):
        z = np.where(np.abs(z) < 1e3, z * z + c, z)
        expected[(expected == 30) & (z.real**2 + z.imag**2 > 4)] = step
    module = numba(kernels.mandelbrot, "void(int32[:, ::1], float64, float64, float64, int32)")
    return Case(module, ((3, 4), (16, 8)), (np.zeros(c.shape, np.int32), -2.0, 1.0, 0.0625, 30), {0: expected})


@case
def compact(random: np.random.Generator) -> Case:
    x = np.where(random.random(700) < 0.3, 7.0, 1.0).astype(np.float32)
    kept = np.count_nonzero(x > 5)
    expected = np.where(np.arange(700) < kept, np.float32(7), np.float32(0))
    module = numba(kernels.compact, "void(float32[::1], int32[::1], float32[::1], float32)")
    arguments = (np.zeros(700, np.float32), np.zeros(1, np.int32), x, 5.0)
    return Case(module, (6, 128), arguments, {0: expected, 1: np.array([kept])})


@case
def mirror_sums(random: np.random.Generator) -> Case:
    x = random.integers(0, 99, 96).astype(np.int32)
    expected = x
    for _ in range(3):
        expected = expected + 1 + (expected + 1)[::-1]
    return Case(numba(kernels.mirror_sums, "void(int32[::1])"), (3, 32), (x,), {0: expected})
