"""Define the families of array layouts: permuted axes, padded rows, blocks, structures of arrays, and tiles."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from memlane.errors import LayoutError
from memlane.layout.arrays import ArrayLayout, row_major_offset, split
from memlane.layout.expression import Expression, table
from memlane.layout.layout import Layout, whole_number
from memlane.number_format import plural


@dataclass(frozen=True)
class Permuted(ArrayLayout):
    """Axes in another order: `order` lists them from the slowest to the fastest. (0, 1, ...) is row-major, its reverse column-major."""

    order: tuple[int, ...]

    def check(self) -> None:
        order = tuple(self.order)
        if sorted(order) != list(range(len(self.shape))):
            raise LayoutError(f"an order of {plural(len(self.shape), 'axis')} names each of 0..{len(self.shape) - 1} once, not {order}")
        object.__setattr__(self, "order", order)

    def offset(self, index: tuple[Expression, ...]) -> Expression:
        return row_major_offset(tuple(index[axis] for axis in self.order), self.storage_shape)

    def coordinates(self, offset: Expression) -> tuple[Expression, ...] | None:
        found = split(offset, self.storage_shape)
        return tuple(found[self.order.index(axis)] for axis in range(len(self.shape)))

    @property
    def storage_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.order)

    @property
    def is_row_major(self) -> bool:
        moved = [axis for axis in self.order if self.shape[axis] > 1]
        return moved == sorted(moved)

    @property
    def _described(self) -> str:
        return f"{super()._described}, order {self.order}"


def row_major(shape: tuple[int, ...]) -> Permuted:
    """Return the layout in which the last axis is contiguous, as in C."""
    return Permuted(shape, tuple(range(len(shape))))


def column_major(shape: tuple[int, ...]) -> Permuted:
    """Return the layout in which the first axis is contiguous, as in Fortran; it also gives structures of arrays."""
    return Permuted(shape, tuple(reversed(range(len(shape)))))


@dataclass(frozen=True)
class PaddedRows(ArrayLayout):
    """Row-major with `pad` unused elements after each row, a row being the last axis."""

    pad: int

    def check(self) -> None:
        whole_number("the padding", self.pad, 0)

    def offset(self, index: tuple[Expression, ...]) -> Expression:
        return row_major_offset(index, self.storage_shape)

    def coordinates(self, offset: Expression) -> tuple[Expression, ...] | None:
        return split(offset, self.storage_shape)

    @property
    def size(self) -> int:
        return prod(self.storage_shape)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.shape[-1] + self.pad)

    @property
    def is_row_major(self) -> bool:
        return self.pad == 0

    @property
    def _described(self) -> str:
        return f"{super()._described}, pad {self.pad}"


@dataclass(frozen=True)
class Blocked(ArrayLayout):
    """Consecutive blocks of the shape `block`, row-major inside and among each other. Partial blocks at the end of an axis take the room of
    whole ones."""

    block: tuple[int, ...]

    def check(self) -> None:
        block = tuple(self.block)
        if len(block) != len(self.shape):
            raise LayoutError(
                f"the block has {plural(len(block), 'axis')}, but the array has {len(self.shape)}: give one extent for each axis"
            )
        for extent in block:
            whole_number("an extent of a block", extent, 1)
        object.__setattr__(self, "block", block)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        return (*(-(-extent // block) for extent, block in zip(self.shape, self.block, strict=True)), *self.block)

    @property
    def size(self) -> int:
        return prod(self.storage_shape)

    def offset(self, index: tuple[Expression, ...]) -> Expression:
        outer = tuple(one // block for one, block in zip(index, self.block, strict=True))
        inner = tuple(one % block for one, block in zip(index, self.block, strict=True))
        return row_major_offset((*outer, *inner), self.storage_shape)

    def coordinates(self, offset: Expression) -> tuple[Expression, ...] | None:
        found, axes = split(offset, self.storage_shape), len(self.shape)
        return tuple(found[axis] * self.block[axis] + found[axes + axis] for axis in range(axes))

    @property
    def _described(self) -> str:
        return f"{super()._described}, blocks of {'x'.join(map(str, self.block))}"


@dataclass(frozen=True)
class Fields(ArrayLayout):
    """Structures of arrays: `count` structures, given as words [count, words], with the values of each field contiguous.

    `widths` are the words of each field in turn: (1, 1, 1) for three floats, (2, 1, 1) for a double and two floats in words of 4 bytes.
    """

    widths: tuple[int, ...]

    def check(self) -> None:
        widths = tuple(self.widths)
        for width in widths:
            whole_number("the words of a field", width, 1)
        if len(self.shape) != 2 or sum(widths) != self.shape[1]:
            raise LayoutError(f"fields of {widths} words need an array of shape (structures, {sum(widths)}), not {self.shape}")
        object.__setattr__(self, "widths", widths)

    def offset(self, index: tuple[Expression, ...]) -> Expression:
        if len(set(self.widths)) == 1:
            width = self.widths[0]
            return index[1] // width * (self.shape[0] * width) + index[0] * width + index[1] % width
        starts = np.repeat(np.cumsum((0, *self.widths[:-1])), self.widths)
        base = [int(start) * self.shape[0] + word - int(start) for word, start in enumerate(starts)]
        stride = np.repeat(self.widths, self.widths).tolist()
        return table(tuple(base), index[1]) + index[0] * table(tuple(stride), index[1])

    @property
    def _described(self) -> str:
        return f"{super()._described}, fields of {', '.join(map(str, self.widths))} words"


@dataclass(frozen=True)
class OfTile(ArrayLayout):
    """A two-dimensional array under a tile layout of `memlane.layout`, such as `DiagonalStrip`."""

    tile: Layout

    def check(self) -> None:
        if self.shape != (self.tile.rows, self.tile.columns):
            raise LayoutError(f"{self.tile} is a layout for an array of shape ({self.tile.rows}, {self.tile.columns}), not {self.shape}")

    def offset(self, index: tuple[Expression, ...]) -> Expression:
        return self.tile.offset(*index)

    def coordinates(self, offset: Expression) -> tuple[Expression, ...] | None:
        found = self.tile.index(offset)
        return None if found is None else split(found, self.shape)

    @property
    def size(self) -> int:
        return self.tile.size

    def __str__(self) -> str:
        return str(self.tile)
