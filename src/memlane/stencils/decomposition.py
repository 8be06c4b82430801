"""Which planes of a grid each of several devices has: slabs along the first axis, with halos of their neighbours' planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memlane.errors import StencilError
from memlane.stencils.geometry import stored_shape
from memlane.stencils.grid import Grid


@dataclass(frozen=True)
class Slab:
    """The planes of one device, in planes of the whole grid: it computes `start` up to the one before `stop`, and holds some more."""

    device: int
    start: int
    stop: int
    below: int = 0
    """Planes of halo before `start`; 0 at the end of the grid."""
    above: int = 0
    """Planes of halo behind the last."""

    @property
    def planes(self) -> int:
        """How many planes the device computes."""
        return self.stop - self.start

    @property
    def origin(self) -> int:
        """The plane that the memory begins with. It is negative where the halo continues behind the other end of a periodic grid."""
        return self.start - self.below

    @property
    def held(self) -> int:
        """How many planes the memory has."""
        return self.below + self.planes + self.above

    def rows(self, first: int, last: int) -> slice:
        """Return where planes `first` up to the one before `last` lie in the memory of the device."""
        return slice(first - self.origin, last - self.origin)


@dataclass(frozen=True)
class Decomposition:
    """A grid in slabs, one for each device, in the order of the planes."""

    grid: Grid
    slabs: tuple[Slab, ...]

    @property
    def is_periodic(self) -> bool:
        """Whether the first and the last slab are neighbours."""
        return self.grid.conditions[0][0] == "periodic"

    @property
    def neighbours(self) -> list[tuple[Slab, Slab]]:
        """Each pair of slabs that touch: the second one's planes follow those of the first."""
        pairs = list(pairwise(self.slabs))
        return [*pairs, (self.slabs[-1], self.slabs[0])] if self.is_periodic and len(self.slabs) > 1 else pairs

    def with_halos(self, below: int, above: int) -> Decomposition:
        """Return the decomposition with halos of so many planes towards each neighbour. Raises StencilError where a slab has fewer planes
        than the halo of its neighbour."""
        thin = min(self.slabs, key=lambda slab: slab.planes)
        if len(self.slabs) > 1 and max(below, above) > thin.planes:
            raise StencilError(
                f"device {thin.device} has {thin.planes} of the {self.grid.shape[0]} planes, and its neighbours would need "
                f"{max(below, above)} of them at each exchange: exchange after fewer steps, or use fewer devices"
            )
        last = len(self.slabs) - 1
        slabs = [
            replace(slab, below=below if at or self.is_periodic else 0, above=above if at < last or self.is_periodic else 0)
            for at, slab in enumerate(self.slabs)
        ]
        return replace(self, slabs=tuple(slabs))

    def stored_shape(self, slab: Slab) -> tuple[int, ...]:
        """Return the shape of the memory of a field on the device of a slab."""
        return stored_shape((slab.held, *self.grid.shape[1:]))

    def planes_of(self, slab: Slab) -> list[int]:
        """Return which planes of the grid the memory of a slab holds, one after another."""
        extent = self.grid.shape[0]
        return [plane % extent for plane in range(slab.origin, slab.origin + slab.held)]


def decomposed(grid: Grid, speeds: Sequence[float]) -> Decomposition:
    """Return a grid in slabs without halos, as thick as the devices are fast. `speeds`: a number for each device; only their ratio counts.

    Raises StencilError where the grid cannot be cut so.
    """
    count, extent = len(speeds), grid.shape[0]
    if grid.dimensions == 1 and count > 1:
        raise StencilError("a grid of one dimension runs on one device: its cells along x cannot be cut; pass one target")
    if count > extent:
        raise StencilError(f"{count} devices cannot share a grid of {extent} planes along axis 0: use {extent} or fewer")
    total, ends, before = sum(speeds), [0], 0.0
    for at, speed in enumerate(speeds):
        before += speed
        ends.append(min(max(round(extent * before / total), ends[-1] + 1), extent - (count - 1 - at)))
    return Decomposition(grid, tuple(Slab(device, *pair) for device, pair in enumerate(pairwise(ends))))
