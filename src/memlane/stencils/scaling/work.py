"""The demands of a problem that every model needs: the reach of a step, the exchanged fields, the cost of a cell and of an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from memlane.errors import StencilError
from memlane.stencils.expression import Operation, parts
from memlane.stencils.geometry import itemsize
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule
from memlane.stencils.scaling.regions import Share


@dataclass(frozen=True)
class Exchange:
    """The times of an exchange that a plan overlaps with computation."""

    us: float
    """Time from the end of the borders of a device to the start of its neighbours' next ones."""
    puts_us: float = 0.0
    """Part of it for which a launch on the device puts planes to the neighbours."""
    ordered_us: float = 0.0
    """Time of all waits of a device for its neighbours' events in a graph of several devices, which follow each other."""


@dataclass(frozen=True)
class Demand:
    """A problem as the models see it."""

    problem: Problem

    @cached_property
    def reach(self) -> tuple[tuple[int, int], ...]:
        """Cells that one step reads before and behind a cell along each axis; rules that follow each other reach further together."""
        prints = [rule.footprint for rule in self.problem.rules]
        axes = range(self.problem.grid.dimensions)
        return tuple((sum(one.low[axis] for one in prints), sum(one.high[axis] for one in prints)) for axis in axes)

    @cached_property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(pair[0] == "periodic" for pair in self.problem.grid.conditions)

    def exchanged(self, k: int) -> tuple[str, ...]:
        """Return the fields whose halos a device needs anew after k steps: those that change and are read at a distance, and with more than
        one step all that change and are read."""
        first = {cycle[0] for cycle in self.problem.swap}
        found = []
        for name in self.problem.fields:
            offsets = [one for rule in self.problem.rules for one in rule.reads.get(name, ())]
            if name in self.problem.constant or not offsets or name in first:
                continue
            if k > 1 or any(map(any, offsets)):
                found.append(name)
        return tuple(found)

    def reads_corners(self, cut: Sequence[int], k: int) -> bool:
        """Return whether cells of a halo are read that lie behind the faces of two cut axes. Else all axes are exchanged at once."""
        if k > 1:
            return True
        written: set[str] = set()
        for rule in self.problem.rules:
            for name, several in rule.reads.items():
                far = 0 if name in self.problem.constant else max(sum(bool(one[axis]) for axis in cut) for one in several)
                if far > 1 or (far and name in written):  # what a rule before wrote is computed in halos too, from more cells of them
                    return True
            written.update(rule.writes)
        return False

    def face_bytes(self, share: Share, axis: int, k: int, corners: bool = True) -> float:
        """Return the bytes that go to a neighbour along an axis: the faces of all fields in one message, with the `corners` that earlier
        axes have brought."""
        cells = k * max(self.reach[axis])
        for other, extent in enumerate(share.extents):
            if other != axis:
                halo = (
                    0
                    if not corners
                    else sum(k * one for one, has in zip(self.reach[other], share.neighbours[other], strict=True) if has and other < axis)
                )
                cells *= extent + halo
        return float(cells * sum(itemsize(self.problem.dtype(name)) for name in self.exchanged(k)))

    def field_bytes(self, extents: Sequence[int]) -> int:
        """Return the bytes of all fields in a box."""
        return prod(extents) * sum(itemsize(self.problem.dtype(name)) for name in self.problem.fields)


def presumed_swap(rules: Sequence[Rule]) -> tuple[str, str]:
    """Return which field a rule writes and whose place it takes after a step: the only field that is read at a distance.

    Raises StencilError where that is not clear.
    """
    written = list(dict.fromkeys(name for rule in rules for name in rule.writes))
    far = [
        name
        for name in dict.fromkeys(name for rule in rules for name in rule.reads)
        if name not in written and any(any(map(any, rule.reads.get(name, ()))) for rule in rules)
    ]
    if len(written) != 1 or len(far) != 1:
        raise StencilError(
            f"which fields change places after a step is not clear: {', '.join(written)} written, {', '.join(far) or 'none'} read at a "
            "distance; pass swap=('new', 'u')"
        )
    return written[0], far[0]


def operations(rule: Rule) -> int:
    """Return how many operations the rule makes for a cell, reductions aside."""
    return sum(isinstance(part, Operation) for one in rule.body if not one.reduces for part in parts(one.value))
