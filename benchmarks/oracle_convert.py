"""Compute conversions."""

from __future__ import annotations

import math
from fractions import Fraction

from exact import FORMATS, HALF, SINGLE, Binary, converted
from instructions import Spelling
from oracle_table import NotKnownError, answers, clamped, number, signed, word_of

from memlane.ptx import SCALAR_TYPES

_SECTION = "data-movement-and-conversion-instructions-"
_INTEGRAL = ("rni", "rzi", "rmi", "rpi")


@answers(_SECTION + "cvt")
def cvt(s: Spelling, *values: int) -> int:
    target, source = s.name.split(".")[-2:]
    if s.has("rs"):
        raise NotKnownError
    if "x2" in target + source:
        return _packed(s, target, source, values)
    (a,) = values
    to, by = SCALAR_TYPES[target].kind == "f", SCALAR_TYPES[source].kind == "f"
    if by:
        return _between_floats(s, target, source, a) if to else _to_integer(s, target, source, a)
    x = number(a, source)
    if not to:
        return clamped(x, target) if s.has("sat") else x & ((1 << SCALAR_TYPES[target].bits) - 1)
    if s.has("sat"):
        x = min(max(x, 0), 1)
    return FORMATS[target].round(Fraction(x), _direction(s)) if x else 0


def _direction(s: Spelling) -> str:
    return word_of(s, "rna", "rz", "rm", "rp") or "rn"


def _integral(x: Fraction, way: str) -> int:
    return {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[way](x)


def _operand(s: Spelling, source: str, target: str, a: int) -> int:
    """Return the operand; with `.ftz` a subnormal f32 is zero, except in conversions to f16 (observed on H200)."""
    return SINGLE.flushed(a) if s.has("ftz") and source == "f32" and target != "f16" else a


def _to_integer(s: Spelling, target: str, source: str, a: int) -> int:
    """Convert to an integer. Numbers out of range become the nearest integer. A NaN becomes 0, or only the top bit if one side has 64 bits
    (the manual)."""
    form, bits = FORMATS[source], SCALAR_TYPES[target].bits
    a = _operand(s, source, target, a)
    if form.is_nan(a):
        return 1 << (bits - 1) if 64 in (bits, form.bits) else 0
    if form.is_infinite(a):
        return clamped(-(1 << 70) if a & form.sign else 1 << 70, target)
    return clamped(_integral(form.value(a), word_of(s, *_INTEGRAL)), target)


def _between_floats(s: Spelling, target: str, source: str, a: int) -> int:
    to, by = FORMATS[target], FORMATS[source]
    a = _operand(s, source, target, a)
    if by.is_nan(a):
        return _nothing(s, target, source, a)
    way = word_of(s, *_INTEGRAL)
    if way and not by.is_infinite(a):
        x = _integral(by.value(a), way)
        a = by.round(Fraction(x), "rn") if x else a & by.sign
    if s.has("sat"):
        a = 0 if a & by.sign else min(a, by.one)
    found = converted(to, by, a, "rn" if way else _direction(s))
    assert found is not None
    if s.has("ftz") and target == "f32":
        found = to.flushed(found)
    return _limited(s, to, found) << (13 if target == "tf32" else 0)


def _limited(s: Spelling, to: Binary, found: int) -> int:
    """Apply `.satfinite` (the largest finite number instead of infinity) and `.relu` (0 instead of a negative number)."""
    if s.has("relu") and found & to.sign:
        return 0
    return found - 1 if s.has("satfinite") and to.is_infinite(found) else found


def _nothing(s: Spelling, target: str, source: str, a: int) -> int:
    """Convert a NaN.

    By the manual, `.sat` gives 0, and else f16, bf16 and tf32 get the canonical NaN. The rest is observed on H200: the result keeps the
    sign and the upper payload bits of an f64, and all bits of an f32 or bf16 that is only widened or passed on.
    """
    to, by = FORMATS[target], FORMATS[source]
    if s.has("sat"):
        return 0
    if target == "tf32":
        if s.has("rna"):  # it is cut, and with .satfinite counted down by one as infinity is
            return (a & 0xFFFFE000) - (0x2000 if s.has("satfinite") else 0)
        return to.nothing << 13
    quiet = to.infinity | 1 << (to.mantissa - 1)
    sign = to.sign if a & by.sign else 0
    if source == "f64" and target != "f64":
        return sign | quiet | (a & ((1 << by.mantissa) - 1)) >> (by.mantissa - to.mantissa)
    if target == "f32" and source in ("bf16", "f32") and not s.has("ftz") and not word_of(s, *_INTEGRAL):
        return a << (SINGLE.bits - by.bits)
    return to.nothing


# -- pairs and short formats -----------------------------------------------------------------------------------------------------------

_SHORT = {"e4m3": (4, 3, 0x7E), "e5m2": (5, 2, 0x7B)}
"""Bits of exponent and fraction, and the largest number."""


def _short_value(kind: str, bits: int) -> Fraction:
    exponent, mantissa, _ = _SHORT[kind]
    field, rest = bits >> mantissa, bits & ((1 << mantissa) - 1)
    rest += (1 << mantissa) if field else 0
    return Fraction(rest) * Fraction(2) ** (max(field, 1) - (1 << (exponent - 1)) + 1 - mantissa)


_NUMBERS = {kind: [_short_value(kind, bits) for bits in range(largest + 1)] for kind, (_, _, largest) in _SHORT.items()}


def _to_short(s: Spelling, kind: str, by: Binary, a: int) -> int:
    """Return the nearest number of the format, ties to even. A number that is too large becomes the largest."""
    if by.is_nan(a):
        return 0x7F
    sign = 0x80 if a & by.sign else 0
    if s.has("relu") and sign:
        return 0
    numbers = _NUMBERS[kind]
    if by.is_infinite(a) or abs(by.value(a)) >= numbers[-1]:
        return sign | len(numbers) - 1
    x = abs(by.value(a))
    low = max(bits for bits in range(len(numbers)) if numbers[bits] <= x)
    below, above = x - numbers[low], numbers[low + 1] - x
    return sign | low + (above < below or (above == below and low % 2 == 1))


def _from_short(s: Spelling, kind: str, bits: int) -> int:
    """Decode an 8-bit number. e5m2 has infinities and NaNs like f16; e4m3 has only one NaN."""
    size, sign = bits & 0x7F, bits & 0x80
    if size > _SHORT[kind][2]:
        is_infinite = kind == "e5m2" and size == 0x7C
        if not is_infinite:
            return HALF.nothing
        return 0 if s.has("relu") and sign else HALF.infinity | sign << 8
    if s.has("relu") and sign:
        return 0
    x = _NUMBERS[kind][size]
    return (HALF.round(x, "rn") if x else 0) | sign << 8


def _packed(s: Spelling, target: str, source: str, values: tuple[int, ...]) -> int:
    """Pack two results, with `a` in the upper half. Each half of a packed operand goes to the same half of the result."""
    kind = target.removesuffix("x2")
    if source == "f32":
        parts = [_one_of_pair(s, kind, SINGLE, value) for value in values]
    else:
        width = 16 if source == "f16x2" else 8
        halves = [values[0] >> width & ((1 << width) - 1), values[0] & ((1 << width) - 1)]
        if source == "f16x2":
            parts = [_one_of_pair(s, kind, HALF, half) for half in halves]
        else:
            parts = [_from_short(s, source.removesuffix("x2"), half) for half in halves]
    return parts[0] << (8 if kind in _SHORT else 16) | parts[1]


def _one_of_pair(s: Spelling, kind: str, by: Binary, a: int) -> int:
    if kind in _SHORT:
        return _to_short(s, kind, by, a)
    to = FORMATS[kind]
    found = converted(to, by, a, _direction(s))
    return to.nothing if found is None else _limited(s, to, found)


@answers(_SECTION + "cvt-pack")
def cvt_pack(s: Spelling, a: int, b: int, c: int = 0) -> int:
    """Pack `b` lowest, `a` above it, and the lower bits of `c` above both."""
    name = s.form.slots["dtype"]
    bits = int(name[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
    x, y = (min(max(signed(value, 32), low), high) & ((1 << bits) - 1) for value in (a, b))
    return (c << 2 * bits | x << bits | y) & 0xFFFFFFFF
