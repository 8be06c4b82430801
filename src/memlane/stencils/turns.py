"""Lay out the launches between two exchanges: the halo cells that each computes and needs, the widths of its borders, and their steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from memlane.plan import StepRef
from memlane.stencils.code import StepKernel
from memlane.stencils.decomposition import Margins, Widths
from memlane.stencils.fused import FusedKernel
from memlane.stencils.geometry import ALIGNED
from memlane.stencils.problem import Problem
from memlane.stencils.stages import rotation


def wider(first: Margins, second: Margins) -> Margins:
    return tuple((max(one[0], other[0]), max(one[1], other[1])) for one, other in zip(first, second, strict=True))


def widest(all_: Iterable[Margins]) -> Margins:
    """Return the widest of one or more margins along each axis."""
    return tuple((max(one[0] for one in axis), max(one[1] for one in axis)) for axis in zip(*all_, strict=True))


def added(first: Margins, second: Margins) -> Margins:
    return tuple((one[0] + other[0], one[1] + other[1]) for one, other in zip(first, second, strict=True))


def no_margins(problem: Problem) -> Margins:
    return ((0, 0),) * problem.grid.dimensions


def reach_of(kernel: StepKernel, name: str) -> Margins:
    """Return how far a launch reads one field before and after the cells that it computes, along the axes that are cut."""
    geometry, found = kernel.geometry, list(no_margins(kernel.problem))
    moving = any(name in cycle for cycle in kernel.problem.swap)
    for axis in kernel.problem.cut:
        at = geometry.axes.index(axis)
        cells = [0, *(geometry.offsets(one)[at] for one in kernel.rule.reads.get(name, ()))]
        before, behind = -min(cells), max(cells)
        if isinstance(kernel, FusedKernel):
            low, high = kernel.reach[at]
            last = (low, high) if moving else (before, behind)
            before, behind = (kernel.steps - 1) * low + last[0], (kernel.steps - 1) * high + last[1]
        found[axis] = before, behind
    return tuple(found)


@dataclass(frozen=True)
class Round:
    """One launch of a turn: its kernel, the memory of the names at that time, and the halo cells that it computes."""

    kernel: StepKernel
    number: int
    """Steps of the turn that are complete before the launch."""
    holders: Mapping[str, str]
    """Map of each name that moved to the name whose memory at the beginning of the turn it has."""
    halo: Margins
    """Halo cells that the launch computes for later launches of the turn."""
    border: Margins
    """Cells of the borders at the low and the high side of each axis."""

    @cached_property
    def reach(self) -> Margins:
        """The reach of the launch before and behind the cells that it computes, along each axis."""
        return widest(reach_of(self.kernel, name) for name in self.kernel.inputs)


@dataclass(frozen=True)
class Turn:
    """The launches of every device between two exchanges: `rounds` of each kernel, in order."""

    problem: Problem
    kernels: tuple[StepKernel, ...]
    rounds: int

    @property
    def steps(self) -> int:
        return self.rounds * self.kernels[0].variant.steps

    @cached_property
    def rotation(self) -> tuple[tuple[str, ...], ...]:
        return rotation(self.problem, self.kernels[0].variant.steps)

    def names_after(self, rounds: int) -> dict[str, str]:
        """Map each name that moves to the name whose initial memory it has after some rounds."""
        return {name: group[(at + rounds) % len(group)] for group in self.rotation for at, name in enumerate(group)}

    @cached_property
    def _analysed(self) -> tuple[list[Round], dict[str, Margins]]:
        """Walk from the last launch to the first: halo cells that later launches read are computed by earlier ones, or exchanged."""
        needed: dict[str, Margins] = {}
        found: list[Round] = []
        none = no_margins(self.problem)
        for number in reversed(range(self.rounds)):
            holders = self.names_after(number)
            for kernel in reversed(self.kernels):
                halo = none
                for name in kernel.outputs:
                    halo = wider(halo, needed.pop(holders.get(name, name), none))
                for name in kernel.inputs:
                    holder = holders.get(name, name)
                    needed[holder] = wider(needed.get(holder, none), added(halo, reach_of(kernel, name)))
                found.append(Round(kernel, number * kernel.variant.steps, holders, halo, none))
        return found[::-1], {name: margins for name, margins in needed.items() if any(map(any, margins))}

    @property
    def launches(self) -> list[Round]:
        """The launches in order, without borders."""
        return self._analysed[0]

    @property
    def needs(self) -> dict[str, Margins]:
        """Fields that a turn reads in halos at its beginning, with the width of the halo along each axis."""
        return self._analysed[1]

    @property
    def halo(self) -> Margins:
        """Cells of halo that the memory of a part needs for the turn along each axis."""
        return widest([no_margins(self.problem), *self.needs.values()])

    @property
    def reads_corners(self) -> bool:
        """Whether a launch may read cells of a halo along two axes at once, where the parts of two neighbours meet."""
        if any(any(map(any, one.halo)) or one.kernel.variant.steps > 1 for one in self.launches):
            return True
        return any(
            sum(bool(offsets[axis]) for axis in self.problem.cut) > 1
            for rule in self.problem.rules
            for name, several in rule.reads.items()
            if name not in self.problem.constant
            for offsets in several
        )

    def exchanged(self, wanted: Mapping[str, Margins]) -> dict[str, Margins]:
        """Return the fields to exchange after the turn, with the widths that make the halos as valid as `wanted`."""
        valid = dict(wanted)
        for one in self.launches:
            valid |= {one.holders.get(name, name): one.halo for name in one.kernel.outputs}
        after = self.names_after(self.rounds)
        left = {name: valid.get(after.get(name, name), no_margins(self.problem)) for name in wanted}
        return {name: margins for name, margins in wanted.items() if wider(left[name], margins) != left[name]}

    def faces(self, wanted: Mapping[str, Margins], axis: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Return the fields sent along an axis, with the number of cells: upwards (to larger indices), and downwards."""
        sent = [(name, margins[axis]) for name, margins in self.exchanged(wanted).items()]
        return [(name, low) for name, (low, _) in sent if low], [(name, high) for name, (_, high) in sent if high]

    def with_borders(self, wanted: Mapping[str, Margins]) -> list[Round]:
        """Return the launches with borders; the borders of the last launch hold the cells that `exchanged` sends."""
        sent = widest([no_margins(self.problem), *self.exchanged(wanted).values()])
        axes = [self._borders(axis, pair) for axis, pair in enumerate(sent)]
        return [replace(one, border=border) for one, border in zip(self.launches, zip(*axes, strict=True), strict=True)]

    def _borders(self, axis: int, sent: Widths) -> list[Widths]:
        """Return the cells of the borders of each launch along an axis, in whole vectors along a row."""
        if axis not in self.problem.cut:
            return [(0, 0) for _ in self.launches]
        unit = ALIGNED if axis == self.problem.grid.dimensions - 1 else 1
        high, low = sent
        found: list[Widths] = []
        after: Widths | None = None
        for one in reversed(self.launches):
            before, behind = one.reach[axis]
            if after is None:
                low, high = whole_units(max(low, before), unit), whole_units(max(high, behind), unit)
            else:
                low, high = low + whole_units(max(after[1], before), unit), high + whole_units(max(after[0], behind), unit)
            found.append((low, high))
            after = before, behind
        return found[::-1]


@dataclass
class SubdomainSteps:
    """Steps of one part in one turn that other steps depend on, or that depend on others."""

    first_whole: list[StepRef] = field(default_factory=list)
    """The first launch of a part that is not cut."""
    first_borders: dict[tuple[int, int], StepRef] = field(default_factory=dict)
    """The first launch of each border, by its axis and its side, 0 or 1."""
    inner: list[StepRef] = field(default_factory=list)
    """The launches between the borders; none where the part is not cut."""
    borders: dict[tuple[int, int], StepRef] = field(default_factory=dict)
    """The last launch of each border, by its axis and its side, 0 or 1."""
    whole: list[StepRef] = field(default_factory=list)
    """The last launch of a part that is not cut."""
    copies: list[StepRef] = field(default_factory=list)
    """Copies from and to the part that precede all first launches of the next turn."""
    plane_copies: dict[int, list[StepRef]] = field(default_factory=dict)
    """Copies of planes from and to the part by side; a border needs only those at its side."""

    @property
    def first(self) -> list[StepRef]:
        """First launches that read exchanged cells, or overwrite sent cells."""
        return [*self.first_whole, *self.first_borders.values()]

    def first_of_slab(self, side: int) -> list[StepRef]:
        """Return the first launches of a slab that read the halo at one side, or overwrite cells sent from there."""
        return [step for (_, at), step in self.first_borders.items() if at == side] or self.first

    @property
    def all_copies(self) -> list[StepRef]:
        """All copies from and to the part."""
        return [*(copy for copies in self.plane_copies.values() for copy in copies), *self.copies]

    @property
    def last(self) -> list[StepRef]:
        """Last launches that read exchanged cells, or compute cells to send."""
        return [*self.whole, *self.borders.values()]

    def face(self, axis: int, side: int) -> list[StepRef]:
        """Return the last launches that compute the cells at one side, or read its halo."""
        return [*self.whole, *(step for (other, at), step in self.borders.items() if other < axis or (other, at) == (axis, side))]


def whole_units(cells: int, unit: int) -> int:
    """Round up to a multiple of a unit."""
    return -(-cells // unit) * unit


def cycles_of(moves: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the cycles of names that swap: each name is followed by the one whose memory it takes."""
    found: list[tuple[str, ...]] = []
    for name in moves:
        if any(name in cycle for cycle in found) or moves[name] == name:
            continue
        cycle = [name]
        while moves[cycle[-1]] != name:
            cycle.append(moves[cycle[-1]])
        found.append(tuple(cycle))
    return found
