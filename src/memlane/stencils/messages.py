"""Steps of one slab as the plan of one process, which exchanges planes with other processes by messages.

The launches are those of `exchange`. Planes that neighbours need are copied to memory of the host, one piece for each neighbour with all
fields, a host function sends and receives all messages of the process, and what arrived is copied to the halos. These three wait for the
borders only, so that the planes between the borders are computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from memlane.plan import KernelRef, Plan, PlanBuilder, StepRef, View
from memlane.stencils.decomposition import Slab
from memlane.stencils.exchange import DOWNWARDS, UPWARDS, SharedStage, SlabSteps, Writer

_ALIGNED = 64
"""Each field begins at a multiple of so many bytes of a message."""


@dataclass(frozen=True)
class RankStage(SharedStage):
    """Turns of one slab of a grid whose other slabs belong to other processes; `own` is the number of its slab.

    `function` names the host function that exchanges messages. Its arguments are how many messages are sent, then for each message the
    number of the other process and the bytes: first those that are sent, then those that are received.
    """

    own: int = 0
    function: str = ""

    @property
    def slabs(self) -> tuple[Slab, ...]:
        return (self.decomposition.slabs[self.own],)

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _RankWriter(self, refs).plan()


@dataclass(frozen=True)
class _Face:
    """Planes of one field that go to another process, or come from it."""

    planes: View
    label: str
    queue: int
    waits: list[StepRef]
    """The launches that compute the planes, or that read what they overwrite."""


@dataclass
class _Message:
    """All planes that go to one other process in one exchange, or come from it."""

    faces: list[_Face] = field(default_factory=list)

    def staged(self, builder: PlanBuilder, name: str) -> tuple[View, list[View]]:
        """Add pinned memory for the message; return all of it, and the part of each face."""
        starts, end = [], 0
        for face in self.faces:
            starts.append(end)
            end += -(-prod(face.planes.shape) * face.planes.itemsize // _ALIGNED) * _ALIGNED
        whole = builder.array(name, end, "u1", "pinned")
        parts = zip(starts, (face.planes for face in self.faces), strict=True)
        return whole, [whole.buffer.view(planes.dtype, planes.shape, start) for start, planes in parts]


class _RankWriter(Writer):
    """Writes the plan of one stage for the slab of one process."""

    stage: RankStage

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SlabSteps], repeats: bool) -> None:
        """Add the copies to the host, the call that exchanges messages, and the copies from the host."""
        own = steps[self.stage.own]
        sent, received = self._messages(own)
        to_host: list[StepRef] = []
        outgoing: list[int | View] = []
        for rank, message in sent.items():
            whole, parts = message.staged(builder, f"to rank {rank}")
            outgoing += [rank, whole]
            to_host += [
                builder.copy(part, face.planes, queue=face.queue, after=face.waits, label=f"{face.label}, to the host")
                for face, part in zip(message.faces, parts, strict=True)
            ]
        incoming = [(rank, message, *message.staged(builder, f"from rank {rank}")) for rank, message in received.items()]
        if not sent and not incoming:
            return
        arguments: list[int | View] = [*outgoing, *(one for rank, _, whole, _ in incoming for one in (rank, whole))]
        call = builder.call(
            self.stage.function, len(sent), *arguments, after=to_host, label="exchange messages",
            reads=[one for one in outgoing if isinstance(one, View)], writes=[whole for _, _, whole, _ in incoming],
        )  # fmt: skip
        from_host = [
            builder.copy(face.planes, part, queue=face.queue, after=[call, *face.waits], label=f"{face.label}, from the host")
            for _, message, _, parts in incoming
            for face, part in zip(message.faces, parts, strict=True)
        ]
        own.copies += [*to_host, *from_host]
        if repeats:
            builder.carry(call, to_host)
            for one in from_host:
                builder.carry(one, [call])

    def _messages(self, own: SlabSteps) -> tuple[dict[int, _Message], dict[int, _Message]]:
        """Return what is sent to each other process and what is received from it. Both ends list the faces in the same order."""
        after, (slab,) = self.turn.names_after(self.turn.rounds), self.slabs
        sent: dict[int, _Message] = {}
        received: dict[int, _Message] = {}

        def add(messages: dict[int, _Message], other: Slab, name: str, planes: tuple[int, int], queue: int, waits: list[StepRef]) -> None:
            if planes[0] < planes[1]:
                memory = self.views[after.get(name, name), slab.device]
                face = _Face(memory[slab.rows(*planes)], f"{name} {'up' if queue == UPWARDS else 'down'}", queue, waits)
                messages.setdefault(other.device, _Message()).faces.append(face)

        for lower, upper in self.stage.decomposition.neighbours_along(0):
            for name, ((low, high), *_) in self.turn.exchanged(self.stage.wanted).items():
                if lower.device == slab.device:
                    add(sent, upper, name, (slab.stop - low, slab.stop), UPWARDS, own.face(0, 1))
                    add(received, upper, name, (slab.stop, slab.stop + high), DOWNWARDS, own.face(0, 1))
                if upper.device == slab.device:
                    add(received, lower, name, (slab.start - low, slab.start), UPWARDS, own.face(0, 0))
                    add(sent, lower, name, (slab.start, slab.start + high), DOWNWARDS, own.face(0, 0))
        return sent, received
