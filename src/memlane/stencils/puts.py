"""Steps on several devices that signal each other: each stores what its neighbours need into their halos, raises flags there, and waits for
theirs.

The launches are those of `exchange`. Behind its borders a device makes one put (`memlane.plan.Put`) of all fields to all neighbours along
an axis, and then one wait for theirs, axis after axis; the next borders stand behind the last wait. So no event and no host lies between
the devices of a step. Faces with gaps are stored as they lie, without packing. Where a border has just computed all that its neighbour
needs, its own launch stores that and raises the flag (`borders`), and there is no put.

What a put may overwrite. It stores into halos that launches of the neighbour read or compute. With one launch a turn these belong to the
memory that the neighbour read in the turn before, because fields change places: it has sent its own cells since, behind all its borders,
and this device has waited for them, so nothing reads there any more. Where launches of the same turn touch these halos, which they do when
a turn has more of them, or where the neighbour sends nothing, the neighbour says when they are free: by a put of no elements, behind the
last launch that touches them in this turn or in the one before. That launch is not the last of the turn, so the signal is mostly there when
it is waited for. `plan.races` proves both: it knows no order between devices but from a put to its wait.

All puts and waits of a device stand in one queue, what is raised before what is waited for. So whatever order its work is started in, what
a device waits for never stands behind that wait on another one, and nothing waits in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memlane.plan import KernelRef, Plan, PlanBuilder, StepRef, Touch, View
from memlane.stencils.borders import BorderKernel, stores_borders
from memlane.stencils.boxes import Box
from memlane.stencils.decomposition import Subdomain
from memlane.stencils.exchange import INNER, SIDES, UPWARDS, SharedStage, Stores, SubdomainSteps, Writer
from memlane.stencils.faces import Message
from memlane.stencils.turns import Round

SIGNALS = UPWARDS
"""The queue of puts and waits."""


@dataclass(frozen=True)
class PutStage(SharedStage):
    """Turns whose devices store into each other's halos and signal each other by flags."""

    border: BorderKernel | None = None
    """The kernel of a border that stores into the halo of the neighbour itself, where the run has one."""

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _PutWriter(self, refs).plan()


@dataclass(frozen=True)
class _Face:
    """Cells of one field at a face of one part, which it stores into the halo of another."""

    axis: int
    side: int
    of: int
    to: int
    source: View
    halo: View


@dataclass(frozen=True)
class _Made:
    """A launch of the present turn."""

    step: StepRef
    queue: int
    touches: tuple[Touch, ...]


Pair = tuple[int, int]
"""A device that sends, and the one that it sends to."""


class _PutWriter(Writer):
    """Writes the plan of one stage whose devices signal each other."""

    def __init__(self, stage: SharedStage, refs: Mapping[str, KernelRef]) -> None:
        super().__init__(stage, refs)
        self._made: dict[int, list[_Made]] = {subdomain.device: [] for subdomain in self.subdomains}
        """By device its launches, in order."""
        self._stored: dict[tuple[int, int], tuple[StepRef, View]] = {}
        """By device and side the launch of a border that stores into the halo of the neighbour, and the flag that it raises."""
        self._border = stage.border if isinstance(stage, PutStage) else None
        self._written = {} if self._border is None else stores_borders(self.turn, stage.wanted)

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
        found = [message for message in self._messages(0) if message.source is subdomain and message.side == face[1]]
        # Sources of a neighbour add to its halos, too, and it has to say when they have.
        if self._border is None or not self._written or any(self.stage.points.get(message.goal.device) for message in found):
            return super().border(builder, subdomain, one, face, box, queue, after, label)
        (message,) = found
        source, goal, widths, (name, end) = (
            message.source,
            message.goal,
            dict(message.sent),
            (("stop", "start"), ("start", "stop"))[face[1]],
        )
        moved = getattr(goal, name) - getattr(source, end)
        by_output = {output: widths[sent] for sent, output in self._written.items()}
        arguments: list[View | int] = []
        for output in self._border.outputs:
            width = by_output.get(output, 0)
            first = source.stop - width if message.side else source.start
            arguments += [self.views[one.holders.get(output, output), goal.device], goal.origin - moved, first, first + width]
        pair = f"stored by {source.device} for {goal.device}"
        is_twice = sum(other.goal is goal and other.source is source for other in self._messages(0)) > 1
        flag = builder.flag(f"{pair} at its {SIDES[message.side]} side" if is_twice else pair, self.home[goal.device])
        stores = Stores(self._border.name, arguments, self.faces.received(message), [flag])
        step = self._add_launch(builder, subdomain, one, box, queue, after, [], label, stores)
        self._stored[subdomain.device, message.side] = step, flag
        return step

    def launch_added(self, builder: PlanBuilder, subdomain: Subdomain, step: StepRef, queue: int) -> None:
        self._made[subdomain.device].append(_Made(step, queue, builder.action(step).touches))

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SubdomainSteps], repeats: bool) -> None:
        """Add a put and a wait for each device along each axis."""
        faces = list(self._faces())
        freed = self._freed(builder, faces, repeats)
        for axis in sorted({face.axis for face in faces}):
            self._exchange_along(builder, [face for face in faces if face.axis == axis], steps, freed)

    def _exchange_along(
        self, builder: PlanBuilder, faces: Sequence[_Face], steps: Mapping[int, SubdomainSteps], freed: Mapping[int, StepRef]
    ) -> None:
        """Add the puts of some faces along one axis, and the waits for them. A wait along the axis before stands before each put, in the
        queue that all of them share."""
        ending = f" along axis {faces[0].axis}" if faces[0].axis else ""
        puts = [face for face in faces if (face.of, face.side) not in self._stored]
        flags = {
            (of, to): builder.flag(f"stored by {of} for {to}{ending}", self.home[to])
            for of, to in dict.fromkeys((face.of, face.to) for face in puts)
        }
        raised: dict[int, dict[View, StepRef]] = {}
        """By device the flags that it waits for, and the steps that raise them."""
        for device in dict.fromkeys(of for of, _ in flags):
            own = {to: flag for (of, to), flag in flags.items() if of == device}
            put = builder.put(
                [(face.halo, face.source) for face in puts if face.of == device], own.values(),
                device=self.home[device], queue=SIGNALS, after=[*self._borders(device), *([freed[device]] if device in freed else [])],
                label=f"put{ending}",
            )  # fmt: skip
            steps[device].copies.append(put)
            for to, flag in own.items():
                raised.setdefault(to, {})[flag] = put
        for face in faces:
            if (face.of, face.side) in self._stored:
                step, flag = self._stored[face.of, face.side]
                raised.setdefault(face.to, {})[flag] = step
        for device, awaited in raised.items():
            own_borders = [step for (of, _), (step, _) in self._stored.items() if of == device]
            steps[device].copies.append(self._wait(builder, device, awaited, own_borders, f"wait{ending}"))

    def _wait(self, builder: PlanBuilder, device: int, awaited: Mapping[View, StepRef], own: Sequence[StepRef], label: str) -> StepRef:
        """Add the wait of a device for flags that steps of others raise. What it raises itself, `own`, comes before it."""
        after = list(dict.fromkeys([*awaited.values(), *own]))
        return builder.wait(awaited, device=self.home[device], queue=SIGNALS, after=after, label=label)

    def _freed(self, builder: PlanBuilder, faces: Sequence[_Face], repeats: bool) -> dict[int, StepRef]:
        """Let devices say when their halos are free, where cells that arrive do not say so; return by device the wait of its puts."""
        touching: dict[Pair, list[StepRef]] = {}
        pairs = dict.fromkeys((face.of, face.to) for face in faces)
        for of, to in pairs:
            halos = [face.halo for face in faces if (face.of, face.to) == (of, to)]
            found = _last(made for made in self._made[to] if any(touch.view.overlaps(halo) for touch in made.touches for halo in halos))
            if found or (to, of) not in pairs:
                touching[to, of] = found
        flags = {(of, to): builder.flag(f"halo of {of} free for {to}", self.home[to]) for of, to in touching}
        puts = {}
        for device in dict.fromkeys(of for of, _ in touching):
            after = list(dict.fromkeys(step for (of, _), found in touching.items() if of == device for step in found))
            raised = [flag for (of, _), flag in flags.items() if of == device]
            puts[device] = builder.put([], raised, device=self.home[device], queue=SIGNALS, after=after, label="halo is free")
            for step in self._borders(device) if repeats else ():  # those of the turn before read memory that has another name now
                builder.carry(step, [puts[device]])
        awaited: dict[int, dict[View, StepRef]] = {}
        for (of, to), flag in flags.items():
            awaited.setdefault(to, {})[flag] = puts[of]
        return {device: self._wait(builder, device, found, [], "wait for free halos") for device, found in awaited.items()}

    def _faces(self) -> Iterator[_Face]:
        for axis in self.axes:
            for message in self._messages(axis):
                for of, to in zip(self.faces.sent(message), self.faces.received(message), strict=True):
                    yield _Face(axis, message.side, message.source.device, message.goal.device, of, to)

    def _messages(self, axis: int) -> Iterator[Message]:
        """Yield what neighbours along an axis send each other."""
        up, down = self.turn.faces(self.stage.wanted, axis)
        for lower, upper in self.stage.decomposition.neighbours_along(axis):
            yield Message(axis, 1, lower, upper, up)
            yield Message(axis, 0, upper, lower, down)

    def _borders(self, device: int) -> list[StepRef]:
        """Return the last launches of the borders of a device, or of all that it has where it has no borders."""
        made = self._made[device]
        return _last([one for one in made if one.queue != INNER] or made)


def _last(made: Iterable[_Made]) -> list[StepRef]:
    """Return the last of some launches in each queue."""
    return list({one.queue: one.step for one in made}.values())
