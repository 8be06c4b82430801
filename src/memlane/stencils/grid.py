"""Define grids: shape, element type and boundary conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import StencilError
from memlane.number_format import plural
from memlane.stencils.language import is_number
from memlane.stencils.rule import Rule

Condition = str | int | float
"""Boundary condition of one face: `fixed`, `periodic`, `reflecting`, or a number."""
Boundary = Condition | Sequence[Any] | Callable[["Face"], Condition]

_MOST_CELLS = 2**31 - 2**16
"""Cells along one axis, which kernels count in 32 bits with some to spare for the last tile."""

NAMES = ("fixed", "periodic", "reflecting")


@dataclass(frozen=True)
class Face:
    """One face of a grid: its axis, 0 for the slowest, and its side, `low` (index 0) or `high`."""

    axis: int
    side: str


@dataclass(frozen=True)
class Grid:
    """A regular grid of cells, stored in C order; all its cells are in `shape`, also those that a boundary keeps fixed.

    ml.Grid((256, 256, 256), dtype="f4", boundary="fixed")
    ml.Grid((512, 512), boundary=("periodic", ("reflecting", 0.0)))
    ml.Grid((512, 512), boundary=lambda face: 1.0 if face == Face(0, "low") else "reflecting")

    `dtype` is f2, f4 or f8: the type of scalars, and of fields unless `prepare` gets another type for them.
    `boundary` is one condition for all faces, a sequence with one for each axis, each of which may be a pair for the low and the high side,
    or a function that is called with each `Face`:

    - `fixed`: cells whose update would read across this face keep their value.
    - `periodic`: reads wrap around to the other side; both faces of the axis must be periodic.
    - `reflecting`: reads are mirrored at the face, so index -1 is cell 0 and -2 is cell 1: nothing flows through it.
    - a number: every cell outside has this value, in all fields.

    For cells outside two faces, each axis is mapped separately; if both have numbers, that of the last axis applies. Raises StencilError.
    """

    shape: tuple[int, ...]
    dtype: str = "f4"
    boundary: Any = "fixed"
    conditions: tuple[tuple[Condition, Condition], ...] = field(init=False, compare=True, repr=False)
    """Conditions of the low and the high face of each axis."""

    def __post_init__(self) -> None:
        shape = (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)
        if not 1 <= len(shape) <= 3 or not all(isinstance(one, int | np.integer) and one >= 1 for one in shape):
            raise StencilError(f"a grid has one to three extents of 1 or more, not {self.shape}")
        if max(shape) > _MOST_CELLS:
            raise StencilError(f"a grid has at most {_MOST_CELLS:,} cells along an axis, not {max(shape):,}: give it one more axis")
        object.__setattr__(self, "shape", tuple(int(one) for one in shape))
        object.__setattr__(self, "dtype", floating(self.dtype, "a grid"))
        object.__setattr__(self, "conditions", self._resolved())

    @property
    def dimensions(self) -> int:
        """The number of axes: 1, 2 or 3."""
        return len(self.shape)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return prod(self.shape)

    def _resolved(self) -> tuple[tuple[Condition, Condition], ...]:
        given = self.boundary
        if callable(given):
            pairs = [(given(Face(axis, "low")), given(Face(axis, "high"))) for axis in range(self.dimensions)]
        elif isinstance(given, str) or not isinstance(given, Sequence):
            pairs = [(given, given)] * self.dimensions
        else:
            if self.dimensions == 1 and len(given) == 2:
                given = (given,)  # with one axis, a pair can only mean both sides
            if len(given) != self.dimensions:
                raise StencilError(f"the boundary has {len(given)} entries for {self.dimensions} axes: give one for each, or one for all")
            pairs = [(one, one) if isinstance(one, str) or not isinstance(one, Sequence) else tuple(one) for one in given]
        for axis, pair in enumerate(pairs):
            if len(pair) != 2:
                raise StencilError(f"the boundary of axis {axis} has a low and a high side, not {len(pair)} entries")
            for one in pair:
                if one not in NAMES and not is_number(one):
                    raise StencilError(f"{one!r} is not a boundary: use 'fixed', 'periodic', 'reflecting', or a finite number")
            if (pair[0] == "periodic") != (pair[1] == "periodic"):
                raise StencilError(f"axis {axis} is periodic at one side only: its other side would continue nowhere")
        return tuple(pairs)

    def check(self, rule: Rule) -> None:
        """Raise StencilError if a rule does not fit the grid: other dimensions, or a radius wider than the grid."""
        if rule.dimensions != self.dimensions:
            raise StencilError(
                f"{rule.name} has {rule.dimensions} dimensions and the grid has {self.dimensions}, with shape {self.shape}: give the grid "
                f"{plural(rule.dimensions, 'extent')}"
            )
        for axis, (pair, extent) in enumerate(zip(self.conditions, self.shape, strict=True)):
            for condition, reach in zip(pair, (rule.footprint.low[axis], rule.footprint.high[axis]), strict=True):
                if condition in ("periodic", "reflecting") and reach > extent:
                    raise StencilError(
                        f"{rule.name} reads {reach} cells along axis {axis}, and the grid has {extent} there, so a {condition} boundary "
                        "would have to continue more than once: make the grid larger"
                    )

    def fixed(self, rule: Rule) -> tuple[tuple[int, int], ...]:
        """Return the number of cells that a rule does not update at the low and at the high side of each axis."""
        reaches = zip(rule.footprint.low, rule.footprint.high, strict=True)
        return tuple(
            (low if first == "fixed" else 0, high if last == "fixed" else 0)
            for (low, high), (first, last) in zip(reaches, self.conditions, strict=True)
        )

    def updated(self, rule: Rule) -> tuple[slice, ...]:
        """Return the part of the grid that a rule updates, empty if nothing is left between fixed cells."""
        pairs = zip(self.fixed(rule), self.shape, strict=True)
        return tuple(slice(min(low, extent), max(min(low, extent), extent - high)) for (low, high), extent in pairs)

    def outside(self, array: npt.NDArray[Any], low: Sequence[int], high: Sequence[int]) -> npt.NDArray[Any]:
        """Return an array extended by the given numbers of cells on each side, with the values that a rule reads there.

        Cells outside fixed faces are never read and hold NaN (zero in integer arrays).
        """
        for axis, (first, last) in enumerate(self.conditions):
            if first == "periodic":
                array = _continued(array, axis, low[axis], high[axis])
                continue
            for condition, width in ((first, (low[axis], 0)), (last, (0, high[axis]))):
                if any(width):
                    array = _padded(array, axis, width, condition)
        return array


def _continued(array: npt.NDArray[Any], axis: int, low: int, high: int) -> npt.NDArray[Any]:
    extent = array.shape[axis]
    before, behind = np.take(array, range(extent - low, extent), axis), np.take(array, range(high), axis)
    return np.concatenate([before, array, behind], axis)


def _padded(array: npt.NDArray[Any], axis: int, width: tuple[int, int], condition: Condition) -> npt.NDArray[Any]:
    widths = [(0, 0)] * array.ndim
    widths[axis] = width
    if condition == "reflecting":
        return np.pad(array, widths, mode="symmetric")
    nothing = np.nan if array.dtype.kind == "f" else 0
    value = nothing if condition == "fixed" else condition
    return np.pad(array, widths, mode="constant", constant_values=np.asarray(value).astype(array.dtype))


def floating(dtype: npt.DTypeLike, what: str) -> str:
    """Return `f2`, `f4` or `f8`. Raises StencilError for another type."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype("V")
    if kind.str.lstrip("<|=") not in ("f2", "f4", "f8"):
        raise StencilError(f"{what} has elements of type f2, f4 or f8, not {dtype}")
    return kind.str.lstrip("<|=")
