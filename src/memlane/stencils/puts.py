"""Steps on several devices that signal each other: each stores what its neighbours need into their halos, raises flags there, and waits for
theirs.

The launches are those of `exchange`. Behind its borders a device makes one put (`memlane.plan.Put`) of all fields to all neighbours along
an axis, and then one wait for theirs, axis after axis; the next borders stand behind the last wait. So no event and no host lies between
the devices of a step. Faces with gaps are stored as they lie, without packing.

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
from memlane.stencils.decomposition import Slab
from memlane.stencils.exchange import INNER, UPWARDS, Message, SharedStage, SlabSteps, Writer

SIGNALS = UPWARDS
"""The queue of puts and waits."""


@dataclass(frozen=True)
class PutStage(SharedStage):
    """Turns whose devices store into each other's halos and signal each other by flags."""

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _PutWriter(self, refs).plan()


@dataclass(frozen=True)
class _Face:
    """Cells of one field at a face of one part, which it stores into the halo of another."""

    axis: int
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
        self._made: dict[int, list[_Made]] = {slab.device: [] for slab in self.slabs}
        """By device its launches, in order."""

    def launch_added(self, builder: PlanBuilder, slab: Slab, step: StepRef, queue: int) -> None:
        self._made[slab.device].append(_Made(step, queue, builder.action(step).touches))

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SlabSteps], repeats: bool) -> None:
        """Add a put and a wait for each device along each axis."""
        faces = list(self._faces())
        freed = self._freed(builder, faces, repeats)
        for axis in sorted({face.axis for face in faces}):
            self._exchange_along(builder, [face for face in faces if face.axis == axis], steps, freed)

    def _exchange_along(
        self, builder: PlanBuilder, faces: Sequence[_Face], steps: Mapping[int, SlabSteps], freed: Mapping[int, StepRef]
    ) -> None:
        """Add the puts of some faces along one axis, and the waits for them. A wait along the axis before stands before each put, in the
        queue that all of them share."""
        ending = f" along axis {faces[0].axis}" if faces[0].axis else ""
        flags = {
            (of, to): builder.flag(f"stored by {of} for {to}{ending}", self.home[to])
            for of, to in dict.fromkeys((face.of, face.to) for face in faces)
        }
        puts: dict[int, StepRef] = {}
        for device in dict.fromkeys(of for of, _ in flags):
            puts[device] = builder.put(
                [(face.halo, face.source) for face in faces if face.of == device],
                [flag for (of, _), flag in flags.items() if of == device],
                device=self.home[device], queue=SIGNALS, after=[*self._borders(device), *([freed[device]] if device in freed else [])],
                label=f"put{ending}",
            )  # fmt: skip
            steps[device].copies.append(puts[device])
        for device in dict.fromkeys(to for _, to in flags):
            wait = self._wait(builder, device, flags, puts, f"wait{ending}")
            steps[device].copies.append(wait)

    def _wait(self, builder: PlanBuilder, device: int, flags: Mapping[Pair, View], puts: Mapping[int, StepRef], label: str) -> StepRef:
        """Add the wait of a device for all flags that the puts of others raise for it."""
        awaited = {of: flag for (of, to), flag in flags.items() if to == device}
        after = [puts[of] for of in awaited]
        return builder.wait(awaited.values(), device=self.home[device], queue=SIGNALS, after=after, label=label)

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
        return {
            device: self._wait(builder, device, flags, puts, "wait for free halos") for device in dict.fromkeys(to for _, to in touching)
        }

    def _faces(self) -> Iterator[_Face]:
        for axis in self.axes:
            up, down = self.turn.faces(self.stage.wanted, axis)
            for lower, upper in self.stage.decomposition.neighbours_along(axis):
                for sent, side, source, goal in ((up, 1, lower, upper), (down, 0, upper, lower)):
                    message = Message(axis, side, source, goal, sent)
                    for of, to in zip(self.sent_faces(message), self.received_faces(message), strict=True):
                        yield _Face(axis, source.device, goal.device, of, to)

    def _borders(self, device: int) -> list[StepRef]:
        """Return the last launches of the borders of a device, or of all that it has where it has no borders."""
        made = self._made[device]
        return _last([one for one in made if one.queue != INNER] or made)


def _last(made: Iterable[_Made]) -> list[StepRef]:
    """Return the last of some launches in each queue."""
    return list({one.queue: one.step for one in made}.values())
