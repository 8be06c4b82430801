"""What instructions give, in plain Python integers and fractions: the road that the emulator and a GPU are both compared with.

Each entry is written from the PTX manual and knows nothing of the emulator. Where the manual leaves the result open, or is easily read
otherwise, and the entry follows the GPU, it says *observed on H200*. Entries are bound to sections of the manual in the files of a
chapter, `oracle_<chapter>`; they are of three kinds:

- `@answers(section)`: a function of a form and the bits of its operands, for one thread;
- `@group_answers(section)`: the same for all threads of a block at once, where threads exchange;
- `@approximates(section)`: the true value, as a float, of an instruction that gives it approximately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from instructions import Spelling
from operands import Bits, width

from cases import Case
from memlane.ptx import SCALAR_TYPES

Answer = int | Sequence[int]
"""The bits of the result, or of the results."""
OfThread = Callable[..., Answer]
OfBlock = Callable[..., Sequence[Sequence[int]]]

THREADS: dict[str, OfThread] = {}
BLOCKS: dict[str, OfBlock] = {}
BLOCK_THREADS = 128


def answers(*sections: str) -> Callable[[OfThread], OfThread]:
    """Bind a function `(spelling, a, b, ...) -> bits` to sections of the manual."""

    def bind(function: OfThread) -> OfThread:
        THREADS.update(dict.fromkeys(sections, function))
        return function

    return bind


def group_answers(*sections: str) -> Callable[[OfBlock], OfBlock]:
    """Bind a function `(case, threads) -> results of each thread`, where `threads` are the operands of each thread of a block."""

    def bind(function: OfBlock) -> OfBlock:
        BLOCKS.update(dict.fromkeys(sections, function))
        return function

    return bind


class NotKnownError(Exception):
    """An oracle does not know a form of its section: one that no chip before sm_100 has, and the emulator neither."""


def expected(case: Case, operands: Sequence[Bits], count: int = BLOCK_THREADS) -> list[Bits] | None:
    """The results for each tuple of operands, or None for a form that no oracle knows. `count` is how many threads run a form without
    operands."""
    import oracle_chapters  # noqa: F401 (they import this module to bind themselves)

    section, spelling = case.spelling.row.manual, case.spelling
    threads = list(zip(*(column.tolist() for column in operands), strict=True)) if operands else []
    try:
        if section in BLOCKS:
            rows: list[Sequence[int]] = []
            for start in range(0, len(threads) or count, BLOCK_THREADS):
                rows += BLOCKS[section](case, threads[start : start + BLOCK_THREADS] or [()] * BLOCK_THREADS)
        elif section in THREADS:
            answer = THREADS[section]
            rows = [_row(answer(spelling, *thread)) for thread in threads]
        else:
            return None
    except NotKnownError:
        return None
    return [_extended(kind, np.array([row[place] for row in rows], np.uint64)) for place, kind in enumerate(case.results)]


def knows(case: Case) -> bool:
    """Whether there is an oracle for a form."""
    count = BLOCK_THREADS if case.spelling.row.manual in BLOCKS else 1
    return expected(case, [np.zeros(count, np.uint64)] * len(case.operands)) is not None


def _row(answer: Answer) -> Sequence[int]:
    return (answer,) if isinstance(answer, int) else answer


def _extended(kind: str, bits: Bits) -> Bits:
    """As the register holds it: results of eight bits are extended by their sign, or by zeros."""
    if kind not in SCALAR_TYPES or SCALAR_TYPES[kind].bits >= width(kind) or kind == "pred":
        return bits
    short, wide = SCALAR_TYPES[kind].bits, width(kind)
    if SCALAR_TYPES[kind].kind != "s":
        return bits & np.uint64((1 << short) - 1)
    high = np.uint64((1 << wide) - (1 << short))
    return np.where(bits >> np.uint64(short - 1) & np.uint64(1), bits | high, bits & np.uint64((1 << short) - 1))


# -- what the chapters share ---------------------------------------------------------------------------------------------------------


def signed(value: int, bits: int) -> int:
    """The number that `bits` bits stand for in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(value: int, kind: str) -> int:
    """The integer that the bits of a type stand for."""
    scalar = SCALAR_TYPES[kind]
    bits = scalar.bits // scalar.lanes
    return signed(value, bits) if scalar.kind == "s" else value & ((1 << bits) - 1)


def clamped(value: int, kind: str) -> int:
    """The nearest integer that a type holds, as its bits."""
    scalar = SCALAR_TYPES[kind]
    bits = scalar.bits // scalar.lanes
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if scalar.kind == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high) & ((1 << bits) - 1)


def word_of(spelling: Spelling, *words: str) -> str:
    """The one of some words that a form has; empty for none."""
    return next((word for word in words if spelling.has(word)), "")
