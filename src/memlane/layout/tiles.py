"""Define tiled layouts: blocked and Morton order."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.errors import LayoutError
from memlane.layout.expression import Expression
from memlane.layout.layout import Layout, power_of_two, whole_number


@dataclass(frozen=True)
class Tiled(Layout):
    """Consecutive blocks of `block_rows` x `block_columns`, row by row; row-major inside."""

    block_rows: int
    block_columns: int

    def check(self) -> None:
        for word, block, extent in (("rows", self.block_rows, self.rows), ("columns", self.block_columns, self.columns)):
            whole_number(f"the {word} of a block", block, 1)
            if extent % block:
                raise LayoutError(f"blocks of {block} {word} do not divide a tile of {extent} {word}")

    def offset(self, i: Expression, j: Expression) -> Expression:
        block = i // self.block_rows * (self.columns // self.block_columns) + j // self.block_columns
        within = i % self.block_rows * self.block_columns + j % self.block_columns
        return block * (self.block_rows * self.block_columns) + within

    def index(self, offset: Expression) -> Expression | None:
        blocks_in_row, elements = self.columns // self.block_columns, self.block_rows * self.block_columns
        block, within = offset // elements, offset % elements
        i = block // blocks_in_row * self.block_rows + within // self.block_columns
        return i * self.columns + block % blocks_in_row * self.block_columns + within % self.block_columns


@dataclass(frozen=True)
class Morton(Layout):
    """Z-order: the bits of column and row alternate, the column's lowest first; surplus bits of the longer coordinate are the highest."""

    def check(self) -> None:
        power_of_two("the rows of a Morton order", self.rows)
        power_of_two("the columns of a Morton order", self.columns)

    @property
    def _shared_bits(self) -> int:
        """Number of bits that both coordinates have."""
        return min(self.rows, self.columns).bit_length() - 1

    def offset(self, i: Expression, j: Expression) -> Expression:
        bits = self._shared_bits
        lowest = (1 << bits) - 1
        mixed = _spread(j & lowest, bits) | _spread(i & lowest, bits) << 1
        rest = (j if self.columns > self.rows else i) >> bits
        return mixed | rest << 2 * bits if self.rows != self.columns else mixed

    def index(self, offset: Expression) -> Expression | None:
        bits = self._shared_bits
        i, j = _gathered(offset >> 1, bits), _gathered(offset, bits)
        rest = offset >> 2 * bits << bits
        if self.columns > self.rows:
            j = j | rest
        elif self.rows > self.columns:
            i = i | rest
        return i * self.columns + j


def _spread(value: Expression, bits: int) -> Expression:
    """Return `value` with bit b moved to bit 2 b, by halving."""
    for step in _halvings(bits):
        value = (value | value << step) & _groups(step, bits)
    return value


def _gathered(value: Expression, bits: int) -> Expression:
    """Return `value` with bit 2 b moved to bit b, the inverse of `_spread`. Odd bits are dropped."""
    value = value & _groups(1, bits)
    for step in reversed(_halvings(bits)):
        value = (value | value >> step) & _groups(2 * step, bits)
    return value


def _halvings(bits: int) -> list[int]:
    return [1 << power for power in reversed(range((bits - 1).bit_length()))] if bits > 1 else []


def _groups(step: int, bits: int) -> int:
    """Return the mask of the `bits` lowest bits after each group of `step` bits has moved to a multiple of 2 `step`."""
    return sum(1 << (bit // step * 2 * step + bit % step) for bit in range(bits))
