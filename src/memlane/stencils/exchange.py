"""Plan the steps of a problem on several devices: the launches for each subdomain, and the exchange of halos.

A turn makes `rounds` launches of every kernel and exchanges once. Halos are as wide as the reach of all launches of a turn, so that only
the first launch needs the exchanged cells; each later launch computes fewer planes of the halos. If a subdomain is thick enough, every
launch is split into its borders and the planes between them:

- A border holds the planes that neighbours get, and is wider in earlier launches, so that the launches of a border depend only on each
  other. They run on their own queue, and planes are exchanged when the last of them is complete. None overwrites data that launches between
  the borders still read: two buffers for each field suffice.
- The planes between the borders never read a halo. Their launches follow each other, into the next turn too, while borders and exchanges
  are in flight.

Boxes work likewise, with a border at each side of each axis that is cut; the borders of a launch then wait for the whole previous launch,
because they meet at the edges. Boxes exchange one axis after another: a message along one axis includes the halos that arrived along the
earlier axes, so that edges and corners pass through a common neighbour. That takes two messages for each axis instead of one for each of
the 8 or 26 surrounding boxes. If no launch reads edges, all axes are exchanged at once. Planes are contiguous in memory and are copied;
faces along other axes are packed by a kernel into one message, with all fields, and unpacked after the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from memlane.plan import KernelRef, Plan, PlanBuilder, Scalar, StepRef, View
from memlane.stencils.boxes import Box, Boxes
from memlane.stencils.code import StepKernel
from memlane.stencils.decomposition import Decomposition, Margins, Subdomain
from memlane.stencils.faces import PACK, UNPACK, Faces, Message, add_move, message_places
from memlane.stencils.points import point_kernel
from memlane.stencils.stages import REDUCTIONS, SCALARS, Point, field_buffers, launch_point, on_device, scalar_type, scalars_shape
from memlane.stencils.turns import Round, SubdomainSteps, Turn, cycles_of

INNER, LOW, HIGH, UPWARDS, DOWNWARDS, FROM_BELOW, FROM_ABOVE, MORE = range(8)
"""Queues of a device: the planes between the borders, the border at each side, messages sent to each side, and messages received through
the host from each side. Sends have queues of their own, because otherwise they would wait for receives, from device to device. From `MORE`
on, queues for the second and the third axis: first two queues of borders for each, then four of the exchange."""
SIDES = ("low", "high")


@dataclass(frozen=True)
class SharedStage:
    """Stage of `turns` consecutive turns on all devices, each followed by an exchange."""

    decomposition: Decomposition
    turn: Turn
    turns: int
    wanted: Mapping[str, Margins]
    """Cells of the halos that are valid before and after each turn: the needs of the longest turn of a run."""
    scalar_rows: int = 1
    """Rows of the table of scalars: 1 where they stay the same, else one for each step of the stage."""
    strips: Mapping[str, StepKernel] = field(default_factory=dict)
    """For rules whose kernels reduce: kernels that do not, which compute planes of halos."""
    overlaps: bool = True
    """Whether launches on subdomains that are thick enough are split into borders and interior."""
    through_host: bool = False
    """Whether planes travel through pinned memory of the host, not from device to device."""
    points: Mapping[int, tuple[Point, ...]] = field(default_factory=dict)
    """Sources and probes by device, executed after each step; each step is then a launch. A source is added to every copy of its cell, in
    halos too, because devices compute from these until the next exchange. Launches on such a device are not split into borders."""

    corners: bool = True
    """Whether launches read halos along two axes at once, so that axes are exchanged one after another; without them, all at once."""

    @property
    def steps(self) -> int:
        return self.turns * self.turn.steps

    @property
    def subdomains(self) -> tuple[Subdomain, ...]:
        """Subdomains of the devices of the plan, in the order of the device numbers."""
        return self.decomposition.subdomains

    def names_after(self) -> dict[str, str]:
        """Map each name that moves to the name whose initial memory it has at the end."""
        return self.turn.names_after(self.turn.rounds * self.turns)

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        """Return the plan of the stage, with the kernels by their names in the module."""
        return Writer(self, refs).plan()


@dataclass(frozen=True)
class Stores:
    """Stores of a border launch into the memory of a neighbour, and the flags that it raises there."""

    kernel: str = ""
    """Name of the border kernel."""
    arguments: Sequence[View | int] = ()
    """Additional arguments, after those of the kernel of a step."""
    writes: Sequence[View] = ()
    raises: Sequence[View] = ()


class Writer:
    """Builder of the plan of one stage whose devices are all in one process."""

    whole_planes = False
    """Whether messages along the first axis hold whole planes."""

    def __init__(self, stage: SharedStage, refs: Mapping[str, KernelRef]) -> None:
        self.stage, self.refs, self.builder = stage, refs, PlanBuilder()
        self.turn, self.problem, self.subdomains = stage.turn, stage.turn.problem, stage.subdomains
        self.home = {subdomain.device: place for place, subdomain in enumerate(stage.subdomains)}
        self.launches = self.turn.with_borders(stage.wanted)
        self.axes = range(self.problem.grid.dimensions)
        self.views: dict[tuple[str, int], View] = {}
        self.boxes = Boxes(stage.decomposition, self.problem.cut)
        self.faces = Faces(
            self.views, self.turn.names_after(self.turn.rounds), self.problem.cut, corners=stage.corners, whole_planes=self.whole_planes
        )
        self.reducing = [kernel for kernel in self.turn.kernels if kernel.reductions]
        for subdomain in self.subdomains:
            shape = stage.decomposition.stored_shape(subdomain)
            for name in field_buffers(self.problem, self.turn.kernels[0].variant.steps > 1):
                self._add(name, subdomain, shape, self.problem.dtype(name))
            self._add(SCALARS, subdomain, scalars_shape(self.problem, stage.scalar_rows), scalar_type(self.problem))
            for point in stage.points.get(subdomain.device, ()):
                self._add(point.table, subdomain, (point.rows, point.count), self.problem.dtype(point.field))
                self._add(point.places, subdomain, (point.count,), "i8")
            if self.reducing:
                self._add(REDUCTIONS, subdomain, (sum(kernel.word_count for kernel in self.reducing),), "f8")

    def _add(self, name: str, subdomain: Subdomain, shape: tuple[int, ...], dtype: str) -> View:
        view = self.builder.array(on_device(name, subdomain.device), shape, dtype, self.home[subdomain.device])
        self.views[name, subdomain.device] = view
        return view

    def plan(self) -> Plan:
        if self.stage.turns == 1:
            self._turn(self.builder)
            return self.builder.plan()
        cycles = cycles_of(self.turn.names_after(self.turn.rounds))
        groups = [tuple(self.views[name, subdomain.device] for name in cycle) for cycle in cycles for subdomain in self.subdomains]
        with self.builder.repeat(self.stage.turns, rotate=groups) as loop:
            self._turn(loop, repeats=True)
        return self.builder.plan()

    def _turn(self, builder: PlanBuilder, repeats: bool = False) -> None:
        steps = {subdomain.device: self._subdomain(builder, subdomain) for subdomain in self.subdomains}
        self._exchange(builder, steps, repeats)
        for one in steps.values() if repeats else ():
            for step in (*one.copies, *one.last, *one.inner[-1:]):
                builder.carry(step, one.first)
            for step in one.last if one.inner else ():
                builder.carry(step, one.inner[:1])
            for side, copies in one.plane_copies.items():
                for step in copies:
                    builder.carry(step, one.first_of_slab(side) if self.problem.cut == (0,) else one.first)

    def _subdomain(self, builder: PlanBuilder, subdomain: Subdomain) -> SubdomainSteps:
        inner = self.boxes.inner(subdomain, self.launches[0])
        is_cut = (
            self.stage.overlaps
            and not self.reducing
            and not self.stage.points.get(subdomain.device)
            and all(begin < behind for begin, behind in inner)
        )
        return self._cut(builder, subdomain) if is_cut else self._whole(builder, subdomain)

    def _whole(self, builder: PlanBuilder, subdomain: Subdomain) -> SubdomainSteps:
        """Add the launches of a part that is not cut, one after another."""
        found: list[StepRef] = []
        for at, one in enumerate(self.launches, 1):
            found += self._launches(builder, subdomain, one)
            if at % len(self.turn.kernels) == 0:
                found += self._points(builder, subdomain, one)
        return SubdomainSteps(first_whole=found[:1], whole=found[-1:])

    def _launches(self, builder: PlanBuilder, subdomain: Subdomain, one: Round) -> list[StepRef]:
        """Add a launch for all cells of a part; if it reduces, another kernel computes the cells of halos."""
        computed, own = self.boxes.computed(subdomain, one), tuple((span.start, span.stop) for span in subdomain.spans)
        if not one.kernel.reductions:
            return [self._launch(builder, subdomain, one, computed, INNER)]
        strips = replace(one, kernel=self.stage.strips[one.kernel.rule.name])
        around = self.boxes.around(computed, own)
        return [self._reduce(builder, subdomain, one), *(self._launch(builder, subdomain, strips, box, INNER) for box in around)]

    def _points(self, builder: PlanBuilder, subdomain: Subdomain, one: Round) -> list[StepRef]:
        """Add the launches for sources and probes after a step, whose last launch is `one`."""
        found = []
        for point in self.stage.points.get(subdomain.device, ()):
            holder = one.holders.get(point.field, point.field)
            views = {point.field: self.views[holder, subdomain.device]}
            views |= {name: self.views[name, subdomain.device] for name in (point.table, point.places)}
            ref = self.refs[point_kernel(point.kernel, self.problem.dtype(point.field))]
            row = Scalar(one.number, self.turn.steps) if self.stage.turns > 1 else one.number
            found.append(launch_point(builder, ref, point, views, row, device=self.home[subdomain.device], queue=INNER))
            self.launch_added(builder, subdomain, found[-1], INNER)
        return found

    def _cut(self, builder: PlanBuilder, subdomain: Subdomain) -> SubdomainSteps:
        """Add the launches of a part in pieces: its borders, and what lies between them."""
        found = SubdomainSteps()
        meet = sum(any(self.stage.decomposition.has_neighbour(subdomain, axis)) for axis in self.axes) > 1
        for one in self.launches:
            inner, before = self.boxes.inner(subdomain, one), found.last
            for axis, side, box in self.boxes.borders(subdomain, one, inner):
                queue = (LOW, HIGH)[side] if axis == 0 else MORE + 2 * (axis - 1) + side
                label = f"{SIDES[side]} border{f' along axis {axis}' if axis else ''}"
                found.borders[axis, side] = self.border(builder, subdomain, one, (axis, side), box, queue, before if meet else (), label)
            found.first_borders = found.first_borders or dict(found.borders)
            found.inner.append(self._launch(builder, subdomain, one, inner, INNER, before))
        return found

    def border(
        self,
        builder: PlanBuilder,
        subdomain: Subdomain,
        one: Round,
        face: tuple[int, int],
        box: Box,
        queue: int,
        after: Sequence[StepRef],
        label: str,
    ) -> StepRef:
        """Add the launch of a border at a face, given by axis and side. Override it in writers whose borders do more than compute."""
        return self._launch(builder, subdomain, one, box, queue, after, label)

    def _launch(
        self, builder: PlanBuilder, subdomain: Subdomain, one: Round, box: Box, queue: int, after: Sequence[StepRef] = (), label: str = ""
    ) -> StepRef:
        """Add the launch of a kernel for the cells of a box."""
        return self._add_launch(builder, subdomain, one, box, queue, after, [], label)

    def _reduce(self, builder: PlanBuilder, subdomain: Subdomain, one: Round) -> StepRef:
        """Add the launch of a kernel that reduces over the cells of a part, and the one that reduces the partial values of its blocks."""
        kernel, total = one.kernel, self.views[REDUCTIONS, subdomain.device]
        own = tuple((span.start, span.stop) for span in subdomain.spans)
        blocks, place = prod(self.boxes.blocks(kernel, own)), self.reducing.index(kernel)
        first = sum(before.word_count for before in self.reducing[:place])
        to = total[first : first + kernel.word_count]
        partial = self._add(f"partial_{kernel.name}", subdomain, (kernel.word_count, blocks), "f8")
        step = self._add_launch(builder, subdomain, one, own, INNER, (), [partial])
        builder.launch(
            self.refs[kernel.finish_name], kernel.word_count, 256, to, partial, blocks,
            device=self.home[subdomain.device], queue=INNER, reads=[partial], writes=[to],
        )  # fmt: skip
        return step

    def _add_launch(
        self,
        builder: PlanBuilder,
        subdomain: Subdomain,
        one: Round,
        box: Box,
        queue: int,
        after: Sequence[StepRef],
        partial: list[View],
        label: str = "",
        stores: Stores | None = None,
    ) -> StepRef:
        kernel, more = one.kernel, stores or Stores()
        inputs, outputs = ([self.views[one.holders.get(name, name), subdomain.device] for name in names]
                           for names in (kernel.inputs, kernel.outputs))  # fmt: skip
        reads = tuple((begin - low, behind + high) for (begin, behind), (low, high) in zip(box, one.reach, strict=True))
        read, written, scalars = (
            self.boxes.memory(subdomain, reads),
            self.boxes.memory(subdomain, box),
            self.views[SCALARS, subdomain.device],
        )
        place: list[int] = []
        for axis in kernel.problem.cut:
            (first, last), (begin, behind) = reads[axis], box[axis]
            place += [subdomain.spans[axis].origin, first, last - 1, begin, behind]
        step = builder.launch(
            self.refs[more.kernel or kernel.name], self.boxes.blocks(kernel, box), kernel.block,
            *outputs, *inputs, scalars, self._row(one), *place, *partial, *more.arguments,
            device=self.home[subdomain.device], queue=queue, after=after, shared_bytes=kernel.shared_bytes,
            reads=[*(view[read] for view in inputs), scalars], writes=[*(view[written] for view in outputs), *partial, *more.writes],
            label=f"{more.kernel or kernel.name} {label}".strip(), is_urgent=queue != INNER, raises=more.raises,
        )  # fmt: skip
        self.launch_added(builder, subdomain, step, queue)
        return step

    def launch_added(self, builder: PlanBuilder, subdomain: Subdomain, step: StepRef, queue: int) -> None:
        """Do nothing: a hook for each launch added to the current turn, for writers whose exchange needs all launches."""

    def _row(self, one: Round) -> Any:
        """Return the row of the table of scalars that a launch reads."""
        if self.stage.scalar_rows == 1:
            return 0
        return Scalar(one.number, self.turn.steps) if self.stage.turns > 1 else one.number

    # -- the exchange ------------------------------------------------------------------------------------------------------------

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SubdomainSteps], repeats: bool) -> None:
        """Add the exchange between neighbours, axis after axis, as soon as borders are complete."""
        for axis in self.axes:
            if axis == 0:
                self._exchange_planes(builder, steps)
            else:
                self._exchange_faces(builder, steps, axis, repeats)

    def _exchange_planes(self, builder: PlanBuilder, steps: Mapping[int, SubdomainSteps]) -> None:
        """Add the copies of planes, which are contiguous in memory.

        Each follows the border that computes the planes. If a turn has one launch, it need not wait for the neighbour's border, which reads
        a halo in other memory, because fields swap. The halo that is overwritten was read in the previous turn, before the neighbour sent
        its own planes, for which this border has waited.
        """
        after = self.turn.names_after(self.turn.rounds)
        up, down = self.turn.faces(self.stage.wanted, 0)
        # Launches write whole vectors of a row that is cut, and sources are added in halos too.
        is_read_before = len(self.launches) == 1 and bool(up and down) and self.axes[-1] > 0 and not self.stage.points
        for lower, upper in self.stage.decomposition.neighbours_along(0):
            sent = steps[lower.device].face(0, 1), steps[upper.device].face(0, 0)
            waits = sent if is_read_before else ([*sent[0], *sent[1]],) * 2
            within = () if self.stage.corners else tuple(self.faces.own(span, axis) for axis, span in enumerate(lower.spans) if axis)
            for name, ((low, high), *_) in self.turn.exchanged(self.stage.wanted).items():
                own, other = (self.views[after.get(name, name), subdomain.device] for subdomain in (lower, upper))
                found = []
                if low:
                    ends, halo = lower.rows(lower.stop - low, lower.stop), upper.rows(upper.start - low, upper.start)
                    found.append(self._copy(builder, other[halo, *within], own[ends, *within], (UPWARDS, waits[0]), f"{name} up"))
                if high:
                    begins, halo = upper.rows(upper.start, upper.start + high), lower.rows(lower.stop, lower.stop + high)
                    found.append(self._copy(builder, own[halo, *within], other[begins, *within], (DOWNWARDS, waits[1]), f"{name} down"))
                for one, side in ((lower.device, 1), (upper.device, 0)):
                    steps[one].plane_copies.setdefault(side, []).extend(found)

    def _copy(self, builder: PlanBuilder, to: View, of: View, when: tuple[int, Sequence[StepRef]], label: str) -> StepRef:
        """Add the copy of planes to another device, in two parts where they go through the host."""
        queue, after = when
        if not self.stage.through_host:
            return builder.copy(to, of, queue=queue, after=after, label=label)
        staged = builder.array(f"{label} from {of.buffer.home}", of.shape, of.dtype, "pinned")
        arrived = builder.copy(staged, of, queue=queue, after=after, label=f"{label}, to the host")
        arrival = FROM_BELOW if queue == UPWARDS else FROM_ABOVE
        return builder.copy(to, staged, queue=arrival, after=[arrived], label=f"{label}, from the host")

    def _exchange_faces(self, builder: PlanBuilder, steps: Mapping[int, SubdomainSteps], axis: int, repeats: bool) -> None:
        """Add the packed messages along an axis whose faces are not contiguous. They include the halos that arrived along earlier axes."""
        up, down = self.turn.faces(self.stage.wanted, axis)
        before = {device: one.all_copies if self.stage.corners else [] for device, one in steps.items()}
        for lower, upper in self.stage.decomposition.neighbours_along(axis):
            for sent, side, source, goal in ((up, 1, lower, upper), (down, 0, upper, lower)):
                if sent:
                    waits = [*steps[source.device].face(axis, side), *before[source.device]]
                    waits_there = [*steps[goal.device].face(axis, 1 - side), *before[goal.device]]
                    message = Message(axis, side, source, goal, sent)
                    packed, unpacked = self._send(builder, message, waits, waits_there, repeats)
                    steps[source.device].copies.append(packed)
                    steps[goal.device].copies.append(unpacked)

    def _send(
        self, builder: PlanBuilder, message: Message, waits: Sequence[StepRef], waits_there: Sequence[StepRef], repeats: bool
    ) -> tuple[StepRef, StepRef]:
        """Add the launch that packs a message, the copies that bring it to a neighbour, and the launch that unpacks it there."""
        source, goal, label = message.source, message.goal, message.label
        faces, halos = self.faces.sent(message), self.faces.received(message)
        nbytes = message_places(faces)[1]
        there, first = self.home[goal.device], MORE + 4 * message.axis
        queue, arrival = (first, first + 2) if message.side else (first + 1, first + 3)
        packing = builder.array(f"{label} from {source.device}", nbytes, "u1", self.home[source.device])
        arriving = builder.array(f"{label} to {goal.device}", nbytes, "u1", there)
        packed = add_move(
            builder, self.refs, PACK, packing, faces,
            device=self.home[source.device], queue=queue, after=waits, label=f"pack {label}", is_urgent=True,
        )  # fmt: skip
        hops = [builder.array(f"{label} from {source.device} through the host", nbytes, "u1", "pinned")] if self.stage.through_host else []
        step, of = packed, packing
        copies = []
        for to in (*hops, arriving):
            ends = (", to the host" if to is not arriving else ", from the host") if hops else ""
            where = {"queue": queue} if of is packing else {"queue": arrival}
            step = builder.copy(to, of, after=[step], label=f"{label}{ends}", **where)
            copies.append(step)
            of = to
        unpacked = add_move(
            builder, self.refs, UNPACK, arriving, halos,
            device=there, queue=arrival, after=[step, *waits_there], label=f"unpack {label}", is_urgent=True,
        )  # fmt: skip
        if repeats:  # the source buffer of a message is free for the next turn
            for user, overwriting in zip([*copies, unpacked], [packed, *copies], strict=True):
                builder.carry(user, [overwriting])
        return packed, unpacked
