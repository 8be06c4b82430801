"""Define the abstract values of registers, with respect to arrays in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlane.ptx import Immediate, Operand
from memlane.rewrite.arrays import SharedArray


@dataclass(frozen=True, slots=True)
class Pointer:
    """Address in an array."""

    array: SharedArray
    generic: bool
    bits: int
    """Width of the register: 32 or 64."""
    offset: int | None
    """Byte offset in the array; None if it is known only at run time."""
    multiple: int = 1
    """Power of two that divides the offset; used if the offset is unknown."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Address in one of several arrays, or either an address in an array or another value, depending on the path taken."""

    arrays: frozenset[SharedArray]


@dataclass(frozen=True, slots=True)
class Number:
    """Any value that is not an address in an array; as an integer a multiple of this power of two."""

    multiple: int = 1


ANY = Number()
MOST = 1 << 16
"""Greatest power of two that is tracked."""
Value = Pointer | Mixed | Number
"""Abstract value of a register."""


def join(one: Value, other: Value) -> Value:
    """Return the join of two values."""
    if one == other:
        return one
    if isinstance(one, Pointer) and isinstance(other, Pointer) and (one.array, one.generic) == (other.array, other.generic):
        return replace(one, offset=None, multiple=min(multiple(one), multiple(other)))
    if isinstance(one, Number) and isinstance(other, Number):
        return Number(min(one.multiple, other.multiple))
    return Mixed(arrays_of(one) | arrays_of(other))


def multiple(value: Value) -> int:
    """Return the power of two that divides a number, or the offset of an address."""
    if isinstance(value, Pointer) and value.offset is not None:
        return power_of(value.offset)
    return 1 if isinstance(value, Mixed) else value.multiple


def power_of(number: int) -> int:
    """Return the greatest power of two that divides a number, up to `MOST`."""
    return min(MOST, number & -number) if number else MOST


def wrapped(offset: int) -> int:
    """Return an offset in shared memory as the equivalent number closest to 0: addresses there have 32 bits."""
    return (offset + (1 << 31)) % (1 << 32) - (1 << 31)


def arrays_of(value: Value) -> frozenset[SharedArray]:
    """Return the arrays that a value may be an address in."""
    if isinstance(value, Mixed):
        return value.arrays
    return frozenset({value.array}) if isinstance(value, Pointer) else frozenset()


def constant(operand: Operand) -> int | None:
    """Return the value of an integer immediate, as a signed number of 64 bits; None for any other operand."""
    if not isinstance(operand, Immediate) or operand.kind != "int":
        return None
    return operand.value - (1 << 64) if operand.value >= 1 << 63 else operand.value
