"""Map a problem to the three axes of kernels: z, along which blocks march, y, and x, along which elements are contiguous.

A grid of two dimensions has the axes z and x, and one row in y; a grid of one dimension has x only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from memlane.stencils.grid import Condition
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule

ROW_ELEMENTS = 32
"""Rows are padded to a multiple of this many elements: 128 bytes in f4, so every row of every type starts at a sector."""

Offset3 = tuple[int, int, int]

RANGE = ("origin", "read_first", "read_last", "range_first", "range_end")
"""Parameters of a launch for a range of planes, as planes of the whole grid: the first in its memory, the first and the last that it may
read, the first that it computes and the end (exclusive). Names for y and x end in `_y` and `_x`."""

ALIGNED = 8
"""Alignment in cells of memory and of the parts of a launch where rows are cut: the widest vector of a thread, so that vectors are aligned
as in the whole grid."""


@dataclass(frozen=True)
class Geometry:
    """Extents, faces and fixed cells of one rule on a grid, with three axes."""

    problem: Problem
    rule: Rule

    @cached_property
    def axes(self) -> tuple[int | None, int | None, int | None]:
        """Axis of the grid that maps to z, y and x; None where the grid lacks it."""
        return ((None, None, 0), (0, None, 1), (0, 1, 2))[self.problem.grid.dimensions - 1]

    def offsets(self, given: tuple[int, ...]) -> Offset3:
        """Return the distances along z, y and x."""
        z, y, x = (0 if axis is None else given[axis] for axis in self.axes)
        return z, y, x

    @cached_property
    def extents(self) -> Offset3:
        z, y, x = (1 if axis is None else self.problem.grid.shape[axis] for axis in self.axes)
        return z, y, x

    @cached_property
    def pitch(self) -> int:
        """The distance of rows in memory, in elements."""
        return pitch((self.problem.held or self.problem.grid.shape)[-1])

    @cached_property
    def cut(self) -> tuple[bool, bool, bool]:
        """Whether the grid is cut along z, y and x."""
        z, y, x = (axis is not None and axis in self.problem.cut for axis in self.axes)
        return z, y, x

    @property
    def held_rows(self) -> int:
        """Rows of a plane in memory."""
        axis = self.axes[1]
        return self.extents[1] if axis is None or not self.problem.held else self.problem.held[axis]

    @cached_property
    def conditions(self) -> tuple[tuple[Condition, Condition], ...]:
        return tuple(("fixed", "fixed") if axis is None else self.problem.grid.conditions[axis] for axis in self.axes)

    @cached_property
    def fixed(self) -> tuple[tuple[int, int], ...]:
        """Numbers of fixed cells at the low and the high side of z, y and x."""
        cells = self.problem.grid.fixed(self.rule)
        return tuple((0, 0) if axis is None else cells[axis] for axis in self.axes)

    @cached_property
    def radius(self) -> tuple[tuple[int, int], ...]:
        """The reach of the rule before and behind a cell along z, y and x."""
        print_ = self.rule.footprint
        return tuple((0, 0) if axis is None else (print_.low[axis], print_.high[axis]) for axis in self.axes)

    @property
    def keeps_cells(self) -> bool:
        return any(map(any, self.fixed))

    def reads(self) -> dict[str, tuple[Offset3, ...]]:
        """Return the offsets at which each field is read, including fields that supply the values of fixed cells."""
        found = {name: tuple(map(self.offsets, several)) for name, several in self.rule.reads.items()}
        if self.keeps_cells:
            for name in self.rule.writes:
                if name in self.problem.previous:
                    source = self.problem.previous[name]
                    found[source] = tuple(sorted({*found.get(source, ()), (0, 0, 0)}))
        return found

    def constants(self, clamped: bool = False, is_local: bool = False) -> list[str]:
        """Return the first definitions of generated code, and its functions that map cells outside the grid to cells inside; with `clamped`
        they also map cells farther outside than the rule reads. `is_local`: along z the code itself clamps all reads of a part."""
        nz, ny, nx = self.extents
        lines = [
            f"constexpr int NZ = {nz}, NY = {ny}, NX = {nx}, PITCH = {self.pitch};  // cells along z, y and x; elements from row to row",
            f"constexpr {self._index} PLANE = ({self._index}){self.held_rows if self.cut[1] else 'NY'} * PITCH;",
        ]
        for axis, name, extent in zip(range(3), "zyx", ("NZ", "NY", "NX"), strict=True):
            lines.append(self._mapping(axis, name, extent, clamped, is_local and axis == 0))
        return lines

    @property
    def _index(self) -> str:
        """The integer type of indices into a field: 32 bits where they suffice, because 64 take twice the registers."""
        nz, ny, _ = self.extents
        return "int" if nz * max(ny, self.held_rows) * self.pitch < 1 << 31 else "long long"

    def _mapping(self, axis: int, name: str, extent: str, clamped: bool, is_local: bool) -> str:
        low, high = self.conditions[axis]
        if self.cut[axis] and (low == "periodic" or is_local):
            return f"__device__ __forceinline__ int inside_{name}(int {name}) {{ return {name}; }}  // neighbouring parts lie around"
        before = {"periodic": f"{name} + {extent}", "reflecting": f"-1 - {name}"}.get(str(low), "0")
        behind = {"periodic": f"{name} - {extent}", "reflecting": f"2 * {extent} - 1 - {name}"}.get(str(high), f"{extent} - 1")
        value = f"{name} < 0 ? {before} : {name} >= {extent} ? {behind} : {name}"
        if axis == 2 or clamped:  # a vector of cells may extend farther outside the grid than the rule reads
            value = f"min(max({value}, 0), {extent} - 1)"
        return f"__device__ __forceinline__ int inside_{name}(int {name}) {{ return {value}; }}  // {low}, {high}"

    def held(self, at: str, axis: int = 0) -> str:
        """Return the index that a launch reads for `at` along an axis; in a launch for a range, clamped to the cells that it may read."""
        if not self.cut[axis] or at in ("y", "x0"):  # the thread's own
            return at
        return f"min(max({at}, {range_name(1, axis)}), {range_name(2, axis)})"

    def begin(self, axis: int) -> str:
        """Return the first cell that a launch computes along y or x, in whole vectors, as a term to add; empty if it is 0."""
        if not self.cut[axis]:
            return ""
        return f"{range_name(3, axis)} + " if axis < 2 else f"({range_name(3, axis)} & -{ALIGNED}) + "

    def end(self, axis: int) -> str:
        """Return the end (exclusive) of the cells that a launch computes."""
        return range_name(4, axis) if self.cut[axis] else ("NZ", "NY", "NX")[axis]

    def numbers(self, axis: int) -> list[tuple[str, float]]:
        """Return the conditions under which a cell lies outside a face with a constant value, and the constants."""
        name, extent = "zyx"[axis], ("NZ", "NY", "NX")[axis]
        sides = zip(self.conditions[axis], self.radius[axis], (f"{name} < 0", f"{name} >= {extent}"), strict=True)
        return [(test, float(condition)) for condition, reach, test in sides if reach and not isinstance(condition, str)]

    def kept_test(self, axis: int, at: str) -> list[str]:
        """Return the conditions under which a cell at `at` along an axis is updated."""
        (low, high), extent = self.fixed[axis], ("NZ", "NY", "NX")[axis]
        return [*([f"{at} >= {low}"] if low else []), *([f"{at} < {extent} - {high}"] if high else [])]


def range_name(which: int, axis: int) -> str:
    """Return the parameter name of one of `RANGE` along an axis."""
    return RANGE[which] + ("", "_y", "_x")[axis]


def pitch(cells: int) -> int:
    """Return the elements from one row of a field to the next."""
    return ceil(cells / ROW_ELEMENTS) * ROW_ELEMENTS


def stored_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the memory of a field: that of the grid with padded rows."""
    return (*shape[:-1], pitch(shape[-1]))


def itemsize(dtype: str) -> int:
    return np.dtype(dtype).itemsize
