"""Plan steps on devices that signal each other: each stores into the halos of its neighbours, raises flags there, and waits for theirs.

The launches are those of `exchange`. After its borders, a device makes one put (`memlane.plan.Put`) of all fields to all neighbours along
an axis, and then one wait for theirs, axis after axis; the next borders follow the last wait. So a step needs neither events nor the host
between devices. Strided faces are stored without packing. Where a border has just computed all cells that its neighbour needs, its own
launch stores them and raises the flag (`borders`), and there is no put.

Safety of puts. A put stores into halos that launches of the neighbour read or compute. With one launch per turn, these belong to the memory
that the neighbour read in the previous turn, because fields swap: it has sent its own cells since, after all its borders, and this device
has waited for them, so nothing reads there any more. Where launches of the same turn touch these halos (if a turn has several launches), or
where the neighbour sends nothing, the neighbour signals that they are free: by a put of no elements, after the last launch that touches
them in this turn or in the previous one. That launch is not the last of the turn, so the signal has usually arrived when it is waited for.
`plan.races` proves both: it assumes no order between devices except from a put to its wait.

All puts and waits of a device are in one queue, with each flag raised before the corresponding wait. So, in whatever order work is started,
the put that a device waits for is never queued after the corresponding wait of the other device, and there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memlane.plan import KernelRef, Plan, PlanBuilder, StepRef, Touch, View
from memlane.stencils.borders import BorderKernel, stores_borders
from memlane.stencils.boxes import Box
from memlane.stencils.decomposition import Subdomain
from memlane.stencils.exchange import INNER, SIDES, UPWARDS, SharedStage, Stores, Writer
from memlane.stencils.faces import Message
from memlane.stencils.turns import Round, SubdomainSteps

SIGNALS = UPWARDS
"""Queue of puts and waits."""


@dataclass(frozen=True)
class PutStage(SharedStage):
    """Stage of turns whose devices store into each other's halos and signal each other by flags."""

    border: BorderKernel | None = None
    """Border kernel that stores into the halo of the neighbour itself, if the run has one."""

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _PutWriter(self, refs).plan()


@dataclass(frozen=True)
class _Face:
    """Cells of one field at a face of one part, to be stored into the halo of another."""

    axis: int
    side: int
    of: int
    to: int
    source: View
    halo: View


@dataclass(frozen=True)
class _Made:
    """A launch of the current turn."""

    step: StepRef
    queue: int
    touches: tuple[Touch, ...]


Pair = tuple[int, int]
"""A device that sends, and the one that it sends to."""


class _PutWriter(Writer):
    """Builder of the plan of one stage whose devices signal each other."""

    def __init__(self, stage: SharedStage, refs: Mapping[str, KernelRef]) -> None:
        super().__init__(stage, refs)
        self._made: dict[int, list[_Made]] = {subdomain.device: [] for subdomain in self.subdomains}
        """Launches of each device, in order."""
        self._stored: dict[tuple[int, int], tuple[StepRef, View]] = {}
        """Border launch that stores into the halo of the neighbour, and the flag that it raises, by device and side."""
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
        # Sources of a neighbour add to its halos too, so it must signal when they have done so.
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
        """Add the puts of some faces along one axis, and the waits for them. In the queue that all of them share, the wait along the
        previous axis precedes each put."""
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
        """Add the wait of a device for flags that steps of others raise; it follows the device's own signals, `own`."""
        after = list(dict.fromkeys([*awaited.values(), *own]))
        return builder.wait(awaited, device=self.home[device], queue=SIGNALS, after=after, label=label)

    def _freed(self, builder: PlanBuilder, faces: Sequence[_Face], repeats: bool) -> dict[int, StepRef]:
        """Add signals that halos are free, where received cells do not imply it; return the wait that the puts of each device need."""
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
            for step in self._borders(device) if repeats else ():  # launches of the previous turn read memory that has another name now
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
        """Yield the faces that neighbours along an axis send each other."""
        up, down = self.turn.faces(self.stage.wanted, axis)
        for lower, upper in self.stage.decomposition.neighbours_along(axis):
            yield Message(axis, 1, lower, upper, up)
            yield Message(axis, 0, upper, lower, down)

    def _borders(self, device: int) -> list[StepRef]:
        """Return the last launches of the borders of a device, or of all its launches if it has no borders."""
        made = self._made[device]
        return _last([one for one in made if one.queue != INNER] or made)


def _last(made: Iterable[_Made]) -> list[StepRef]:
    """Return the last of some launches in each queue."""
    return list({one.queue: one.step for one in made}.values())
