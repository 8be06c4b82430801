"""Divide a grid into subdomains, one for each of several devices: slabs along the first axis or boxes, with halos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import prod

from memlane.errors import StencilError
from memlane.stencils.geometry import ALIGNED, stored_shape
from memlane.stencils.grid import Grid

Widths = tuple[int, int]
"""Numbers of cells at the low and at the high side of a subdomain along one axis."""
Margins = tuple[Widths, ...]
"""Widths along each axis of the grid."""


@dataclass(frozen=True)
class Span:
    """Cells of one device along one axis, in indices of the whole grid: it computes `start` to before `stop`."""

    start: int
    stop: int
    below: int = 0
    """Cells of halo before `start`; 0 at the end of the grid."""
    above: int = 0
    """Cells of halo from `stop` on."""
    unused: int = 0
    """Padding cells of the memory before the halo, so that rows are aligned to the vectors of the whole grid."""

    @property
    def cells(self) -> int:
        """How many cells the device computes."""
        return self.stop - self.start

    @property
    def origin(self) -> int:
        """Index of the first cell in memory; negative where the halo wraps around a periodic grid."""
        return self.start - self.below - self.unused

    @property
    def held(self) -> int:
        """Number of cells in memory."""
        return self.unused + self.below + self.cells + self.above

    def rows(self, first: int, last: int) -> slice:
        """Return the slice of cells `first` to before `last` in the memory of the device."""
        return slice(first - self.origin, last - self.origin)


@dataclass(frozen=True)
class Subdomain:
    """Cells of a grid on one device: a slab of whole planes, or a box where other axes than the first are cut.

    Properties about planes refer to the first axis; `spans` has all axes.
    """

    device: int
    spans: tuple[Span, ...]
    """The cells along each axis of the grid."""

    @property
    def start(self) -> int:
        """The first plane that the device computes."""
        return self.spans[0].start

    @property
    def stop(self) -> int:
        """The plane after the last that the device computes."""
        return self.spans[0].stop

    @property
    def below(self) -> int:
        """Planes of halo before `start`; 0 at the end of the grid."""
        return self.spans[0].below

    @property
    def above(self) -> int:
        """Planes of halo from `stop` on."""
        return self.spans[0].above

    @property
    def planes(self) -> int:
        """Number of planes that the device computes."""
        return self.spans[0].cells

    @property
    def origin(self) -> int:
        """Index of the first plane in memory; negative where the halo wraps around a periodic grid."""
        return self.spans[0].origin

    @property
    def held(self) -> int:
        """Number of planes in memory."""
        return self.spans[0].held

    @property
    def cells(self) -> int:
        """How many cells the device computes."""
        return prod(span.cells for span in self.spans)

    def rows(self, first: int, last: int) -> slice:
        """Return the slice of planes `first` to before `last` in the memory of the device."""
        return self.spans[0].rows(first, last)

    @property
    def own(self) -> tuple[slice, ...]:
        """Slices of the computed cells in the memory of the device."""
        return tuple(span.rows(span.start, span.stop) for span in self.spans)

    @property
    def region(self) -> tuple[slice, ...]:
        """Slices of the computed cells in the whole grid."""
        return tuple(slice(span.start, span.stop) for span in self.spans)


@dataclass(frozen=True)
class Decomposition:
    """A grid in subdomains, one for each device, in C order of their places in the process grid."""

    grid: Grid
    subdomains: tuple[Subdomain, ...]
    process_grid: tuple[int, ...]
    """Number of subdomains along each axis, on devices of one process or on ranks."""

    @property
    def cut(self) -> tuple[int, ...]:
        """Axes along which the grid is cut."""
        return tuple(axis for axis, count in enumerate(self.process_grid) if count > 1)

    @property
    def neighbours(self) -> list[tuple[Subdomain, Subdomain]]:
        """Pairs of subdomains that touch, axis by axis: the cells of the second follow those of the first."""
        return [pair for axis in range(self.grid.dimensions) for pair in self.neighbours_along(axis)]

    def neighbours_along(self, axis: int) -> list[tuple[Subdomain, Subdomain]]:
        """Return the pairs of subdomains that touch along an axis: the cells of the second follow those of the first."""
        count, around = self.process_grid[axis], self._is_periodic(axis)
        stride = prod(self.process_grid[axis + 1 :])
        if count == 1:
            return []
        return [
            (subdomain, self.subdomains[subdomain.device + (stride if at + 1 < count else -at * stride)])
            for subdomain in self.subdomains
            if (at := subdomain.device // stride % count) + 1 < count or around
        ]

    def has_neighbour(self, subdomain: Subdomain, axis: int) -> tuple[bool, bool]:
        """Return whether a subdomain has a neighbour at its low and at its high side, also if it reads no cells of it."""
        count = self.process_grid[axis]
        if count == 1:
            return False, False
        at, around = subdomain.device // prod(self.process_grid[axis + 1 :]) % count, self._is_periodic(axis)
        return at > 0 or around, at + 1 < count or around

    def _is_periodic(self, axis: int) -> bool:
        return self.grid.conditions[axis][0] == "periodic"

    def with_halos(self, *halos: Widths) -> Decomposition:
        """Return the decomposition with halos of so many cells along each axis towards each neighbour. Raise StencilError if a
        subdomain has fewer cells than the halo of its neighbour."""
        for axis in self.cut:
            thin = min(self.subdomains, key=lambda subdomain: subdomain.spans[axis].cells)
            if max(halos[axis]) > thin.spans[axis].cells:
                has = f"{thin.spans[axis].cells} of the {self.grid.shape[axis]} {'cells along axis ' + str(axis) if axis else 'planes'}"
                raise StencilError(
                    f"device {thin.device} has {has}, and its neighbours would need {max(halos[axis])} of them at each exchange: exchange "
                    "after fewer steps, or use fewer devices" + ("" if self.process_grid[0] == len(self.subdomains) else " along this axis")
                )
        return replace(self, subdomains=tuple(self._with_halo(subdomain, halos) for subdomain in self.subdomains))

    def _with_halo(self, subdomain: Subdomain, halos: Sequence[Widths]) -> Subdomain:
        spans = []
        for axis, span in enumerate(subdomain.spans):
            has = self.has_neighbour(subdomain, axis)
            below, above = (width if one else 0 for width, one in zip(halos[axis], has, strict=True))
            is_row = axis == self.grid.dimensions - 1
            spans.append(replace(span, below=below, above=above, unused=(span.start - below) % ALIGNED if is_row else 0))
        return replace(subdomain, spans=tuple(spans))

    def stored_shape(self, subdomain: Subdomain) -> tuple[int, ...]:
        """Return the shape of a field's memory on the device of a subdomain; the number and length of rows are equal on all devices."""
        most = [max(one.spans[axis].held for one in self.subdomains) for axis in range(self.grid.dimensions)]
        return stored_shape((subdomain.held, *most[1:]) if self.grid.dimensions > 1 else tuple(most))

    def planes_of(self, subdomain: Subdomain) -> list[int]:
        """Return the indices of the grid's planes in the memory of a subdomain, in order."""
        return self.cells_of(subdomain, 0)

    def cells_of(self, subdomain: Subdomain, axis: int) -> list[int]:
        """Return the indices of the grid's cells in the memory of a subdomain along an axis, in order."""
        extent, span = self.grid.shape[axis], subdomain.spans[axis]
        return [cell % extent for cell in range(span.origin, span.origin + span.held)]


def decomposed(grid: Grid, speeds: Sequence[float], process_grid: Sequence[int] | None = None) -> Decomposition:
    """Divide a grid into subdomains without halos, in proportion to the speeds of the devices.

    `speeds` has a number for each device; only ratios matter. `process_grid` is the number of subdomains along each axis; by default they
    are slabs along the first. Raise StencilError if the grid cannot be cut so.
    """
    counts = (len(speeds), *[1] * (grid.dimensions - 1)) if process_grid is None else tuple(process_grid)
    if len(counts) != grid.dimensions or prod(counts) != len(speeds) or min(counts) < 1:
        raise StencilError(
            f"decomposition={counts} makes {prod(counts)} parts along {len(counts)} axes, for {len(speeds)} devices and a grid of "
            f"{grid.dimensions} axes: give the parts along each axis, whose product is the number of devices"
        )
    places = list(product(*map(range, counts)))
    spans = []
    for axis, (count, extent) in enumerate(zip(counts, grid.shape, strict=True)):
        if count > extent:
            what = f"{extent} {'cells' if axis == grid.dimensions - 1 else 'planes'} along axis {axis}"
            other = ", or cut other axes too, as with decomposition='auto'" if process_grid is None and grid.dimensions > 1 else ""
            raise StencilError(f"{count} devices cannot share a grid of {what}: use {extent} or fewer{' there' if axis else ''}{other}")
        layers = [sum(speed for place, speed in zip(places, speeds, strict=True) if place[axis] == at) for at in range(count)]
        is_row = axis == grid.dimensions - 1
        spans.append([Span(*pair) for pair in pairwise(_ends(extent, layers, ALIGNED if is_row else 1))])
    subdomains = [Subdomain(device, tuple(spans[axis][at] for axis, at in enumerate(place))) for device, place in enumerate(places)]
    return Decomposition(grid, tuple(subdomains), counts)


def _ends(extent: int, speeds: Sequence[float], aligned: int) -> list[int]:
    """Return 0 and the ends of the subdomains along an axis, at multiples of `aligned` cells where each has many of these."""
    count, total, ends, before = len(speeds), sum(speeds), [0], 0.0
    step = aligned if extent >= 8 * aligned * count else 1
    for at, speed in enumerate(speeds):
        before += speed
        end = round(extent * before / total / step) * step if at + 1 < count else extent
        ends.append(min(max(end, ends[-1] + 1), extent - (count - 1 - at)))
    return ends
