"""Steps on several devices that signal each other: each stores what its neighbours need into their halos, raises flags there, and waits for
theirs.

The launches are those of `exchange`. Behind its borders a device makes one put (`memlane.plan.Put`) of all fields to all neighbours, and
then one wait for theirs, which the next borders stand behind; so no event and no host lies between the devices of a step.

What a put may overwrite. It stores into halos that launches of the neighbour read or compute. With one launch a turn these belong to the
memory that the neighbour read in the turn before, because fields change places: it has sent its own planes since, behind all its borders,
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

from memlane.plan import KernelRef, Launch, Plan, PlanBuilder, StepRef, Touch, View
from memlane.stencils.decomposition import Slab
from memlane.stencils.exchange import INNER, UPWARDS, Round, SharedStage, SlabSteps, Writer

SIGNALS = UPWARDS
"""The queue of puts and waits."""


@dataclass(frozen=True)
class PutStage(SharedStage):
    """Turns whose devices store into each other's halos and signal each other by flags."""

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _PutWriter(self, refs).plan()


@dataclass(frozen=True)
class _Face:
    """Planes of one field that one device stores into the halo of another."""

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


class _PutWriter(Writer):
    """Writes the plan of one stage whose devices signal each other."""

    def __init__(self, stage: SharedStage, refs: Mapping[str, KernelRef]) -> None:
        super().__init__(stage, refs)
        self._made: dict[int, list[_Made]] = {slab.device: [] for slab in self.slabs}
        """By device its launches, in order."""

    def _add_launch(
        self,
        builder: PlanBuilder,
        slab: Slab,
        one: Round,
        planes: tuple[int, int],
        queue: int,
        after: Sequence[StepRef],
        partial: list[View],
    ) -> StepRef:
        step = super()._add_launch(builder, slab, one, planes, queue, after, partial)
        action = builder.action(step)
        assert isinstance(action, Launch)
        self._made[slab.device].append(_Made(step, queue, action.touches))
        return step

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SlabSteps], repeats: bool) -> None:
        """Add a put and a wait for each device."""
        faces = list(self._faces())
        pairs = list(dict.fromkeys((face.of, face.to) for face in faces))
        freed = self._freed(builder, faces, pairs, repeats)
        stored = {pair: builder.flag(f"stored by {pair[0]} for {pair[1]}", self.home[pair[1]]) for pair in pairs}
        puts: dict[int, StepRef] = {}
        for device in steps:
            own = [face for face in faces if face.of == device]
            if own:
                flags = [flag for (of, _), flag in stored.items() if of == device]
                puts[device] = builder.put(
                    [(face.halo, face.source) for face in own], flags,
                    device=self.home[device], queue=SIGNALS, after=[*self._borders(device), *freed.get(device, [])], label="put",
                )  # fmt: skip
                steps[device].copies.append(puts[device])
        for device in steps:
            awaited = {of: flag for (of, to), flag in stored.items() if to == device}
            if awaited:
                after = [puts[of] for of in awaited]
                wait = builder.wait(awaited.values(), device=self.home[device], queue=SIGNALS, after=after, label="wait for planes")
                steps[device].copies.append(wait)

    def _freed(
        self, builder: PlanBuilder, faces: Sequence[_Face], pairs: Sequence[tuple[int, int]], repeats: bool
    ) -> dict[int, list[StepRef]]:
        """Let devices say when their halos are free, where planes that arrive do not say so; return by device the wait of its put."""
        touching: dict[tuple[int, int], list[StepRef]] = {}
        for of, to in pairs:
            halos = [face.halo for face in faces if (face.of, face.to) == (of, to)]
            found = _last(made for made in self._made[to] if any(touch.view.overlaps(halo) for touch in made.touches for halo in halos))
            if found or (to, of) not in pairs:
                touching[of, to] = found
        flags = {pair: builder.flag(f"halo of {pair[1]} free for {pair[0]}", self.home[pair[0]]) for pair in touching}
        puts = {}
        for device in dict.fromkeys(to for _, to in touching):
            after = list(dict.fromkeys(step for (_, to), found in touching.items() if to == device for step in found))
            raised = [flag for (_, to), flag in flags.items() if to == device]
            puts[device] = builder.put([], raised, device=self.home[device], queue=SIGNALS, after=after, label="halo is free")
            for step in self._borders(device) if repeats else ():  # those of the turn before read memory that has another name now
                builder.carry(step, [puts[device]])
        waits = {}
        for device in dict.fromkeys(of for of, _ in touching):
            awaited = {to: flag for (of, to), flag in flags.items() if of == device}
            after = [puts[to] for to in awaited]
            waits[device] = [
                builder.wait(awaited.values(), device=self.home[device], queue=SIGNALS, after=after, label="wait for free halos")
            ]
        return waits

    def _faces(self) -> Iterator[_Face]:
        after = self.turn.names_after(self.turn.rounds)
        for lower, upper in self.stage.decomposition.neighbours:
            for name, (low, high) in self.turn.exchanged(self.stage.wanted).items():
                own, other = (self.views[after.get(name, name), slab.device] for slab in (lower, upper))
                if low:
                    ends, halo = lower.rows(lower.stop - low, lower.stop), upper.rows(upper.start - low, upper.start)
                    yield _Face(lower.device, upper.device, own[ends], other[halo])
                if high:
                    begins, halo = upper.rows(upper.start, upper.start + high), lower.rows(lower.stop, lower.stop + high)
                    yield _Face(upper.device, lower.device, other[begins], own[halo])

    def _borders(self, device: int) -> list[StepRef]:
        """Return the last launches of the borders of a device, or of all that it has where it has no borders."""
        made = self._made[device]
        return _last([one for one in made if one.queue != INNER] or made)


def _last(made: Iterable[_Made]) -> list[StepRef]:
    """Return the last of some launches in each queue."""
    return list({one.queue: one.step for one in made}.values())
