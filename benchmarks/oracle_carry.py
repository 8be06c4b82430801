"""Compute chains of additions, subtractions and products through the carry flag: the code of a case, instruction by instruction.

The manual calls what `sub.cc` leaves a borrow, and has one flag, CC.CF, for all. Observed on H200: a subtraction sets the flag where
nothing was borrowed, and the next that reads it, of either kind and width, reads that. So 5 - 3 by `sub.cc` is a carry of 1 to `addc`, and
an addition without a carry is a borrow to `subc`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from oracle_table import group_answers, number

from cases import Case
from memlane.ptx import SCALAR_TYPES

_SECTION = "extended-precision-integer-arithmetic-instructions-"
_INSTRUCTION = re.compile(r"(?:@(x\d+) )?([\w.]+) (.*)")
_READERS = ("addc", "subc", "madc")


@group_answers(*(_SECTION + name for name in ("add-cc", "addc", "sub-cc", "subc", "mad-cc", "madc")))
def carry_chain(case: Case, threads: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Run the code for each thread by itself, because its barriers change nothing."""
    return [_Thread(operands).results(case) for operands in threads]


class _Thread:
    """The registers of one thread, with the flag."""

    def __init__(self, operands: Sequence[int]) -> None:
        self.values = {f"x{place}": value for place, value in enumerate(operands)}
        self.carry = 0

    def results(self, case: Case) -> list[int]:
        """Return what the code of a case leaves in its results."""
        for text in filter(None, map(str.strip, case.code.split(";"))):
            found = _INSTRUCTION.fullmatch(text)
            assert found is not None, text
            guard, dotted, operands = found.groups()
            if not dotted.startswith("bar.") and (guard is None or self.values[guard]):
                self._run(dotted.split("."), operands.split(", "))
        return [self.values[f"@{place}"] for place in range(len(case.results))]

    def _run(self, words: Sequence[str], operands: Sequence[str]) -> None:
        kind = words[-1]
        whole = (1 << SCALAR_TYPES[kind].bits) - 1
        target, *sources = operands
        values = [self.values[name] if name in self.values else int(name, 0) & whole for name in sources]
        if words[0] == "mov":
            self.values[target] = values[0]
            return
        last = values.pop()
        first = values[0] if len(values) == 1 else _product(words, kind, *values)
        carry = self.carry if words[0] in _READERS else int(words[0] == "sub")
        total = first - last - 1 + carry if words[0].startswith("sub") else first + last + carry
        self.values[target] = total & whole
        if "cc" in words:
            self.carry = int(total >= 0) if words[0].startswith("sub") else int(total > whole)


def _product(words: Sequence[str], kind: str, a: int, b: int) -> int:
    """Return the half of the product that `.lo` or `.hi` takes."""
    bits = SCALAR_TYPES[kind].bits
    whole = number(a, kind) * number(b, kind)
    return (whole >> bits if "hi" in words else whole) & ((1 << bits) - 1)
