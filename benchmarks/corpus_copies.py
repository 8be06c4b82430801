"""Describe the kernels of `kernels/copies.cu`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from corpus import Array, Case, Group, Problem

BLOCK = 256
Random = np.random.Generator


def _line(out: Array, result: Array, *arguments: object, n: int) -> Problem:
    """Return a problem with one thread for each of n elements, whose first argument is the result."""
    return Problem(-(-n // BLOCK), BLOCK, (out, *arguments), {0: result})


def _numbers(random: Random, n: int, kind: str = "f4") -> Array:
    return random.integers(0, 100, n).astype(kind)


def _copy(kind: str, width: int = 1) -> Callable[[int, Random], Problem]:
    def make(n: int, random: Random) -> Problem:
        a = _numbers(random, n * width, kind)
        return _line(np.zeros_like(a), a, a, n, n=n)

    return make


def _misaligned(n: int, random: Random) -> Problem:
    a = _numbers(random, n)
    return _line(np.zeros_like(a), np.append(a[3:], np.zeros(3, "f4")), a, n, n=n)


def _misaligned_8(n: int, random: Random) -> Problem:
    a = _numbers(random, n, "f8")
    return _line(np.zeros_like(a), np.append(0.0, a[:-1]), a, n, n=n)


def _reversed(n: int, random: Random) -> Problem:
    a = _numbers(random, n)
    return _line(np.zeros_like(a), a[::-1].copy(), a, n, n=n)


def _strided(stride: int) -> Callable[[int, Random], Problem]:
    def make(n: int, random: Random) -> Problem:
        a = _numbers(random, n)
        return _line(np.zeros_like(a), a.reshape(-1, stride).T.ravel(), a, n, stride, n=n)

    return make


def _strided_16(n: int, random: Random) -> Problem:
    a = _numbers(random, 4 * n)
    result = a.reshape(-1, 4, 4).transpose(1, 0, 2).ravel()
    return _line(np.zeros_like(a), result, a, n, n=n)


def _broadcast(n: int, random: Random) -> Problem:
    a, factor = _numbers(random, n), np.array([2.0, 3.0], "f4")
    return _line(np.zeros_like(a), a * factor[np.arange(n) // BLOCK % 2], a, factor, n, n=n)


def _gather(kind: str) -> Callable[[int, Random], Problem]:
    def make(n: int, random: Random) -> Problem:
        a, index = _numbers(random, n, kind), random.integers(0, n, n).astype("i4")
        return _line(np.zeros_like(a), a[index], a, index, n, n=n)

    return make


def _scatter(n: int, random: Random) -> Problem:
    a, index = _numbers(random, n), random.permutation(n).astype("i4")
    result = np.zeros_like(a)
    result[index] = a
    return _line(np.zeros_like(a), result, a, index, n, n=n)


def _structures(n: int, random: Random) -> Problem:
    a = _numbers(random, 4 * n)
    return _line(np.zeros(n, "f4"), a[3::4] * 2, a, n, n=n)


def _separate_arrays(n: int, random: Random) -> Problem:
    x, y, mass = (_numbers(random, n) for _ in range(3))
    return _line(np.zeros(n, "f4"), (x + y) * mass, x, y, mass, n, n=n)


def _twelve_bytes(n: int, random: Random) -> Problem:
    a = _numbers(random, 3 * n)
    return _line(np.zeros_like(a), a.reshape(-1, 3)[:, [1, 2, 0]].ravel(), a, n, n=n)


def _gray(n: int, random: Random) -> Problem:
    rgb = random.integers(0, 256, 3 * n).astype("u1")
    red, green, blue = rgb.reshape(-1, 3).astype("i4").T
    return _line(np.zeros(n, "u1"), ((red + 2 * green + blue) // 4).astype("u1"), rgb, n, n=n)


def _half2(n: int, random: Random) -> Problem:
    a = _numbers(random, 2 * n, "f2")
    return _line(np.zeros_like(a), a + a, a, n, n=n)


def _axpy(n: int, random: Random) -> Problem:
    y, x = _numbers(random, n, "f8"), _numbers(random, n, "f8")
    return Problem(n // BLOCK // 2, BLOCK, (y, x, 3.0, n), {0: y + 3.0 * x})


def _divergent(n: int, random: Random) -> Problem:
    a, b, i = _numbers(random, n), _numbers(random, n), np.arange(n)
    return _line(np.zeros_like(a), np.where(i % 2 == 0, a + 1, b[::-1] * a[i // 2]), a, b, n, n=n)


def _flagged(n: int, random: Random) -> Problem:
    a, flags = _numbers(random, n), random.integers(0, 2, n).astype("u1")
    return _line(np.zeros_like(a), np.where(flags, a, np.float32(0)), a, flags, n, n=n)


def _local_table(n: int, random: Random) -> Problem:
    a, i = random.integers(0, 256, n).astype("i4"), np.arange(n)
    result = i * ((a & 15) + 1) + i * ((a >> 4 & 15) + 1)
    return _line(np.zeros_like(a), result.astype("i4"), a, n, n=n)


def _either_space(n: int, random: Random) -> Problem:
    a = random.integers(0, 4, n).astype("f4")
    return _line(np.zeros_like(a), np.where(a < 0.5, 255 - np.arange(n) % BLOCK, a).astype("f4"), a, n, n=n)


GROUP = Group(
    "copies",
    (
        Case("copy_1", "bytes: a sector a request", _copy("u1")),
        Case("copy_2", "half words: two sectors a request", _copy("u2")),
        Case("copy_4", "good: 4 bytes a lane side by side", _copy("f4")),
        Case("copy_8", "good: 8 bytes a lane", _copy("f4", 2)),
        Case("copy_16", "good: 16 bytes a lane", _copy("f4", 4)),
        Case("misaligned", "bad: base 12 bytes off a sector", _misaligned),
        Case("misaligned_8", "bad: 8-byte stores, base 8 bytes off a sector", _misaligned_8),
        Case("reversed", "good: side by side, in the other direction", _reversed),
        Case("strided", "bad: a sector for each lane", _strided(32)),
        Case("strided_16", "good: 16-byte stores to four places, whole sectors each", _strided_16),
        Case("broadcast", "good: one word for all lanes", _broadcast),
        Case("gather", "bad: loads from random places", _gather("f4")),
        Case("gather_8", "bad: 8-byte loads from random places", _gather("f8")),
        Case("scatter", "bad: stores to random places", _scatter),
        Case("structures", "bad: one member of an array of structures", _structures),
        Case("separate_arrays", "good: the structure taken apart", _separate_arrays),
        Case("twelve_bytes", "bad: structures of 12 bytes", _twelve_bytes),
        Case("gray_of_rgb", "bad: bytes three apart", _gray),
        Case("scale_half2", "good: two half-precision numbers a lane", _half2),
        Case("axpy_double", "good: 8-byte loads and stores in a loop", _axpy),
        Case("divergent", "bad: half a warp at a time, one way in reverse and in pairs", _divergent),
        Case("flagged", "loads under a predicate", _flagged),
        Case("local_table", "bad: a table in local memory", _local_table),
        Case("either_space", "generic addresses of two spaces", _either_space),
    ),
)
