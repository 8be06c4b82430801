"""Describe the data movement of a remap as loops over axes, each with its step on both sides.

Every layout whose offset is a sum of one product per axis is a `Movement`, whatever its dimensions. `simplified` reduces it to the fewest
axes and the widest element, by which the kernel is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from memlane.layout import ArrayLayout, Blocked, ComposedArray, Fields, OfTile, PaddedRows, Permuted
from memlane.layout.strides import ColumnMajor, RowMajor

WIDEST = 16
"""Bytes of the widest load or store of a thread."""


@dataclass(frozen=True)
class Axis:
    """A loop: its extent, and the step in elements on either side."""

    extent: int
    source: int
    destination: int


@dataclass(frozen=True)
class Movement:
    """A movement of elements of `element` bytes; neither side touches an element twice."""

    axes: tuple[Axis, ...]
    element: int

    @property
    def count(self) -> int:
        """Number of elements."""
        total = 1
        for axis in self.axes:
            total *= axis.extent
        return total

    @property
    def nbytes(self) -> int:
        return self.count * self.element

    def reversed(self) -> Movement:
        """Return the inverse movement."""
        return replace(self, axes=tuple(Axis(one.extent, one.destination, one.source) for one in self.axes))

    def simplified(self, *addresses: int) -> Movement:
        """Return the same movement with axes merged and elements as wide as strides and `addresses` (in bytes) allow, slowest source axis
        first.

        Elements of an odd number of bytes become an axis of narrower ones.
        """
        narrow = gcd(self.element, WIDEST)
        if narrow < self.element:
            parts = self.element // narrow
            spread = tuple(Axis(one.extent, one.source * parts, one.destination * parts) for one in self.axes)
            return Movement((*spread, Axis(parts, 1, 1)), narrow).simplified(*addresses)
        axes = _merged(self.axes)
        element = self.element
        while axes and axes[-1].source == axes[-1].destination == 1 and element < WIDEST:
            run, others = axes[-1], axes[:-1]
            steps = [step for one in others for step in (one.source, one.destination)]
            if any(step % 2 for step in (run.extent, *steps)) or any(address % (2 * element) for address in addresses):
                break
            halves = [Axis(one.extent, one.source // 2, one.destination // 2) for one in others]
            axes = _merged((*halves, Axis(run.extent // 2, 1, 1)))
            element *= 2
        return Movement(tuple(axes), element)


def movement_of(layout: ArrayLayout, element: int, box: tuple[int, ...] | None = None) -> Movement | None:
    """Return the movement from an array of shape `box` (the layout's, or a part) in C order to its places under `layout`; None if the
    offset is not a sum of products."""
    strides = strides_of(layout)
    if strides is None:
        return None
    shape = layout.shape if box is None else box
    if any(len(parts) > 1 and extent != whole for parts, extent, whole in zip(strides, shape, layout.shape, strict=True)):
        divided = _divided(strides, shape)
        if divided is None:
            return None
        strides = divided
    axes: list[Axis] = []
    step = 1
    for extent, parts in reversed(list(zip(shape, strides, strict=True))):
        inner = 1
        for count, destination in reversed(parts):
            turns = count if len(parts) > 1 else extent
            axes.insert(0, Axis(turns, step * inner, destination))
            inner *= turns
        step *= extent
    return Movement(tuple(axes), element)


Parts = tuple[tuple[int, int], ...]
"""An axis of an array as nested loops, the outer first: extent and stride of each."""


def strides_of(layout: ArrayLayout) -> tuple[Parts, ...] | None:
    """Return the loops of each axis; None if offsets are not sums of products."""
    if isinstance(layout, Permuted | PaddedRows):
        stored = layout.storage_shape
        order = layout.order if isinstance(layout, Permuted) else range(len(stored))
        steps = {axis: _product(stored[place + 1 :]) for place, axis in enumerate(order)}
        return tuple(((extent, steps[axis]),) for axis, extent in enumerate(layout.shape))
    if isinstance(layout, Blocked):
        if any(extent % block for extent, block in zip(layout.shape, layout.block, strict=True)):
            return None
        stored, axes = layout.storage_shape, len(layout.shape)
        return tuple(
            ((stored[axis], _product(stored[axis + 1 :])), (layout.block[axis], _product(stored[axes + axis + 1 :])))
            for axis in range(axes)
        )
    if isinstance(layout, Fields) and len(set(layout.widths)) == 1:
        count, width = layout.shape[0], layout.widths[0]
        fields = (len(layout.widths), count * width)
        return ((count, width),), ((fields, (width, 1)) if width > 1 else (fields,))
    if isinstance(layout, OfTile) and isinstance(layout.tile, RowMajor | ColumnMajor):
        rows, columns = layout.shape
        by_row = isinstance(layout.tile, RowMajor)
        return ((rows, columns if by_row else 1),), ((columns, 1 if by_row else rows),)
    if isinstance(layout, ComposedArray) and layout.inner.storage_shape == layout.outer.shape:
        return _composed(layout)
    return None


def _composed(layout: ComposedArray) -> tuple[Parts, ...] | None:
    """Return the loops of `outer @ inner`, if the axes of `outer` are those of the memory of `inner`, in its order; else None."""
    outer = strides_of(layout.outer)
    if outer is None or not isinstance(layout.inner, Permuted):
        return None
    return tuple(outer[layout.inner.order.index(axis)] for axis in range(len(layout.shape)))


def _divided(strides: tuple[Parts, ...], shape: tuple[int, ...]) -> tuple[Parts, ...] | None:
    """Return the loops of a part of an array, if its blocks divide the part's extents; else None."""
    found: list[Parts] = []
    for parts, extent in zip(strides, shape, strict=True):
        within = _product(tuple(count for count, _ in parts[1:]))
        if extent % within:
            return None
        found.append(((extent // within, parts[0][1]), *parts[1:]) if len(parts) > 1 else parts)
    return tuple(found)


def _merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Drop axes of extent 1, and merge axes that are contiguous on both sides."""
    found: list[Axis] = []
    for one in sorted((axis for axis in axes if axis.extent > 1), key=lambda axis: axis.source, reverse=True):
        if found and (found[-1].source, found[-1].destination) == (one.extent * one.source, one.extent * one.destination):
            found[-1] = Axis(found[-1].extent * one.extent, one.source, one.destination)
        else:
            found.append(one)
    return tuple(found)


def _product(extents: tuple[int, ...]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total
