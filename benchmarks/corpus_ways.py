"""Describe the kernels of `kernels/ways.cu`."""

from __future__ import annotations

import numpy as np
from corpus import Array, Case, Group, Problem

TURNS = 16


def _rows(n: int, random: np.random.Generator) -> Array:
    return random.integers(0, 8, (TURNS, n)).astype("i4")


def _ragged(n: int, random: np.random.Generator, factor: int) -> Problem:
    a, lengths = _rows(n, random), random.integers(0, TURNS, n).astype("i4")
    sums = np.where(np.arange(TURNS)[:, None] < lengths, a, 0).sum(axis=0).astype("i4")
    return Problem(n // 128, 128, (np.zeros(n, "i4"), a, lengths, n), {0: sums * factor})


def _even_turns(n: int, random: np.random.Generator) -> Problem:
    a, turns, block = _rows(n, random), 11, 48
    count = n // block * block
    sums = a[:turns].sum(axis=0).astype("i4")
    return Problem(n // block, block, (np.zeros(n, "i4"), a, turns, n), {0: np.where(np.arange(n) < count, sums, 0).astype("i4")})


def _two_conditions(n: int, random: np.random.Generator) -> Problem:
    a, i = _rows(n, random), np.arange(n)
    return Problem(n // 128, 128, (np.zeros(n, "i4"), a, n), {0: np.where((a[0] > 3) & (a[1] > 3), a[2][i * 3 % n], a[3][i * 5 % n])})


def _left_early(n: int, random: np.random.Generator) -> Problem:
    a = _rows(n, random)
    sums = a.cumsum(axis=0, dtype="i4")
    over = sums > 20
    left = over.any(axis=0)
    turn = np.where(left, over.argmax(axis=0), -1).astype("i4")
    found = np.take_along_axis(sums, turn[None], axis=0)[0]  # turn -1: the last row
    return Problem(n // 128, 128, (np.zeros(n, "i4"), np.full(n, -1, "i4"), a, TURNS, n), {0: found, 1: turn})


def _by_case(n: int, random: np.random.Generator) -> Problem:
    a, i = _rows(n, random), np.arange(n)
    at = [a[row][i * step % n] for row, step in ((1, 3), (2, 5), (3, 7), (4, 9), (5, 11), (6, 13))]
    results = [at[0] + at[1], at[1], at[2] * at[3] + at[4], at[4], at[4]]
    return Problem(n // 128, 128, (np.zeros(n, "i4"), a, n), {0: np.select([a[0] == case for case in range(5)], results, at[5])})


def _searched(n: int, random: np.random.Generator) -> Problem:
    row, wanted = np.sort(random.integers(0, n, n)).astype("i4"), random.integers(0, n, n).astype("i4")
    return Problem(n // 128, 128, (np.zeros(n, "i4"), row, wanted, n), {0: np.searchsorted(row, wanted).astype("i4")})


GROUP = Group(
    "ways",
    (
        Case("ragged", "bad: lanes leave an unrolled loop at different turns", lambda n, random: _ragged(n, random, 1)),
        Case("ragged_thrice", "bad: the same loop inside another", lambda n, random: _ragged(n, random, 6)),
        Case("even_turns", "an unrolled loop with a rest, warps half empty", _even_turns),
        Case("two_conditions", "two ways into one `else`", _two_conditions),
        Case("left_early", "lanes leave a loop through a block of their own", _left_early),
        Case("by_case", "cases that run on into the next", _by_case),
        Case("searched", "bad: a binary search for each lane", _searched),
    ),
)
