"""Bind the entries of the oracle's chapters to sections of the manual, and hold what the chapters share. See `oracle`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from instructions import Spelling

from memlane.ptx import SCALAR_TYPES

Answer = int | Sequence[int]
"""The bits of the result, or of the results."""
OfThread = Callable[..., Answer]
OfBlock = Callable[..., Sequence[Sequence[int]]]

THREADS: dict[str, OfThread] = {}
BLOCKS: dict[str, OfBlock] = {}


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


# -- what the chapters share ---------------------------------------------------------------------------------------------------------


def signed(value: int, bits: int) -> int:
    """Return the number that `bits` bits stand for in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(value: int, kind: str) -> int:
    """Return the integer that the bits of a type stand for."""
    scalar = SCALAR_TYPES[kind]
    bits = scalar.bits // scalar.lanes
    return signed(value, bits) if scalar.kind == "s" else value & ((1 << bits) - 1)


def clamped(value: int, kind: str) -> int:
    """Return the nearest integer that a type holds, as its bits."""
    scalar = SCALAR_TYPES[kind]
    bits = scalar.bits // scalar.lanes
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if scalar.kind == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high) & ((1 << bits) - 1)


def word_of(spelling: Spelling, *words: str) -> str:
    """Return the one of some words that a form has; empty for none."""
    return next((word for word in words if spelling.has(word)), "")
