"""Describe the kernels of `kernels/divergence.cu`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from corpus import Array, Case, Group, Problem

TURNS = 8

Lane = Callable[[Array, int], tuple[int | None, ...]]
"""Function that returns what a lane stores in each row of the output; None where it stores nothing."""


def _case(kernel: str, about: str, lane: Lane, block: int = 128) -> Case:
    def make(n: int, random: np.random.Generator) -> Problem:
        a = random.integers(0, 8, (TURNS + 1, n)).astype("i4")
        out = np.zeros((3, n), "i4")
        for i in range(n):
            for row, value in enumerate(lane(a, i)):
                if value is not None:
                    out[row, i] = value
        return Problem(n // block, block, (np.zeros((3, n), "i4"), a, TURNS, n), {0: out})

    return Case(kernel, about, make)


def _step(choice: int, x: int, y: int) -> int:
    return x * y if choice & 1 else x + y


def _pointer(a: Array, i: int) -> tuple[int]:
    return (_step(a[0, i], i, 3),)


def _twice(a: Array, i: int) -> tuple[int]:
    once = _step(a[0, i] + 1, i, 3)
    return (once + _step(a[0, i] + 1, once, 5),)


def _in_turns(a: Array, i: int, turns: int) -> tuple[int]:
    x = int(a[0, i])
    for k in range(turns):
        x = _step(x, x, int(a[k, i])) & 1023
    return (x,)


def _before_branch(a: Array, i: int) -> tuple[int]:
    x, k = _step(a[0, i], int(a[0, i]), 3), 0
    while k < x & 3:
        x, k = x + int(a[k, i]), k + 1
    return (x,)


def _in_branch_of_function(a: Array, i: int) -> tuple[int]:
    x = int(a[0, i])
    return ((_step(x, x, 5) if x > 2 else x) + int(a[0, i]),)


def _left(count: int) -> int:
    total = 0
    for k in range(count):
        if total > 4:
            return total * 3
        total += k ^ count
    return total


def _fibonacci(x: int) -> int:
    return x if x < 2 else _fibonacci(x - 1) + _fibonacci(x - 2)


def _saved_barrier(a: Array, i: int) -> tuple[int]:
    x = int(a[0, i])
    return (x if x <= 2 else ((x + 1) * 3 if x & 1 else x) + x,)


def _exits(a: Array, i: int) -> tuple[int | None, ...]:
    x = int(a[0, i])
    return (None,) * 3 if x == 3 else (x, x, None) if x > 5 else (x, None, x)


def _out_of_two_loops(a: Array, i: int) -> tuple[int | None]:
    total = 0
    for k in range(a[0, i]):
        for j in range(k):
            total += int(a[j, i])
            if total > 9:
                return (total,)
        if total == 7:
            return (None,)
    return (total,)


def _out_through_store(a: Array, i: int) -> tuple[int, int | None]:
    total = 0
    for k in range(TURNS):
        for j in range(2):
            total += int(a[k + j, i])
            if total > 16:
                return total, k
    return total, None


def _two_entrances(a: Array, i: int) -> tuple[int]:
    k, total, first = 0, 0, not a[0, i] & 1
    while True:
        if first:
            total, k = total + int(a[k, i]), k + 1
            if k >= TURNS:
                return (total,)
        total, k, first = total ^ (int(a[k, i]) + k), k + 1, True
        if k >= TURNS or total >= 20:
            return (total,)


def _two_back_edges(a: Array, i: int) -> tuple[int, int | None]:
    k, total = 0, 0
    while True:
        total, k = total + int(a[k, i]), k + 1
        if k >= TURNS:
            return total, None
        if not total & 1:
            total += int(a[k + 1, i]) * 3
            if total >= 40:
                return total, total


def _conditions(a: Array, i: int) -> tuple[int]:
    x = int(a[0, i])
    return (int(a[3, i]) if x & 1 and (x & 2 or a[1, i] & 4) and a[2, i] > 3 else x,)


def _jump_table(a: Array, i: int) -> tuple[int | None, ...]:
    x = int(a[0, i])
    values = (_left(i & 7), 7 * i, i // 3, i // 3, None, int(a[1, i]), int(a[2, i]) * 5, int(a[3, i]) + 1)
    return values[x], 9 if x == 2 else None


GROUP = Group(
    "divergence",
    (
        _case("pointer", "lanes call different functions through a pointer", _pointer),
        _case("pointer_twice", "the same twice", _twice),
        _case("pointer_in_turns", "the same four times, with loads in between", lambda a, i: _in_turns(a, i, 4)),
        _case("pointer_in_loop", "the same in a loop, whose lanes wait for each other", lambda a, i: _in_turns(a, i, TURNS)),
        _case("pointer_before_branch", "a loop behind such a call, whose lanes wait for each other", _before_branch),
        _case(
            "pointer_in_branch",
            "such a call in a branch, whose lanes wait for each other",
            lambda a, i: _pointer(a, i) if a[0, i] > 2 else (a[0, i],),
        ),
        _case("pointer_before_syncwarp", "`__syncwarp` behind such a call", _pointer),
        _case("pointer_before_shuffle", "a shuffle behind such a call", lambda a, i: _pointer(a, i ^ 1)),
        _case("pointer_before_syncthreads", "`__syncthreads` behind such a call", _pointer),
        _case("pointer_alike", "lanes call the same function through a pointer", lambda a, i: (i + a[0, i],)),
        _case("pointer_in_function", "such a call in a function", lambda a, i: (_step(a[0, i], int(a[0, i]), i) + 1,)),
        _case("pointer_in_branch_of_function", "such a call in a branch of a function", _in_branch_of_function),
        _case("method", "a virtual method of objects of two classes", lambda a, i: (i * i if a[0, i] & 1 else i * 3,)),
        _case("several_returns", "a function that lanes leave in several places", lambda a, i: (_left(a[0, i]),)),
        _case("exit_in_function", "a function in which lanes end", lambda a, i: (None if a[0, i] == 5 else a[0, i] * 3,)),
        _case("recursion", "a function that calls itself, for each lane as often as it says", lambda a, i: (_fibonacci(a[0, i]),)),
        _case(
            "calls_in_arms",
            "calls of one function in both arms of a branch",
            lambda a, i: ((a[0, i] + 1) * 3 if a[0, i] & 1 else (a[1, i] + 1) * 5,),
        ),
        _case("saved_barrier", "a function that calls another one from a branch", _saved_barrier),
        _case("exits", "lanes end in front of the others", _exits),
        _case("out_of_two_loops", "lanes leave two loops at once", _out_of_two_loops),
        _case("out_through_store", "lanes leave two loops through a store", _out_through_store),
        _case("two_entrances", "a loop with two entrances", _two_entrances),
        _case("two_back_edges", "a loop with two ways back", _two_back_edges),
        _case("conditions", "a condition of several parts", _conditions),
        _case("jump_table", "a jump table whose cases call, run on and end", _jump_table),
        _case(
            "turns_by_thread",
            "a loop of as many turns as the thread's number says, then a barrier",
            lambda a, i: (a[0, i] + a[0, i % 100],),
            block=64,
        ),
        _case("sleeps", "lanes sleep for different times", lambda a, i: (a[0, i], a[0, i])),
        _case("trap", "a trap that no lane comes to", lambda a, i: (a[0, i],)),
        _case("lock", "lanes take a lock one after another", lambda a, i: (a[0, i], a[0, i]), block=32),
    ),
)
