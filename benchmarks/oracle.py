"""Compute the results of instructions in plain Python integers and fractions, to compare the emulator and a GPU with.

Each entry is written from the PTX manual and knows nothing of the emulator. Where the manual leaves the result open, or is easily read
otherwise, and the entry follows the GPU, it says *observed on H200*. Entries are bound to sections of the manual in the files of a
chapter, `oracle_<chapter>`; they are of two kinds:

- `@answers(section)`: a function of a form and the bits of its operands, for one thread;
- `@group_answers(section)`: the same for all threads of a block at once, where threads exchange.

Of an approximate instruction an entry gives the nearest number to the true value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import oracle_carry
import oracle_compare
import oracle_convert
import oracle_exchange
import oracle_floating
import oracle_integer
import oracle_memory
import oracle_video
from operands import Bits, width
from oracle_table import BLOCKS, THREADS, Answer, NotKnownError

from cases import Case
from memlane.ptx import SCALAR_TYPES

CHAPTERS = (oracle_integer, oracle_carry, oracle_floating, oracle_compare, oracle_convert, oracle_memory, oracle_exchange, oracle_video)
"""Modules that are imported to bind their entries."""
BLOCK_THREADS = 128


def expected(case: Case, operands: Sequence[Bits], count: int = BLOCK_THREADS) -> list[Bits] | None:
    """Return the results for each tuple of operands, or None for a form without an oracle. `count` is the number of threads that run a form
    without operands."""
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
    """Return whether there is an oracle for a form."""
    count = BLOCK_THREADS if case.spelling.row.manual in BLOCKS else 1
    return expected(case, [np.zeros(count, np.uint64)] * len(case.operands)) is not None


def _row(answer: Answer) -> Sequence[int]:
    return (answer,) if isinstance(answer, int) else answer


def _extended(kind: str, bits: Bits) -> Bits:
    """Return the results as the register holds them: those of eight bits are extended by their sign, or by zeros."""
    if kind not in SCALAR_TYPES or SCALAR_TYPES[kind].bits >= width(kind) or kind == "pred":
        return bits
    short, wide = SCALAR_TYPES[kind].bits, width(kind)
    if SCALAR_TYPES[kind].kind != "s":
        return bits & np.uint64((1 << short) - 1)
    high = np.uint64((1 << wide) - (1 << short))
    return np.where(bits >> np.uint64(short - 1) & np.uint64(1), bits | high, bits & np.uint64((1 << short) - 1))
