"""Report accesses that were not examined: silence would read as "no problem"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from memlane.record import Skipped, kernel_label

_MOST = 8
"""Largest number of accesses listed individually."""


def skipped_note(skipped: Iterable[Skipped]) -> str:
    """Return `Not examined: 2 x ld.global.f32 in helper (called, not inlined; odd.cu:12).`, or nothing if all accesses were examined."""
    amounts = Counter(skipped_place(one) for one in skipped)
    if not amounts:
        return ""
    told = [f"{amount} x {op} in {function} ({reason}; {place})" for (op, function, reason, place), amount in amounts.items()]
    left = sum(list(amounts.values())[_MOST:])
    return f"Not examined: {'; '.join(told[:_MOST])}{f'; and {left:,} more' if left else ''}."


def skipped_place(one: Skipped) -> tuple[str, str, str, str]:
    """Return operation, function, reason and place, which together identify an access to a reader."""
    return one.op, kernel_label(one.function), one.reason, f"{PurePath(one.file).name}:{one.line}"
