"""Describe the kernels of `kernels/atomics.cu`."""

from __future__ import annotations

import numpy as np
from corpus import Array, Case, Group, Problem

BINS = 64
BLOCK = 256


def _keys(random: np.random.Generator, n: int) -> Array:
    return random.normal(32, 12, n).clip(0, 255).astype("u1")


def _histogram(n: int, random: np.random.Generator, blocks: int) -> Problem:
    keys = _keys(random, n)
    counts = np.bincount(keys % BINS, minlength=BINS).astype("u4")
    return Problem(blocks or n // BLOCK, BLOCK, (np.zeros(BINS, "u4"), keys, n), {0: counts})


def _sums(n: int, random: np.random.Generator, kind: str) -> Problem:
    keys, values = _keys(random, n), random.integers(0, 16, n).astype(kind)
    sums = np.bincount(keys % BINS, values, BINS).astype(kind)  # floats: small whole numbers, exact in any order
    return Problem(n // BLOCK, BLOCK, (np.zeros(BINS, kind), keys, values, n), {0: sums})


def _largest(n: int, random: np.random.Generator) -> Problem:
    keys, values = _keys(random, n), random.integers(0, 1 << 20, n).astype("u4")
    largest = np.zeros(BINS, "u4")
    np.maximum.at(largest, keys % BINS, values)
    return Problem(n // BLOCK, BLOCK, (np.zeros(BINS, "u4"), keys, values, n), {0: largest})


def _compacted(n: int, random: np.random.Generator) -> Problem:
    # One warp a block: which lane comes first is open, but together they fill the same places.
    a, limit = random.integers(0, 100, (n // 32, 32)).astype("u4"), 40
    passed = (a < limit).sum(axis=1).astype("u4")
    return Problem(n // 32, 32, (np.zeros_like(a), np.zeros_like(passed), a, limit), {1: passed})


def _spread(n: int, random: np.random.Generator) -> Problem:
    a = random.integers(0, 100, n).astype("u4")
    return Problem(n // BLOCK, BLOCK, (np.zeros(1024, "u4"), a, n), {0: a.reshape(-1, 1024).sum(axis=0).astype("u4")})


def _exchanged(n: int, random: np.random.Generator) -> Problem:
    slots, a = (random.integers(0, 100, (n // BLOCK, BLOCK)).astype("u4") for _ in range(2))
    place = np.arange(BLOCK) * 5 % BLOCK
    left = slots.copy()
    left[:, place] = a
    return Problem(n // BLOCK, BLOCK, (np.zeros_like(a), slots, a), {0: slots[:, place], 1: left})


GROUP = Group(
    "atomics",
    (
        Case("histogram_global", "bad: every byte is an addition in global memory", lambda n, random: _histogram(n, random, 0)),
        Case("histogram_shared", "good: bins in shared memory", lambda n, random: _histogram(n, random, 2)),
        Case("histogram_private", "good: eight copies of the bins side by side", lambda n, random: _histogram(n, random, 2)),
        Case("sums_by_key", "bad: lanes with equal keys wait for each other", lambda n, random: _sums(n, random, "u4")),
        Case("largest_by_key", "bad: maxima in global memory, result not used", _largest),
        Case("float_sums", "bad: a loop of compare and swap in shared memory", lambda n, random: _sums(n, random, "f4")),
        Case("compacted", "bad: all lanes add to one word and use what was there", _compacted),
        Case("spread_additions", "good: additions side by side", _spread),
        Case("exchanged", "exchanges in shared memory at an odd stride", _exchanged),
    ),
)
