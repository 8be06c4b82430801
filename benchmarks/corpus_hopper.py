"""Describe the kernels of `kernels/hopper.cu`."""

from __future__ import annotations

import numpy as np
from corpus import Case, Group, Mapped, Problem

Random = np.random.Generator


def _whole(random: Random, *shape: int, dtype: str = "f4") -> np.ndarray:
    return random.integers(0, 100, shape).astype(dtype)


def _boxes(n: int, random: Random) -> Problem:
    """Return a problem whose last boxes reach beyond the array, which has rows of 272 bytes."""
    a = _whole(random, 90, 68)
    return Problem((3, 3), 128, (Mapped(np.zeros_like(a), (32, 32)), Mapped(a, (32, 32))), {0: 2 * a})


def _ring(n: int, random: Random) -> Problem:
    a = _whole(random, 4, 7, 512)
    return Problem(4, 128, (np.zeros((4, 128), "f4"), a, 7), {0: a.reshape(4, -1, 128).sum(axis=1)})


def _added(n: int, random: Random) -> Problem:
    a = _whole(random, 8, 256, dtype="u4")
    return Problem(8, 256, (np.zeros(256, "u4"), a), {0: (a + 1).sum(axis=0, dtype="u4")})


def _sums(n: int, random: Random) -> Problem:
    a = _whole(random, 4, 4, 128)
    result = a.sum(axis=1, keepdims=True) * np.arange(1, 5, dtype="f4")[:, None]
    return Problem(16, 128, (np.zeros_like(a), a), {0: result})


def _bins(n: int, random: Random) -> Problem:
    a = random.integers(0, 1 << 16, (4, 512)).astype("u4")
    counts = np.stack([np.bincount(row % 256, minlength=256) for row in a]).astype("u4")
    return Problem(16, 128, (np.zeros((4, 256), "u4"), a), {0: counts})


def _product(n: int, random: Random) -> Problem:
    a, b = (random.integers(-4, 5, shape).astype("f2") for shape in ((128, 64), (64, 64)))
    result = a.astype("f4") @ b.astype("f4").T
    return Problem(2, 128, (np.zeros_like(result), a, b), {0: result})


def _ragged(n: int, random: Random) -> Problem:
    a, lengths = _whole(random, 8, 512), random.integers(1, 512, 8).astype("i4")
    result = np.where(np.arange(512) < lengths[:, None], a, 0) + 1
    return Problem(8, 128, (np.zeros_like(a), a, lengths, 512), {0: result.astype("f4")})


GROUP = Group(
    "hopper",
    (
        Case("doubled_boxes", "boxes of an array through tensor maps, in and out", _boxes),
        Case("ring_of_chunks", "bulk copies in a ring, which barriers complete", _ring),
        Case("added_by_the_bulk", "a bulk copy that adds to what is there", _added),
        Case("cluster_sums", "loads from the shared memory of other blocks", _sums),
        Case("cluster_bins", "additions in the shared memory of other blocks", _bins),
        Case("staged_product", "asynchronous copies, matrices and products of a warp", _product),
        Case("ragged_rows", "copies that fill with zeros what is behind the end of a row", _ragged),
    ),
)
