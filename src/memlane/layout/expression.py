"""Build integer expressions for index maps, each with the range of its possible values.

A map is defined once, as an expression of its coordinates; `program` evaluates it over Python integers and NumPy arrays and prints it as
CUDA C++ and Python, so that these cannot compute different things.

    i, j = name("i", 32), name("j", 32)
    i * 32 + (j ^ i)

Division and remainder round as in Python. The ranges let operators drop operations without effect and turn multiplications and divisions by
powers of two into shifts: the remaining operations are what a kernel has to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memlane.errors import LayoutError
from memlane.number_format import plural

LARGEST = 1 << 62
"""Largest magnitude of a value; larger ones would not fit the integers of NumPy and of the GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A number, a name, a table lookup, or an operator with two operands; its value lies in low..high."""

    op: str
    """Kind of expression: `number`, `name`, `table`, or the operator in Python's notation; also `min` and `max`."""
    operands: tuple[Expression, ...]
    low: int
    high: int
    value: int | str | tuple[int, ...] = 0
    """The value of a number, a name or a table."""

    def __add__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        return self if right.is_number(0) else right if self.is_number(0) else _operation("+", self, right)

    def __sub__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        return self if right.is_number(0) else _operation("-", self, right)

    def __mul__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        if right.is_number(1):
            return self
        if right.is_number(0):
            return right
        return self << _power(right) if self.low >= 0 and _power(right) else _operation("*", self, right)

    def __floordiv__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        if right.low <= 0 <= right.high:
            raise LayoutError("a divisor that can be 0")
        if right.is_number(1):
            return self
        if self.low >= 0 and self.high < right.low:
            return number(0)
        return self >> _power(right) if _power(right) else _operation("//", self, right)

    def __mod__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        if right.low <= 0 <= right.high:
            raise LayoutError("a divisor that can be 0")
        if self.low >= 0 and self.high < right.low:
            return self
        return self & (right.low - 1) if right.is_number(1) or _power(right) else _operation("%", self, right)

    def __and__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        if right.is_number(0) or self.is_number(0):
            return number(0)
        if right.op == "number" and self.low >= 0 and self.high < _lowest_clear_bit(right.low):
            return self
        return _operation("&", self, right)

    def __or__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        return self if right.is_number(0) else right if self.is_number(0) else _operation("|", self, right)

    def __xor__(self, other: Expression | int) -> Expression:
        right = _expression(other)
        return self if right.is_number(0) else right if self.is_number(0) else _operation("^", self, right)

    def __lshift__(self, other: Expression | int) -> Expression:
        right = _distance(_expression(other))
        return self if right.is_number(0) else _operation("<<", self, right)

    def __rshift__(self, other: Expression | int) -> Expression:
        right = _distance(_expression(other))
        return self if right.is_number(0) else _operation(">>", self, right)

    def minimum(self, other: Expression | int) -> Expression:
        """Return the minimum of the two."""
        right = _expression(other)
        return self if self.high <= right.low else right if right.high <= self.low else _operation("min", self, right)

    def maximum(self, other: Expression | int) -> Expression:
        """Return the maximum of the two."""
        right = _expression(other)
        return self if self.low >= right.high else right if right.low >= self.high else _operation("max", self, right)

    def is_number(self, value: int) -> bool:
        return self.op == "number" and self.low == value


def name(word: str, count: int) -> Expression:
    """Return a coordinate in 0..count-1; a number if there is only one value."""
    return Expression("name", (), 0, count - 1, word) if count > 1 else number(0)


def number(value: int) -> Expression:
    return Expression("number", (), value, value, value)


def table(values: Sequence[int], index: Expression) -> Expression:
    """Return values[index]; a number if all values are equal."""
    if min(values) == max(values):
        return number(values[0])
    return Expression("table", (index,), min(values), max(values), tuple(values))


def xor_all(parts: Sequence[Expression]) -> Expression:
    """Return the XOR of all `parts`; 0 without any."""
    joined = number(0)
    for part in parts:
        joined = joined ^ part
    return joined


def _expression(value: Expression | int) -> Expression:
    return value if isinstance(value, Expression) else number(value)


def _power(factor: Expression) -> int:
    """Return the exponent of a number that is a power of two, else 0."""
    value = factor.low
    return value.bit_length() - 1 if factor.op == "number" and value > 1 and value & (value - 1) == 0 else 0


def _lowest_clear_bit(mask: int) -> int:
    """Return the value of the lowest bit that a mask clears."""
    return ~mask & (mask + 1)


def _distance(shift: Expression) -> Expression:
    if shift.low < 0 or shift.high > 62:
        raise LayoutError(f"a shift by {shift.low} to {plural(shift.high, 'bit')}; it can be 0 to 62")
    return shift


def _operation(op: str, left: Expression, right: Expression) -> Expression:
    if left.op == right.op == "number":
        low = high = _apply(op, left.low, right.low)
    else:
        low, high = _range(op, left, right)
    if max(-low, high) > LARGEST:
        raise LayoutError(f"values of up to {max(-low, high):,} do not fit into 64 bits")
    return number(low) if left.op == right.op == "number" else Expression(op, (left, right), low, high)


def _range(op: str, left: Expression, right: Expression) -> tuple[int, int]:
    """Return a range that contains all values of the operation."""
    if op in ("&", "|", "^"):
        return _range_of_bits(op, left, right)
    ends = [_apply(op, a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    if op == "%":
        return (0, max(abs(right.low), abs(right.high)) - 1) if right.low > 0 else (min(right.low, 0) + 1, max(right.high - 1, 0))
    return min(ends), max(ends)


def _range_of_bits(op: str, left: Expression, right: Expression) -> tuple[int, int]:
    bound = 1 << max(abs(end).bit_length() for side in (left, right) for end in (side.low, side.high))
    positive = [side.high for side in (left, right) if side.low >= 0]
    if op == "&" and positive:
        return 0, min(positive)
    return (0 if len(positive) == 2 else -bound), bound - 1


def _apply(op: str, a: int, b: int) -> int:
    return int(OPERATORS[op](a, b))


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "min": min,
    "max": max,
}
