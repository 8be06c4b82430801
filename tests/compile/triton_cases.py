"""What each kernel of `triton_kernels` is launched with, and what NumPy says must come of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import erf

import numpy as np

from memlane.compile import triton
from tests.compile import triton_kernels as kernels
from tests.compile.cases import Case

CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    CASES[build.__name__] = cache(lambda: build(np.random.default_rng(5)))
    return build


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to nearest even, as bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def philox(key: int, counter: np.ndarray) -> np.ndarray:
    """The first word of Philox 4x32 with ten rounds (Salmon and others, Parallel random numbers, 2011)."""
    low = np.uint64(0xFFFFFFFF)
    c = [counter.astype(np.uint64), *np.zeros((3, counter.size), np.uint64)]
    k = [key, 0]
    for _ in range(10):
        left, right = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(right >> 32) ^ c[1] ^ np.uint64(k[0]), right & low, (left >> 32) ^ c[3] ^ np.uint64(k[1]), left & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0].astype(np.uint32)


@case
def vector_add(random: np.random.Generator) -> Case:
    a, b = random.random((2, 1000), np.float32)
    module = triton(kernels.vector_add, "*fp32, *fp32, *fp32, i32", {"BLOCK": 256}, num_warps=2)
    return Case(module, (4,), (np.zeros_like(a), a, b, 1000), {0: a + b})


@case
def saxpy(random: np.random.Generator) -> Case:
    x, y = random.random((2, 2048), np.float32)
    module = triton(kernels.saxpy, {"y": "*fp32:16", "x": "*fp32:16", "alpha": "fp32"}, {"BLOCK": 1024})
    return Case(module, (2,), (y, x, 0.5), {0: y + np.float32(0.5) * x}, 1e-6)


@case
def softmax(random: np.random.Generator) -> Case:
    x = random.normal(size=(5, 300)).astype(np.float32)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    module = triton(kernels.softmax, "*fp32:16, *fp32:16, i32", {"BLOCK": 512})
    return Case(module, (5,), (np.zeros_like(x), x, 300), {0: powers / powers.sum(axis=1, keepdims=True)}, 1e-6)


@case
def layer_norm(random: np.random.Generator) -> Case:
    x = random.normal(2, 3, (6, 192)).astype(np.float16)
    weight, bias = random.random((2, 192), np.float32)
    wide = x.astype(np.float32)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * weight + bias
    module = triton(kernels.layer_norm, "*fp32:16, *fp16:16, *fp32:16, *fp32:16, i32:16, fp32", {"BLOCK": 256})
    return Case(module, (6,), (np.zeros_like(wide), x, weight, bias, 192, 1e-5), {0: expected}, 1e-5)


@case
def matmul(random: np.random.Generator) -> Case:
    a, b = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((48, 80), (80, 64)))
    blocks = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
    module = triton(kernels.matmul, "*fp32:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16", blocks, num_warps=2, arch="sm_80")
    return Case(module, ((2, 2),), (np.zeros((48, 64), np.float32), a, b, 48, 64, 80), {0: a.astype(np.float32) @ b.astype(np.float32)})


@case
def attention(random: np.random.Generator) -> Case:
    q, k, v = random.normal(size=(3, 64, 32)).astype(np.float16)
    scores = q.astype(np.float64) @ k.T.astype(np.float64) / 8
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    blocks = {"BLOCK_M": 64, "BLOCK_N": 16, "WIDTH": 32}
    module = triton(kernels.attention, "*fp32:16, *fp16:16, *fp16:16, *fp16:16, i32:16, fp32", blocks, arch="sm_90")
    expected = powers @ v.astype(np.float64) / powers.sum(axis=1, keepdims=True)
    return Case(module, (1,), (np.zeros((64, 32), np.float32), q, k, v, 64, 0.125), {0: expected}, 1e-3)


@case
def reduction(random: np.random.Generator) -> Case:
    x = random.integers(0, 9, 5000).astype(np.float32)
    module = triton(kernels.reduction, "*fp32, *fp32:16, i32", {"BLOCK": 512})
    return Case(module, (3,), (np.zeros(1, np.float32), x, 5000), {0: np.array([x.sum()])})


@case
def histogram(random: np.random.Generator) -> Case:
    values = random.integers(0, 1000, 2000).astype(np.int32)
    module = triton(kernels.histogram, "*i32, *i32:16, i32", {"BLOCK": 512, "BINS": 64})
    return Case(module, (4,), (np.zeros(64, np.int32), values, 2000), {0: np.bincount(values % 64, minlength=64)})


@case
def transpose(random: np.random.Generator) -> Case:
    a = random.random((50, 70)).astype(np.float32)
    module = triton(kernels.transpose, "*fp32:16, *fp32:16, i32, i32", {"BLOCK": 32})
    return Case(module, ((2, 3),), (np.zeros((70, 50), np.float32), a, 50, 70), {0: a.T})


@case
def stencil(random: np.random.Generator) -> Case:
    a = random.random((9, 150))
    expected, middle = np.zeros_like(a), a[1:-1, 1:-1]
    around = a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1]
    expected[1:-1, 1:-1] = middle + 0.125 * (around - 4 * middle)
    module = triton(kernels.stencil, "*fp64, *fp64, i32, i32, fp64", {"BLOCK": 128})
    return Case(module, ((7, 2),), (np.zeros_like(a), a, 9, 150, 0.125), {0: expected}, 1e-15)


@case
def scan(random: np.random.Generator) -> Case:
    x = random.integers(-100, 100, 700)
    expected = np.concatenate([np.cumsum(x[start : start + 256]) for start in range(0, 700, 256)])
    module = triton(kernels.scan, "*i64:16, *i64:16, i32", {"BLOCK": 256}, num_warps=2)
    return Case(module, (3,), (np.zeros_like(x), x, 700), {0: expected})


@case
def gather(random: np.random.Generator) -> Case:
    a = random.integers(0, 255, (20, 100)).astype(np.uint8)
    index = random.integers(0, 20, 33).astype(np.int32)
    module = triton(kernels.gather, "*u8, *u8, *i32, i32", {"BLOCK": 64}, num_warps=1)
    return Case(module, (33,), (np.zeros((33, 100), np.uint8), a, index, 100), {0: a[index]})


@case
def argmax(random: np.random.Generator) -> Case:
    x = random.permutation(7 * 90).astype(np.float32).reshape(7, 90)
    module = triton(kernels.argmax, "*i32, *fp32, i32", {"BLOCK": 128})
    return Case(module, (7,), (np.zeros(7, np.int32), x, 90), {0: x.argmax(axis=1)})


@case
def sort(random: np.random.Generator) -> Case:
    x = random.integers(-99, 99, 128).astype(np.int32)
    module = triton(kernels.sort, "*i32, *i32", {"BLOCK": 128}, num_warps=2)
    return Case(module, (1,), (np.zeros_like(x), x), {0: np.sort(x)})


@case
def activate(random: np.random.Generator) -> Case:
    x = random.normal(size=500).astype(np.float32)
    bits = bfloat16(x)
    exact = (bits.astype(np.uint32) << 16).view(np.float32)
    expected = np.array([0.5 * v * (1 + erf(v * 0.7071067811865476)) for v in exact])
    module = triton(kernels.activate, "*bf16, *bf16, i32", {"BLOCK": 128})
    return Case(module, (4,), (np.zeros(500, np.uint16), bits, 500), {0: bfloat16(expected)}, 3e-5)


@case
def random_dropout(random: np.random.Generator) -> Case:
    x = random.random(600, np.float32)
    bits = philox(5, np.arange(600)).view(np.int32).astype(np.float64)
    keep = np.where(bits < 0, -bits - 1, bits) * 2.0**-31 > 0.5
    module = triton(kernels.random_dropout, "*fp32, *fp32, i32, i32, fp32", {"BLOCK": 256})
    return Case(module, (3,), (np.zeros_like(x), x, 600, 5, 0.5), {0: np.where(keep, x / 0.5, 0)})


@case
def locked_sum(random: np.random.Generator) -> Case:
    x = random.integers(0, 9, 512).astype(np.float32)
    module = triton(kernels.locked_sum, "*fp32, *i32, *fp32", {"BLOCK": 64}, num_warps=2)
    return Case(module, (8,), (np.zeros(1, np.float32), np.zeros(1, np.int32), x), {0: np.array([x.sum()])})
