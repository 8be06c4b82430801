"""Describe the kernels of `kernels/tiles.cu`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from corpus import Array, Case, Group, Problem

BLOCK = 256
Make = Callable[[int, np.random.Generator], Problem]


def _side(n: int) -> int:
    """Return the side of the square matrix with n elements, in whole tiles of 32."""
    return int(n**0.5) // 32 * 32


def _matrix(random: np.random.Generator, side: int, kind: str, width: int = 1) -> Array:
    return random.integers(0, 100, (side, side, width)).astype(kind)


def _transpose(tile: int, rows: int, kind: str = "f4", width: int = 1) -> Make:
    def make(n: int, random: np.random.Generator) -> Problem:
        side = _side(n)
        a = _matrix(random, side, kind, width)
        result = np.ascontiguousarray(a.transpose(1, 0, 2))
        return Problem((side // tile, side // tile), (tile, rows), (np.zeros_like(a), a, side), {0: result})

    return make


def _stride(stride: int, width: int) -> Make:
    def make(n: int, random: np.random.Generator) -> Problem:
        a = random.integers(0, 100, (n // BLOCK, BLOCK, width)).astype("f4")
        result = np.zeros_like(a)
        result[:, np.arange(BLOCK) * stride % BLOCK] = a
        return Problem(n // BLOCK, BLOCK, (np.zeros_like(a), a, stride), {0: result})

    return make


def _pairs(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, (n // BLOCK, BLOCK, 2)).astype("f4")
    result = a[..., 0] * np.roll(a[..., 1], -1, axis=1) - a[..., 1]
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(result), a), {0: result})


def _broadcast(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, (n // BLOCK, 8, 8, 4, 4)).astype("f4")  # block, warp, group of four elements, element, word
    result = np.repeat(a[:, :, :, 0].sum(axis=(2, 3)), 32, axis=1)
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(result), a), {0: result})


def _reverse(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, (n // BLOCK, BLOCK)).astype("f4")
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(a), a), {0: a[:, ::-1].copy()})


def _line(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, n).astype("f4")
    around = np.pad(a, 1)
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(a), a, n), {0: around[:-2] - 2 * a + around[2:]})


def _plane(n: int, random: np.random.Generator) -> Problem:
    side = _side(n)
    a = _matrix(random, side, "f4")[..., 0]
    around = np.pad(a, 1)
    result = around[1:-1, :-2] + around[1:-1, 2:] + around[:-2, 1:-1] + around[2:, 1:-1] - 4 * a
    return Problem((side // 32, side // 8), (32, 8), (np.zeros_like(a), np.ascontiguousarray(a), side), {0: result})


def _asynchronous(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, (n // BLOCK, BLOCK, 4)).astype("f4")
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(a), a), {0: a[:, np.arange(BLOCK) ^ 8]})


def _matrices(n: int, random: np.random.Generator) -> Problem:
    """Return a problem in which lane l gets words l % 4 of rows l / 4 of four matrices, and of the first one transposed; two of the
    matrices are stored again."""
    a = random.integers(0, 1 << 16, (n // BLOCK, BLOCK // 32, 4, 8, 8), dtype=np.uint16)
    words = a.view(np.uint32)  # block, warp, matrix, row, word
    lanes = words.reshape(*words.shape[:3], 32)
    first = a[:, :, 0].swapaxes(-1, -2).copy().view(np.uint32).reshape(*lanes.shape[:2], 32)
    again = words[..., 0].reshape(*lanes.shape[:2], 32)  # The first word of each row, which storing the same rows does not change.
    result = np.stack([lanes[:, :, 0], lanes[:, :, 1], lanes[:, :, 2] + again, first], axis=-1)
    return Problem(n // BLOCK, BLOCK, (np.zeros(result.shape, np.uint32), words), {0: result})


def _rows_of_eight(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, (n // BLOCK, 32, 8)).astype("f4")
    result = np.tile(a.sum(axis=2), (1, 8))
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(result), a), {0: result})


def _product(n: int, random: np.random.Generator) -> Problem:
    side = _side(n)
    a, b = (random.integers(0, 8, (side, side)).astype("f4") for _ in range(2))
    return Problem((side // 16, side // 16), (16, 16), (np.zeros_like(a), a, b, side), {0: a @ b})


GROUP = Group(
    "tiles",
    (
        Case("transpose_pad_0", "bad: 32 lanes in one bank", _transpose(32, 8)),
        Case("transpose_pad_1", "good: rows of 33 words", _transpose(32, 8)),
        Case("transpose_pad_2", "bad: rows of 34 words, two lanes in a bank", _transpose(32, 8)),
        Case("transpose_swizzled", "good: columns exchanged by the number of the row", _transpose(32, 8)),
        Case("transpose_double", "bad: rows of 16 doubles", _transpose(16, 16, "f8")),
        Case("transpose_double_pad_1", "good: rows of 17 doubles", _transpose(16, 16, "f8")),
        Case("transpose_float4", "bad: rows of 16 float4", _transpose(16, 16, "f4", 4)),
        Case("transpose_float4_pad_1", "good: rows of 17 float4", _transpose(16, 16, "f4", 4)),
        Case("transpose_bytes", "bad: rows of 16 bytes, lanes of a column in two banks", _transpose(16, 16, "u1")),
        Case("shared_stride_4", "good: 4-byte stores at an odd stride", _stride(5, 1)),
        Case("shared_stride_8", "good: 8-byte stores at an odd stride", _stride(7, 2)),
        Case("shared_stride_16", "good: 16-byte stores at an odd stride", _stride(9, 4)),
        Case("pairs", "8-byte loads beside 4-byte loads at stride two", _pairs),
        Case("shared_broadcast", "good: one element of 16 bytes for all lanes", _broadcast),
        Case("reverse_in_shared", "good: side by side, in the other direction", _reverse),
        Case("stencil_line", "good: a line with its halo", _line),
        Case("stencil_plane", "a plane with its halo, rows of 34 words", _plane),
        Case("rows_of_eight", "bad: 32 bytes a lane, which the assembler fetches 16 at a time", _rows_of_eight),
        Case("product_of_tiles", "16 loads of a row, of which the assembler makes four", _product),
        Case("matrices_packed", "good: rows of matrices side by side", _matrices),
        Case("matrices_apart", "bad: rows of matrices 64 bytes apart", _matrices),
        Case("asynchronous", "16-byte copies from global to shared memory", _asynchronous),
    ),
)
