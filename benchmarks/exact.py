"""Handle floating-point numbers as exact fractions, and round them by the definition of the formats.

Nothing of the emulator is used here: this is the independent road of `oracle` and of the tests of arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt


@dataclass(frozen=True)
class Binary:
    """A binary floating-point format as IEEE 754 defines them."""

    exponent: int
    """Bits of the exponent."""
    mantissa: int
    """Bits of the mantissa, without the hidden one."""

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def one(self) -> int:
        return self.bias << self.mantissa

    @property
    def nothing(self) -> int:
        """Return the bits of the NaN that PTX instructions give, for formats with only one: all bits set except the sign."""
        return self.sign - 1

    @property
    def least_normal(self) -> Fraction:
        return Fraction(2) ** (1 - self.bias)

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign == self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign < 1 << self.mantissa

    def flushed(self, bits: int) -> int:
        """Flush a subnormal number to a zero of the same sign."""
        return bits & self.sign if self.is_subnormal(bits) else bits

    def value(self, bits: int) -> Fraction:
        """Return the number that finite `bits` stand for."""
        field, rest = (bits & ~self.sign) >> self.mantissa, bits & ((1 << self.mantissa) - 1)
        if field:
            rest += 1 << self.mantissa
        power = max(field, 1) - self.bias - self.mantissa
        size = Fraction(rest << power) if power >= 0 else Fraction(rest, 1 << -power)
        return -size if bits & self.sign else size

    def round(self, number: Fraction, direction: str) -> int:
        """Return the bits of a number that is not zero, rounded by `rn`, `rna`, `rz`, `rm` or `rp`."""
        sign, size = (self.sign, -number) if number < 0 else (0, number)
        power = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - self.bias)
        while size >= Fraction(2) ** (power + 1):
            power += 1
        shift = power - self.mantissa
        top, bottom = (size.numerator, size.denominator << shift) if shift >= 0 else (size.numerator << -shift, size.denominator)
        whole, rest = divmod(top, bottom)
        up = {
            "rn": 2 * rest > bottom or (2 * rest == bottom and whole % 2 == 1),
            "rna": 2 * rest >= bottom,
            "rz": False,
            "rm": bool(rest) and sign != 0,
            "rp": bool(rest) and sign == 0,
        }[direction]
        found = whole + up + ((power + self.bias - 1) << self.mantissa)
        if found >= self.infinity:
            outward = direction in ("rn", "rna") or direction == ("rm" if sign else "rp")
            found = self.infinity if outward else self.infinity - 1
        return found | sign


HALF, BRAIN, SINGLE, DOUBLE = Binary(5, 10), Binary(8, 7), Binary(8, 23), Binary(11, 52)
FORMATS = {"f16": HALF, "bf16": BRAIN, "f32": SINGLE, "f64": DOUBLE, "tf32": Binary(8, 10)}


# -- arithmetic: bits of a format, or None for what is no number ---------------------------------------------------------------------


def zero_of(form: Binary, negative: bool) -> int:
    return form.sign if negative else 0


def negative(form: Binary, bits: int) -> bool:
    return bool(bits & form.sign)


def exact_sum(form: Binary, terms: list[Fraction], zero_signs: list[bool], direction: str) -> int:
    """Return the sum of numbers, where `zero_signs` holds the signs of the terms. A sum of zero is -0 if all terms are negative zeros, or
    if it is rounded down and not all terms are positive zeros."""
    total = sum(terms, Fraction(0))
    if total:
        return form.round(total, direction)
    if any(terms):
        return zero_of(form, direction == "rm")
    return zero_of(form, all(zero_signs) or (direction == "rm" and any(zero_signs)))


def added(form: Binary, a: int, b: int, direction: str) -> int | None:
    if form.is_nan(a) or form.is_nan(b) or (form.is_infinite(a) and form.is_infinite(b) and a != b):
        return None
    if form.is_infinite(a) or form.is_infinite(b):
        return a if form.is_infinite(a) else b
    return exact_sum(form, [form.value(a), form.value(b)], [negative(form, a), negative(form, b)], direction)


def multiplied(form: Binary, a: int, b: int, direction: str) -> int | None:
    sign = zero_of(form, negative(form, a) != negative(form, b))
    sizes = a & ~form.sign, b & ~form.sign
    if form.is_nan(a) or form.is_nan(b) or (form.infinity in sizes and 0 in sizes):
        return None
    if form.infinity in sizes:
        return form.infinity | sign
    return form.round(form.value(a) * form.value(b), direction) if all(sizes) else sign


def divided(form: Binary, a: int, b: int, direction: str) -> int | None:
    sign = zero_of(form, negative(form, a) != negative(form, b))
    size, by = a & ~form.sign, b & ~form.sign
    if form.is_nan(a) or form.is_nan(b) or size == by == 0 or size == by == form.infinity:
        return None
    if size == form.infinity or by == 0:
        return form.infinity | sign
    return form.round(form.value(a) / form.value(b), direction) if size and by != form.infinity else sign


def multiplied_and_added(form: Binary, a: int, b: int, c: int, direction: str) -> int | None:
    sizes = a & ~form.sign, b & ~form.sign
    minus = negative(form, a) != negative(form, b)
    if form.is_nan(a) or form.is_nan(b) or form.is_nan(c) or (form.infinity in sizes and 0 in sizes):
        return None
    if form.infinity in sizes:
        return added(form, form.infinity | zero_of(form, minus), c, direction)
    if form.is_infinite(c):
        return c
    return exact_sum(form, [form.value(a) * form.value(b), form.value(c)], [minus, negative(form, c)], direction)


def root(form: Binary, a: int, direction: str) -> int | None:
    if form.is_nan(a) or (negative(form, a) and a != form.sign):
        return None
    if a in (0, form.sign, form.infinity):
        return a
    scaled = form.value(a) * 4 ** (form.bias + form.mantissa + 8)
    whole = isqrt(scaled.numerator)  # scaled is an integer, and its root has more bits than the format
    inexact = Fraction(1, 2) if whole * whole != scaled else Fraction(0)
    return form.round((whole + inexact) / Fraction(2) ** (form.bias + form.mantissa + 8), direction)


def converted(target: Binary, source: Binary, bits: int, direction: str) -> int | None:
    if source.is_nan(bits):
        return None
    sign = zero_of(target, negative(source, bits))
    if source.is_infinite(bits):
        return target.infinity | sign
    return target.round(source.value(bits), direction) if source.value(bits) else sign
