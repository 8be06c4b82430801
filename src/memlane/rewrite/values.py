"""What a register may hold, as far as arrays in shared memory go."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlane.ptx import Immediate, Operand
from memlane.rewrite.arrays import SharedArray


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address in an array."""

    array: SharedArray
    generic: bool
    bits: int
    """Of the register: 32 or 64."""
    offset: int | None
    """Bytes from where the array begins; None where only the running kernel knows."""
    multiple: int = 1
    """A power of two of which the offset is a multiple; of meaning where it is not known."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """An address in one of several arrays, or in an array or no address at all, by the path that was taken."""

    arrays: frozenset[SharedArray]


@dataclass(frozen=True, slots=True)
class Number:
    """Anything but an address in an array; as an integer a multiple of this power of two."""

    multiple: int = 1


ANY = Number()
MOST = 1 << 16
"""The greatest power of two that is kept."""
Value = Pointer | Mixed | Number
"""Of a register."""


def merged(one: Value, other: Value) -> Value:
    """What is known of a register that holds the one or the other."""
    if one == other:
        return one
    if isinstance(one, Pointer) and isinstance(other, Pointer) and (one.array, one.generic) == (other.array, other.generic):
        return replace(one, offset=None, multiple=min(multiple(one), multiple(other)))
    if isinstance(one, Number) and isinstance(other, Number):
        return Number(min(one.multiple, other.multiple))
    return Mixed(arrays_of(one) | arrays_of(other))


def multiple(value: Value) -> int:
    """The power of two of which a number, or the offset of an address, is a multiple."""
    if isinstance(value, Pointer) and value.offset is not None:
        return power_of(value.offset)
    return 1 if isinstance(value, Mixed) else value.multiple


def power_of(number: int) -> int:
    """The greatest power of two that divides it, up to `MOST`."""
    return min(MOST, number & -number) if number else MOST


def wrapped(offset: int) -> int:
    """Return an offset in shared memory as the number that is nearest to 0: addresses there have 32 bits."""
    return (offset + (1 << 31)) % (1 << 32) - (1 << 31)


def arrays_of(value: Value) -> frozenset[SharedArray]:
    if isinstance(value, Mixed):
        return value.arrays
    return frozenset({value.array}) if isinstance(value, Pointer) else frozenset()


def constant(operand: Operand) -> int | None:
    if not isinstance(operand, Immediate) or operand.kind != "int":
        return None
    return operand.value - (1 << 64) if operand.value >= 1 << 63 else operand.value
