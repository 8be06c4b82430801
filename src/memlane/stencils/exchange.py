"""Steps of a problem on several devices as plans: launches for slabs, and the exchange of the planes that neighbours need.

A turn makes `rounds` launches of every kernel and exchanges once. Halos are as wide as all launches of a turn reach, so that only the first
launch needs what was exchanged; each later one computes fewer planes of them. Where a slab is thick enough, every launch is cut into its
borders and the planes between them:

- A border holds the planes that neighbours get, and is wider in earlier launches, so that the launches of a border depend on each other
  alone. They run on a queue of their own, and planes are exchanged when the last of them is complete. None overwrites what launches between
  the borders still read: two buffers for each field suffice.
- The planes between the borders never read a halo. Their launches follow each other while borders and exchanges are under way, also those
  of the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod
from typing import Any

from memlane.plan import KernelRef, Plan, PlanBuilder, Scalar, StepRef, View
from memlane.stencils.code import StepKernel
from memlane.stencils.decomposition import Decomposition, Slab
from memlane.stencils.fused import FusedKernel
from memlane.stencils.problem import Problem
from memlane.stencils.stages import REDUCTIONS, SCALARS, field_buffers, rotation, scalar_count

INNER, LOW, HIGH, UPWARDS, DOWNWARDS, FROM_BELOW, FROM_ABOVE = range(7)
"""The queues of a device: planes between the borders, the border at each side, what is sent to each side, and what arrives through the host
from each side. What is sent would wait for what arrives, from device to device, if both stood in one queue."""
_PARTS = ("", "low border", "high border")

Widths = tuple[int, int]
"""Planes before the first and behind the last of a slab, or at its low and its high side."""


def wider(first: Widths, second: Widths) -> Widths:
    return max(first[0], second[0]), max(first[1], second[1])


def widest(all_: Iterable[Widths]) -> Widths:
    return reduce(wider, all_, (0, 0))


def added(first: Widths, second: Widths) -> Widths:
    return first[0] + second[0], first[1] + second[1]


def reach_of(kernel: StepKernel, name: str) -> Widths:
    """Return how many planes a launch reads before and behind those that it computes of one field."""
    geometry = kernel.geometry
    planes = [0, *(geometry.offsets(one)[0] for one in kernel.rule.reads.get(name, ()))]
    own = -min(planes), max(planes)
    if not isinstance(kernel, FusedKernel):
        return own
    low, high = kernel.reach[0]
    before = (kernel.steps - 1) * low, (kernel.steps - 1) * high
    moving = any(name in cycle for cycle in kernel.problem.swap)
    return added(before, (low, high) if moving else own)


@dataclass(frozen=True)
class Round:
    """One launch of a turn: its kernel, the memory that names have then, and which planes it computes beside those of the slab."""

    kernel: StepKernel
    number: int
    """How many steps of the turn are complete before it."""
    holders: Mapping[str, str]
    """For each name whose memory of the beginning of the turn it has."""
    halo: Widths = (0, 0)
    """Planes of the halos that it computes, for later launches of the turn."""
    border: Widths = (0, 0)
    """Planes of the borders at the low and the high side."""

    @cached_property
    def reach(self) -> Widths:
        """How many planes it reads at most before and behind those that it computes."""
        return widest(reach_of(self.kernel, name) for name in self.kernel.inputs)


@dataclass(frozen=True)
class Turn:
    """What every device does between two exchanges: `rounds` launches of each kernel in order."""

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
        """Return for each name that moves whose memory at the beginning it has after some rounds."""
        return {name: group[(at + rounds) % len(group)] for group in self.rotation for at, name in enumerate(group)}

    @cached_property
    def _analysed(self) -> tuple[list[Round], dict[str, Widths]]:
        """Walk from the last launch to the first: what later ones read of a halo, earlier ones compute or the exchange brings."""
        needed: dict[str, Widths] = {}
        found: list[Round] = []
        for number in reversed(range(self.rounds)):
            holders = self.names_after(number)
            for kernel in reversed(self.kernels):
                halo = (0, 0)
                for name in kernel.outputs:
                    halo = wider(halo, needed.pop(holders.get(name, name), (0, 0)))
                for name in kernel.inputs:
                    holder = holders.get(name, name)
                    needed[holder] = wider(needed.get(holder, (0, 0)), added(halo, reach_of(kernel, name)))
                found.append(Round(kernel, number * kernel.variant.steps, holders, halo))
        return found[::-1], {name: widths for name, widths in needed.items() if any(widths)}

    @property
    def launches(self) -> list[Round]:
        """The launches in order, without borders."""
        return self._analysed[0]

    @property
    def needs(self) -> dict[str, Widths]:
        """Which fields are read in halos, and how many planes of them, at the beginning of a turn."""
        return self._analysed[1]

    @property
    def halo(self) -> Widths:
        """Planes of halo that the memory of a slab needs for the turn."""
        return widest(self.needs.values())

    def exchanged(self, wanted: Mapping[str, Widths]) -> dict[str, Widths]:
        """Return which fields have to be exchanged after the turn, and how many planes, so that halos hold what is `wanted`."""
        valid = dict(wanted)
        for one in self.launches:
            valid |= {one.holders.get(name, name): one.halo for name in one.kernel.outputs}
        after = self.names_after(self.rounds)
        left = {name: valid.get(after.get(name, name), (0, 0)) for name in wanted}
        return {name: widths for name, widths in wanted.items() if wider(left[name], widths) != left[name]}

    def with_borders(self, wanted: Mapping[str, Widths]) -> list[Round]:
        """Return the launches with borders, of which the last hold what `exchanged` sends."""
        sent = self.exchanged(wanted).values()
        low, high = max((one[1] for one in sent), default=0), max((one[0] for one in sent), default=0)
        found: list[Round] = []
        for one in reversed(self.launches):
            before, behind = one.reach
            if found:
                after = found[-1]
                low, high = after.border[0] + max(after.reach[1], before), after.border[1] + max(after.reach[0], behind)
            else:
                low, high = max(low, before), max(high, behind)
            found.append(replace(one, border=(low, high)))
        return found[::-1]


@dataclass(frozen=True)
class SharedStage:
    """Turns that follow each other on all devices, `turns` of them, with an exchange behind each."""

    decomposition: Decomposition
    turn: Turn
    turns: int
    wanted: Mapping[str, Widths]
    """What halos hold before and after each turn: the needs of the longest turn of a run."""
    scalar_rows: int = 1
    """Rows of the table of scalars: 1 where they stay the same, else one for each step of the stage."""
    strips: Mapping[str, StepKernel] = field(default_factory=dict)
    """By rules whose kernels reduce, those that do not: they compute planes of halos."""
    overlaps: bool = True
    """Whether launches are cut into borders and what lies between them, where a slab is thick enough."""
    through_host: bool = False
    """Whether planes travel through pinned memory of the host, not from device to device."""

    @property
    def steps(self) -> int:
        return self.turns * self.turn.steps

    @property
    def slabs(self) -> tuple[Slab, ...]:
        """The slabs of the devices that the plan is for; a slab's place is the number of its device in the plan."""
        return self.decomposition.slabs

    def names_after(self) -> dict[str, str]:
        """Return for each name that moves whose memory at the beginning it has at the end."""
        return self.turn.names_after(self.turn.rounds * self.turns)

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        """Return the plan of the stage, with the kernels by their names in the module."""
        return Writer(self, refs).plan()


def on_device(name: str, device: int) -> str:
    """Return how a plan calls the memory of a name on one device."""
    return f"{name}@{device}"


@dataclass
class SlabSteps:
    """Steps of one slab in one turn for which others wait, or which wait for them."""

    first: list[StepRef] = field(default_factory=list)
    """The first launches that read what was exchanged, or overwrite what is sent."""
    inner: list[StepRef] = field(default_factory=list)
    """The launches between the borders; none where the slab is not cut."""
    low: list[StepRef] = field(default_factory=list)
    """The last launch of the low border."""
    high: list[StepRef] = field(default_factory=list)
    copies: list[StepRef] = field(default_factory=list)
    """What is sent from and to the slab."""


class Writer:
    """Writes the plan of one stage whose devices are all in one process."""

    def __init__(self, stage: SharedStage, refs: Mapping[str, KernelRef]) -> None:
        self.stage, self.refs, self.builder = stage, refs, PlanBuilder()
        self.turn, self.problem, self.slabs = stage.turn, stage.turn.problem, stage.slabs
        self.home = {slab.device: place for place, slab in enumerate(stage.slabs)}
        self.launches = self.turn.with_borders(stage.wanted)
        pairs = stage.decomposition.neighbours
        self.above_others = {upper.device for _, upper in pairs}
        """Devices with a neighbour whose planes lie before theirs, whether or not they need any of them."""
        self.below_others = {lower.device for lower, _ in pairs}
        self.reducing = [kernel for kernel in self.turn.kernels if kernel.reductions]
        self.views: dict[tuple[str, int], View] = {}
        for slab in self.slabs:
            shape = stage.decomposition.stored_shape(slab)
            for name in field_buffers(self.problem, self.turn.kernels[0].variant.steps > 1):
                self._add(name, slab, shape, self.problem.dtype(name))
            self._add(SCALARS, slab, (stage.scalar_rows, max(1, scalar_count(self.problem))), self.problem.grid.dtype)
            if self.reducing:
                self._add(REDUCTIONS, slab, (sum(len(kernel.reductions) for kernel in self.reducing),), "f8")

    def _add(self, name: str, slab: Slab, shape: tuple[int, ...], dtype: str) -> View:
        view = self.builder.array(on_device(name, slab.device), shape, dtype, self.home[slab.device])
        self.views[name, slab.device] = view
        return view

    def plan(self) -> Plan:
        if self.stage.turns == 1:
            self._turn(self.builder)
            return self.builder.plan()
        cycles = _cycles(self.turn.names_after(self.turn.rounds))
        groups = [tuple(self.views[name, slab.device] for name in cycle) for cycle in cycles for slab in self.slabs]
        with self.builder.repeat(self.stage.turns, rotate=groups) as loop:
            self._turn(loop, repeats=True)
        return self.builder.plan()

    def _turn(self, builder: PlanBuilder, repeats: bool = False) -> None:
        steps = {slab.device: self._slab(builder, slab) for slab in self.slabs}
        self._exchange(builder, steps, repeats)
        for one in steps.values() if repeats else ():
            for step in (*one.copies, *one.low, *one.high, *one.inner[-1:]):
                builder.carry(step, one.first)
            for step in (*one.low, *one.high):
                builder.carry(step, one.inner[:1])

    def _slab(self, builder: PlanBuilder, slab: Slab) -> SlabSteps:
        low, high = self.launches[0].border
        cut = (low if slab.device in self.above_others else 0) + (high if slab.device in self.below_others else 0)
        is_cut = self.stage.overlaps and not self.reducing and cut < slab.planes
        return self._cut(builder, slab) if is_cut else self._whole(builder, slab)

    def _whole(self, builder: PlanBuilder, slab: Slab) -> SlabSteps:
        """Add the launches of a slab that is not cut, one after another."""
        found: list[StepRef] = []
        for one in self.launches:
            begin, behind = self._computed(slab, one)
            if not one.kernel.reductions:
                found.append(self._launch(builder, slab, one, begin, behind, INNER))
                continue
            found.append(self._reduce(builder, slab, one))
            strips = replace(one, kernel=self.stage.strips[one.kernel.rule.name])
            for first, last in ((begin, slab.start), (slab.stop, behind)):
                if first < last:
                    found.append(self._launch(builder, slab, strips, first, last, INNER))
        return SlabSteps(first=found[:1], low=found[-1:], high=found[-1:])

    def _cut(self, builder: PlanBuilder, slab: Slab) -> SlabSteps:
        """Add the launches of a slab in three parts: its borders, and what lies between them."""
        found = SlabSteps()
        for one in self.launches:
            begin, behind = self._computed(slab, one)
            start = slab.start + one.border[0] if slab.device in self.above_others else begin
            stop = slab.stop - one.border[1] if slab.device in self.below_others else behind
            before = [*found.low, *found.high]
            if begin < start:
                found.low = [self._launch(builder, slab, one, begin, start, LOW)]
            if stop < behind:
                found.high = [self._launch(builder, slab, one, stop, behind, HIGH)]
            found.first = found.first or [*found.low, *found.high]
            found.inner.append(self._launch(builder, slab, one, start, stop, INNER, before))
        return found

    def _computed(self, slab: Slab, one: Round) -> tuple[int, int]:
        """Return the first plane that a launch computes on a slab, with halos, and the one behind the last."""
        return slab.start - (one.halo[0] if slab.below else 0), slab.stop + (one.halo[1] if slab.above else 0)

    def _launch(
        self, builder: PlanBuilder, slab: Slab, one: Round, begin: int, behind: int, queue: int, after: Sequence[StepRef] = ()
    ) -> StepRef:
        """Add the launch of a kernel for planes `begin` up to the one before `behind`."""
        return self._add_launch(builder, slab, one, (begin, behind), queue, after, [])

    def _reduce(self, builder: PlanBuilder, slab: Slab, one: Round) -> StepRef:
        """Add the launch of a kernel that reduces over the planes of a slab, and the one that reduces what its blocks leave."""
        kernel, total = one.kernel, self.views[REDUCTIONS, slab.device]
        blocks, place = prod(kernel.grid_of(slab.planes)), self.reducing.index(kernel)
        first = sum(len(before.reductions) for before in self.reducing[:place])
        to = total[first : first + len(kernel.reductions)]
        partial = self._add(f"partial_{kernel.name}", slab, (len(kernel.reductions), blocks), "f8")
        step = self._add_launch(builder, slab, one, (slab.start, slab.stop), INNER, (), [partial])
        builder.launch(
            self.refs[kernel.finish_name], len(kernel.reductions), 256, to, partial, blocks,
            device=self.home[slab.device], queue=INNER, reads=[partial], writes=[to],
        )  # fmt: skip
        return step

    def _add_launch(
        self, builder: PlanBuilder, slab: Slab, one: Round, planes: Widths, queue: int, after: Sequence[StepRef], partial: list[View]
    ) -> StepRef:
        kernel, (begin, behind), (low, high) = one.kernel, planes, one.reach
        inputs, outputs = ([self.views[one.holders.get(name, name), slab.device] for name in names]
                           for names in (kernel.inputs, kernel.outputs))  # fmt: skip
        read = slab.rows(max(begin - low, slab.origin), min(behind + high, slab.origin + slab.held))
        written = slab.rows(begin, behind)
        scalars = self.views[SCALARS, slab.device]
        place = slab.origin, begin - low, behind - 1 + high, begin, behind
        return builder.launch(
            self.refs[kernel.name], kernel.grid_of(behind - begin), kernel.block,
            *outputs, *inputs, scalars, self._row(one), *place, *partial,
            device=self.home[slab.device], queue=queue, after=after, shared_bytes=kernel.shared_bytes,
            reads=[*(view[read] for view in inputs), scalars], writes=[*(view[written] for view in outputs), *partial],
            label=f"{kernel.name} {_PARTS[queue]}".strip(),
        )  # fmt: skip

    def _row(self, one: Round) -> Any:
        """Return the row of the table of scalars that a launch reads."""
        if self.stage.scalar_rows == 1:
            return 0
        return Scalar(one.number, self.turn.steps) if self.stage.turns > 1 else one.number

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SlabSteps], repeats: bool) -> None:
        """Add the copies of what neighbours need, as soon as both borders are complete."""
        after = self.turn.names_after(self.turn.rounds)
        for lower, upper in self.stage.decomposition.neighbours:
            waits = [*steps[lower.device].high, *steps[upper.device].low]
            for name, (low, high) in self.turn.exchanged(self.stage.wanted).items():
                own, other = (self.views[after.get(name, name), slab.device] for slab in (lower, upper))
                found = []
                if low:
                    ends, halo = lower.rows(lower.stop - low, lower.stop), upper.rows(upper.start - low, upper.start)
                    found.append(self._copy(builder, other[halo], own[ends], (UPWARDS, waits), f"{name} up"))
                if high:
                    begins, halo = upper.rows(upper.start, upper.start + high), lower.rows(lower.stop, lower.stop + high)
                    found.append(self._copy(builder, own[halo], other[begins], (DOWNWARDS, waits), f"{name} down"))
                for one in {lower.device, upper.device}:
                    steps[one].copies += found

    def _copy(self, builder: PlanBuilder, to: View, of: View, when: tuple[int, Sequence[StepRef]], label: str) -> StepRef:
        """Add the copy of planes to another device, in two parts where they go through the host."""
        queue, after = when
        if not self.stage.through_host:
            return builder.copy(to, of, queue=queue, after=after, label=label)
        staged = builder.array(f"{label} from {of.buffer.home}", of.shape, of.dtype, "pinned")
        arrived = builder.copy(staged, of, queue=queue, after=after, label=f"{label}, to the host")
        arrival = FROM_BELOW if queue == UPWARDS else FROM_ABOVE
        return builder.copy(to, staged, queue=arrival, after=[arrived], label=f"{label}, from the host")


def _cycles(moves: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the groups in which names change places, each name followed by the one whose memory it takes."""
    found: list[tuple[str, ...]] = []
    for name in moves:
        if any(name in cycle for cycle in found) or moves[name] == name:
            continue
        cycle = [name]
        while moves[cycle[-1]] != name:
            cycle.append(moves[cycle[-1]])
        found.append(tuple(cycle))
    return found
