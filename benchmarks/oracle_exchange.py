"""Compute exchanges within a warp or a block, where each function gets all threads of a block, and `lop3`, whose table is in the case
alone."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

from oracle_integer import lop3
from oracle_table import NotKnownError, group_answers, number

from cases import Case

_SYNC = "parallel-synchronization-and-communication-instructions-"
Threads = Sequence[tuple[int, ...]]
Results = list[Sequence[int]]


def _by_warps(threads: Threads, of_warp: Callable[[Threads], Results]) -> Results:
    return [row for start in range(0, len(threads), 32) for row in of_warp(threads[start : start + 32])]


@group_answers("logic-and-shift-instructions-lop3")
def lop3_of_case(case: Case, threads: Threads) -> Results:
    table = int(case.name.rpartition(" ")[2], 16)
    return [lop3(table, case.spelling.form.slots.get("bool", ""), *thread) for thread in threads]


@group_answers(_SYNC + "shfl-sync")
def shfl(case: Case, threads: Threads) -> Results:
    """Exchange values within a warp by the manual's pseudocode. Each lane selects by its own b and c whose value it reads."""
    mode = case.spelling.form.slots["mode"]

    def of_warp(warp: Threads) -> Results:
        found: Results = []
        for lane, (_, b, c) in enumerate(warp):
            distance, clamp, segment = b & 31, c & 31, c >> 8 & 31
            last = (lane & segment) | (clamp & ~segment & 31)
            if mode == "idx":
                source = (lane & segment) | (distance & ~segment & 31)
            else:
                source = {"up": lane - distance, "down": lane + distance, "bfly": lane ^ distance}[mode]
            inside = source >= last if mode == "up" else source <= last
            found.append([warp[source if inside else lane][0], int(inside)])
        return found

    return _by_warps(threads, of_warp)


@group_answers(_SYNC + "vote-sync")
def vote(case: Case, threads: Threads) -> Results:
    def of_warp(warp: Threads) -> Results:
        bits = [a for (a,) in warp]
        if case.spelling.has("ballot"):
            return [[sum(bit << lane for lane, bit in enumerate(bits))]] * 32
        holds = {"all": all(bits), "any": any(bits), "uni": len(set(bits)) == 1}
        return [[int(holds[case.spelling.form.slots["mode"]])]] * 32

    return _by_warps(threads, of_warp)


@group_answers(_SYNC + "match-sync")
def match(case: Case, threads: Threads) -> Results:
    def of_warp(warp: Threads) -> Results:
        same = [sum((other == one) << lane for lane, other in enumerate(warp)) for one in warp]
        if case.spelling.has("any"):
            return [[mask] for mask in same]
        return [[mask if mask == 0xFFFFFFFF else 0, int(mask == 0xFFFFFFFF)] for mask in same]

    return _by_warps(threads, of_warp)


@group_answers(_SYNC + "redux-sync")
def redux(case: Case, threads: Threads) -> Results:
    slots = case.spelling.form.slots
    if case.spelling.has("f32"):
        raise NotKnownError
    kind = slots.get("type", "b32")
    folds: dict[str, Callable[[int, int], int]] = {
        "add": operator.add,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "min": min,
        "max": max,
    }
    fold = folds[slots["op"]]
    return _by_warps(threads, lambda warp: [[functools.reduce(fold, [number(value, kind) for (value,) in warp]) & 0xFFFFFFFF]] * 32)


@group_answers(_SYNC + "activemask")
def activemask(case: Case, threads: Threads) -> Results:
    """Return the mask of all lanes. The manual promises only lanes that run; here all of them do."""
    return [[0xFFFFFFFF]] * len(threads)


@group_answers(_SYNC + "elect-sync")
def elect(case: Case, threads: Threads) -> Results:
    """Return the elected lane. The manual only promises that it is always the same; an H200 elects the lowest."""
    return [[0, int(place % 32 == 0)] for place in range(len(threads))]


@group_answers("warp-level-matrix-instructions-movmatrix")
def movmatrix(case: Case, threads: Threads) -> Results:
    """Return the transposed matrix. Lane l holds two cells of 16 bits in row l / 4, from column 2 (l % 4) on, before and after."""

    def of_warp(warp: Threads) -> Results:
        cells = {(lane // 4, 2 * (lane % 4) + half): a >> 16 * half & 0xFFFF for lane, (a,) in enumerate(warp) for half in (0, 1)}
        places = [(lane // 4, 2 * (lane % 4)) for lane in range(32)]
        return [[cells[column, row] | cells[column + 1, row] << 16] for row, column in places]

    return _by_warps(threads, of_warp)


@group_answers(_SYNC + "bar")
def barrier(case: Case, threads: Threads) -> Results:
    """Return the reduction over the whole block."""
    bits = [a for (a,) in threads]
    found = sum(bits) if case.spelling.has("popc") else int(all(bits) if case.spelling.has("and") else any(bits))
    return [[found]] * len(threads)
