"""Describe the kernels of `kernels/blocks.cu`."""

from __future__ import annotations

import numpy as np
from corpus import Case, Group, Problem


def _scan(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, (n // 512, 512)).astype("i4")
    result = np.cumsum(a, axis=1, dtype="i4") - a
    return Problem(n // 512, 256, (np.zeros_like(a), a), {0: result})


def _bitonic(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 1000, (n // 256 // 4, 256)).astype("i4")
    return Problem(len(a), 256, (np.zeros_like(a), a), {0: np.sort(a, axis=1)})


def _softmax(n: int, random: np.random.Generator) -> Problem:
    columns = 192
    a = random.integers(-6, 1, (n // 512, columns)).astype("f4")
    a[:, 5] = 0.0
    weights = np.exp2(a)  # whole powers of two: sums are exact in any order, and quotients are rounded once
    return Problem(len(a), 128, (np.zeros_like(a), a, columns), {0: weights / weights.sum(axis=1, keepdims=True)})


def _matvec(n: int, random: np.random.Generator, transposed: bool, threads: int) -> Problem:
    side = int(n**0.5) // 32 * 32
    a, x = random.integers(0, 8, (side, side)).astype("f4"), random.integers(0, 8, side).astype("f4")
    result = (a.T if transposed else a) @ x
    return Problem(-(-side * threads // 64), 64, (np.zeros_like(x), a, x, side), {0: result})


def _gemm(n: int, random: np.random.Generator) -> Problem:
    side = max(64, int(n**0.5) // 64 * 64)
    a, b = (random.integers(0, 8, (side, side)).astype("f4") for _ in range(2))
    return Problem((side // 64, side // 64), 256, (np.zeros_like(a), a, b, side), {0: a @ b})


GROUP = Group(
    "blocks",
    (
        Case("scan_plain", "bad: a tree whose strides are powers of two", _scan),
        Case("scan_padded", "good: the tree with a gap after every 32 words", _scan),
        Case("bitonic", "compare and exchange at distances of powers of two", _bitonic),
        Case("softmax_rows", "good: rows side by side, two trees in shared memory", _softmax),
        Case("matvec_thread_a_row", "bad: lanes a row apart", lambda n, random: _matvec(n, random, False, 1)),
        Case("matvec_thread_a_column", "good: lanes side by side", lambda n, random: _matvec(n, random, True, 1)),
        Case("matvec_warp_a_row", "good: a warp for each row", lambda n, random: _matvec(n, random, False, 32)),
        Case("gemm_float4", "16-byte loads of tiles, stores of one of them with conflicts", _gemm),
    ),
)
