"""Define swizzles: some bits of the index XORed with others."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.errors import LayoutError
from memlane.layout.expression import Expression
from memlane.layout.layout import Layout, power_of_two, whole_number
from memlane.number_format import plural

_BITS = 62
"""Maximum bits of an index that fit a signed 64-bit integer."""


@dataclass(frozen=True)
class XorSwizzle(Layout):
    """Row-major with column j of row i at j ^ (i mod columns)."""

    def check(self) -> None:
        power_of_two("the columns of an XOR swizzle", self.columns)

    def offset(self, i: Expression, j: Expression) -> Expression:
        return i * self.columns + (j ^ i % self.columns)

    def offset_of_index(self, k: Expression) -> Expression:
        return k ^ k // self.columns % self.columns

    def index(self, offset: Expression) -> Expression | None:
        return offset ^ offset // self.columns % self.columns


@dataclass(frozen=True)
class Swizzle(Layout):
    """CuTe's `Swizzle<bits, base, shift>` of the row-major index.

    The `bits` bits from `base + shift` on are XORed into those from `base` on; with a negative shift those from `base` on into those from
    `base - shift` on. Vectors of 2**base elements stay contiguous.
    """

    bits: int
    base: int
    shift: int

    def check(self) -> None:
        whole_number("the bits of a swizzle", self.bits, 0)
        whole_number("the base of a swizzle", self.base, 0)
        if isinstance(self.shift, bool) or not isinstance(self.shift, int) or abs(self.shift) < self.bits:
            raise LayoutError(
                f"{self.notation}: the shift must be an integer of magnitude {self.bits} or more, so that no bit is combined with itself"
            )
        if self.base + self.bits + abs(self.shift) > _BITS:
            raise LayoutError(f"{self.notation}: base, bits and shift are bits of an index, which together are at most {_BITS}")
        unit = 1 << self.base + self.bits + max(0, -self.shift)
        if self.rows * self.columns % unit and self.bits:
            raise LayoutError(f"{self.notation} needs a tile with a multiple of {plural(unit, 'element')}, got {self.rows}x{self.columns}")

    @property
    def notation(self) -> str:
        """The swizzle in CuTe's notation."""
        return f"Swizzle<{self.bits}, {self.base}, {self.shift}>"

    def offset(self, i: Expression, j: Expression) -> Expression:
        return self.offset_of_index(i * self.columns + j)

    def offset_of_index(self, k: Expression) -> Expression:
        chosen = (1 << self.bits) - 1
        if self.shift >= 0:
            return k ^ (k >> self.shift & chosen << self.base)
        return k ^ (k & chosen << self.base) << -self.shift

    def index(self, offset: Expression) -> Expression | None:
        return self.offset_of_index(offset)  # the source bits do not change, so applying it twice is the identity

    def __str__(self) -> str:
        return f"{self.notation} of {self.rows}x{self.columns}"
