"""Compute the boxes of a launch on a part of the grid: all its cells, its borders, and their places in the memory of the part."""

from __future__ import annotations

from collections.abc import Iterator

from memlane.stencils.code import StepKernel
from memlane.stencils.decomposition import Decomposition, Margins, Subdomain
from memlane.stencils.geometry import ALIGNED
from memlane.stencils.turns import Round, whole_units

Box = Margins
"""First and end cell along each axis of the grid (the end is exclusive)."""


class Boxes:
    """Boxes of the launches on the parts of a grid."""

    def __init__(self, decomposition: Decomposition, cut: tuple[int, ...]) -> None:
        """Set up the boxes; `cut` holds the axes along which parts have neighbours."""
        self.decomposition, self.cut = decomposition, cut
        self.axes = range(decomposition.grid.dimensions)

    def computed(self, subdomain: Subdomain, one: Round) -> Box:
        """Return the box of all cells that a launch computes on a part, those of halos included."""
        return tuple(
            (span.start - (low if span.below else 0), span.stop + (high if span.above else 0))
            for span, (low, high) in zip(subdomain.spans, one.halo, strict=True)
        )

    def inner(self, subdomain: Subdomain, one: Round) -> Box:
        """Return the interior between the borders of a launch; along a row that is cut it consists of whole vectors."""
        found = list(self.computed(subdomain, one))
        for axis, (span, (low, high)) in enumerate(zip(subdomain.spans, one.border, strict=True)):
            unit = ALIGNED if axis == self.axes[-1] else 1
            has_low, has_high = self.decomposition.has_neighbour(subdomain, axis)
            begin, behind = found[axis]
            found[axis] = (
                whole_units(span.start, unit) + low if has_low else begin,
                span.stop // unit * unit - high if has_high else behind,
            )
        return tuple(found)

    def borders(self, subdomain: Subdomain, one: Round, inner: Box) -> Iterator[tuple[int, int, Box]]:
        """Yield the borders of a launch by axis and side. Along earlier axes they extend over the interior, along later axes over all cells
        that the launch computes."""
        computed = self.computed(subdomain, one)
        for axis in self.axes:
            (begin, behind), (start, stop) = computed[axis], inner[axis]
            for side, (first, last) in enumerate(((begin, start), (stop, behind))):
                if first < last:
                    yield axis, side, (*inner[:axis], (first, last), *computed[axis + 1 :])

    def around(self, computed: Box, own: Box) -> list[Box]:
        """Return the boxes of halo cells that remain after a launch that reduces. If another axis than the first is cut, all cells are
        computed once more: rows are written in whole vectors, so cells next to the own ones have no values then."""
        if computed[1:] != own[1:]:
            return [computed]
        (begin, behind), (start, stop) = computed[0], own[0]
        return [((first, last), *own[1:]) for first, last in ((begin, start), (stop, behind)) if first < last]

    def blocks(self, kernel: StepKernel, box: Box) -> tuple[int, int, int]:
        """Return the blocks of a launch that computes a box, which must begin with a whole vector of a row."""
        cells = [behind - begin for begin, behind in box]
        if self.axes[-1] in self.cut:
            cells[-1] += box[-1][0] % ALIGNED
        z, y, x = (1 if axis is None else cells[axis] for axis in kernel.geometry.axes)
        return kernel.grid_of(z, y, x)

    def memory(self, subdomain: Subdomain, box: Box) -> tuple[slice, ...]:
        """Return the slices of the cells of a box in the memory of a part: whole vectors along a row that is cut, and all cells along
        axes that are not cut."""
        found = []
        for axis, (span, (begin, behind)) in enumerate(zip(subdomain.spans, box, strict=True)):
            unit = ALIGNED if axis == self.axes[-1] else 1
            first, last = begin // unit * unit, whole_units(behind, unit)
            end = span.origin + whole_units(span.held, unit)
            found.append(span.rows(max(first, span.origin), min(last, end)) if axis in self.cut else slice(None))
        while found and found[-1] == slice(None):
            found.pop()
        return tuple(found)
