"""Floating-point numbers as exact fractions, and rounded from them by the definition of the formats."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


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

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign == self.infinity

    def value(self, bits: int) -> Fraction:
        """The number that finite `bits` stand for."""
        field, rest = (bits & ~self.sign) >> self.mantissa, bits & ((1 << self.mantissa) - 1)
        if field:
            rest += 1 << self.mantissa
        power = max(field, 1) - self.bias - self.mantissa
        size = Fraction(rest) * (Fraction(2) ** power)
        return -size if bits & self.sign else size

    def round(self, number: Fraction, direction: str) -> int:
        """The bits of a number that is not zero, rounded by `rn`, `rna`, `rz`, `rm` or `rp`."""
        sign, size = (self.sign, -number) if number < 0 else (0, number)
        power = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - self.bias)
        while size >= Fraction(2) ** (power + 1):
            power += 1
        scaled = size / Fraction(2) ** (power - self.mantissa)
        whole, rest = divmod(scaled, 1)
        half = Fraction(1, 2)
        up = {
            "rn": rest > half or (rest == half and whole % 2 == 1),
            "rna": rest >= half,
            "rz": False,
            "rm": bool(rest) and sign != 0,
            "rp": bool(rest) and sign == 0,
        }[direction]
        found = int(whole) + up + ((power + self.bias - 1) << self.mantissa)
        if found >= self.infinity:
            outward = direction in ("rn", "rna") or direction == ("rm" if sign else "rp")
            found = self.infinity if outward else self.infinity - 1
        return found | sign


HALF, BRAIN, SINGLE, DOUBLE = Binary(5, 10), Binary(8, 7), Binary(8, 23), Binary(11, 52)
