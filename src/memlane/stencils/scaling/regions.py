"""Count the cells that a device computes between two exchanges exactly: boxes for each step.

Let a device have N planes along an axis, let a rule reach r of them, and let there be k steps between exchanges. After the exchange k*r
planes of each neighbour are valid, so step s of k can compute (k - s)*r planes of them: k steps of the whole slab compute
k*N + k(k - 1)r planes with two neighbours, (k - 1)r more a step than the slab has.

To compute while planes are exchanged, a slab is cut into its borders and what lies between them. Two schedules are known here:

- `independent`: both regions begin with the state after the last exchange, as in the paper (its figures 3 and 4). The inner region needs no
  halo, so it loses r planes at each side in each step: planes s*r to N - s*r in step s. What it leaves of the last step begins at k*r. Each
  border then has to make k*r planes of results from the state at the beginning, with (k - s)*r more at both of its sides: k*r + 2(k - s)r
  planes in step s. Together k*N + 3k(k - 1)r, so 3(k - 1)r more a step. With k = 2 the three buffers of the paper still hold the inner
  region's first step when the border needs it, so a program may save 2r of these 3r; from k = 3 on they are gone. N must be 2*k*r or more.
- `linked`: the inner region waits for the borders step by step and reads what they computed, so no plane of the slab is computed twice:
  (k - 1)r more a step, as without borders. A border of the last step has the k*r planes that are sent, and one of step s has (k - s)r more
  inside and as many of the halo. N must be more than 2(2k - 1)r.

`low` and `high` below are how far a rule reads before and behind a cell, which need not be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal, get_args

from memlane.errors import StencilError

Schedule = Literal["independent", "linked"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)
Box = tuple[int, ...]
"""Cells along each axis."""


@dataclass(frozen=True)
class Share:
    """The cells of one device, and along each axis whether it has a neighbour at the low and at the high side."""

    extents: tuple[int, ...]
    neighbours: tuple[tuple[bool, bool], ...]

    @property
    def count(self) -> int:
        """The number of faces that are exchanged."""
        return sum(map(sum, self.neighbours))


@dataclass(frozen=True)
class Step:
    """The cells that are computed in one of the steps between two exchanges."""

    inner: Box | None
    """Region that does not depend on the exchange; None if the share is not split."""
    borders: tuple[Box, ...]
    """Regions at the faces; the whole share with its halo if it is not split."""

    @property
    def cells(self) -> int:
        return prod(self.inner or (0,)) + sum(map(prod, self.borders))


def divisions(shape: Sequence[int], devices: int, axes: int) -> list[tuple[int, ...]]:
    """Return all ways to cut so many devices into exactly `axes` of the first axes of a grid, with no more parts than cells."""
    if axes > len(shape):
        return []
    found = []
    for parts in product(*(range(2, devices + 1) for _ in range(axes))) if devices > 1 else [(1,) * axes] if axes == 1 else []:
        if prod(parts) == devices and all(part <= extent for part, extent in zip(parts, shape, strict=False)):
            found.append((*parts, *(1 for _ in range(len(shape) - axes))))
    return found


def largest_share(shape: Sequence[int], parts: Sequence[int], periodic: Sequence[bool]) -> Share:
    """Return the share of the device with the most cells and neighbours, the slowest one."""
    neighbours = []
    for count, wraps in zip(parts, periodic, strict=True):
        both = count > 2 or (count == 2 and wraps)
        neighbours.append((count > 1, both))
    return Share(tuple(-(-extent // count) for extent, count in zip(shape, parts, strict=True)), tuple(neighbours))


def check_halo(shape: Sequence[int], parts: Sequence[int], reach: Sequence[tuple[int, int]], k: int) -> None:
    """Raise StencilError if neighbours need more cells of a device after k steps than it has."""
    for axis, (extent, count, pair) in enumerate(zip(shape, parts, reach, strict=True)):
        least, needed = extent // count, k * max(pair)
        if count > 1 and needed > least:
            most = least // max(pair)
            remedy = f"exchange every {most} steps or fewer, or use" if most else "use"
            raise StencilError(
                f"{k} steps between exchanges reach {needed} cells along axis {axis}, and a device has only {least} of its {extent} cells "
                f"there: {remedy} fewer devices than {count} along this axis"
            )


def can_cut(share: Share, reach: Sequence[tuple[int, int]], k: int, schedule: Schedule, units: Sequence[int] = ()) -> bool:
    """Return whether something is left between the borders, so that an exchange can be overlapped with it. `units` as for `steps_of`."""
    if schedule == "linked":
        return all(axis.inner > 0 for axis in _axes(share, reach, k, 1, schedule, units))
    return all(
        extent >= k * (low * before + high * behind)
        for extent, (before, behind), (low, high) in zip(share.extents, share.neighbours, reach, strict=True)
    )


def _axes(share: Share, reach: Sequence[tuple[int, int]], k: int, step: int, schedule: Schedule, units: Sequence[int]) -> list[_Axis]:
    known = units or [1] * len(reach)
    return [
        _Axis(extent, has, pair, k, step, schedule, unit)
        for extent, has, pair, unit in zip(share.extents, share.neighbours, reach, known, strict=True)
    ]


def steps_of(
    share: Share, reach: Sequence[tuple[int, int]], k: int, schedule: Schedule, cut: bool, units: Sequence[int] = ()
) -> Iterator[Step]:
    """Yield what a device computes in each of the k steps between two exchanges; in one piece without `cut`.

    `units` says for each axis of which number of cells borders of the schedule `linked` are multiples, 1 by default.
    """
    for step in range(1, k + 1):
        axes = _axes(share, reach, k, step, schedule, units)
        if not cut:
            yield Step(None, (tuple(one.extended for one in axes),))
            continue
        borders = []
        for at, axis in enumerate(axes):
            before, behind = tuple(one.inner for one in axes[:at]), tuple(one.extended for one in axes[at + 1 :])
            borders += [(*before, width, *behind) for width in axis.borders]
        yield Step(tuple(one.inner for one in axes), tuple(borders))


@dataclass(frozen=True)
class _Axis:
    """The regions of one step along one axis."""

    extent: int
    neighbours: tuple[bool, bool]
    reach: tuple[int, int]
    k: int
    step: int
    schedule: Schedule
    unit: int = 1

    @property
    def left(self) -> int:
        """Remaining steps before the exchange."""
        return self.k - self.step

    @property
    def extended(self) -> int:
        """Cells to compute, including those of the halo that later steps read."""
        return self.extent + sum(one * self.left for one, has in zip(self.reach, self.neighbours, strict=True) if has)

    @property
    def _begins(self) -> tuple[int, int]:
        """The distances of the inner region from both sides of the part."""
        (low, high), (before, behind) = self.reach, self.neighbours
        if self.schedule == "independent":
            return self.step * low * before, self.step * high * behind
        more = self.left * self._whole(max(low, high))
        return (self._whole(self.k * high) + more) * before, (self._whole(self.k * low) + more) * behind

    def _whole(self, cells: int) -> int:
        """Round up to a multiple of the unit."""
        return -(-cells // self.unit) * self.unit

    @property
    def inner(self) -> int:
        return self.extent - sum(self._begins)

    @property
    def borders(self) -> list[int]:
        """Cells of the border at each side that has a neighbour."""
        (low, high), (before, behind) = self.reach, self.neighbours
        if self.schedule == "linked":
            widths = [self._begins[0] + self.left * low, self._begins[1] + self.left * high]
        else:
            widths = [self.k * one + self.left * (low + high) if one else 0 for one in (low, high)]
        return [width for width, has in zip(widths, (before, behind), strict=True) if has and width]
