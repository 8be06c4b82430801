"""Plan the steps of one part for one process, which exchanges cells with other processes by messages.

The launches are those of `exchange`. Cells that neighbours need are copied to host memory, one piece for each neighbour with all fields; a
host function sends and receives all messages of the process along an axis; received cells are copied to the halos. Faces that are not
contiguous are packed before and unpacked afterwards. The exchange waits only for the borders, so it overlaps with the computation of the
cells between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memlane.plan import KernelRef, Plan, PlanBuilder, StepRef, View
from memlane.stencils.decomposition import Subdomain
from memlane.stencils.exchange import DOWNWARDS, UPWARDS, SharedStage, Writer
from memlane.stencils.faces import PACK, UNPACK, Message, add_move, message_places
from memlane.stencils.turns import SubdomainSteps


@dataclass(frozen=True)
class RankStage(SharedStage):
    """Stage of the turns of one part of a grid; other processes have the other parts. `own` is the number of this part.

    `function` names the host function that exchanges messages. Its arguments are how many messages are sent, then for each message the
    number of the other process and the bytes: first those that are sent, then those that are received.
    """

    own: int = 0
    function: str = ""

    @property
    def subdomains(self) -> tuple[Subdomain, ...]:
        return (self.decomposition.subdomains[self.own],)

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        return _RankWriter(self, refs).plan()


@dataclass(frozen=True)
class _Face:
    """Device memory that is sent to another process or received from it: planes of a field, or a packed message."""

    memory: View
    label: str
    queue: int
    waits: list[StepRef]
    """Steps that write the memory to send, or read the memory to overwrite."""
    unpack: Callable[[StepRef], StepRef] | None = None
    """Function that adds the launch to unpack a message after its arrival."""


@dataclass
class _Message:
    """All faces sent to one other process, or received from it, in one exchange along an axis."""

    faces: list[_Face] = field(default_factory=list)

    def staged(self, builder: PlanBuilder, name: str) -> tuple[View, list[View]]:
        """Add pinned memory for the message; return all of it, and the part of each face."""
        memory = [face.memory for face in self.faces]
        starts, end = message_places(memory)
        whole = builder.array(name, end, "u1", "pinned")
        return whole, [whole.buffer.view(one.dtype, one.shape, start) for start, one in zip(starts, memory, strict=True)]


@dataclass
class _Exchange:
    """The messages that one process sends and receives along an axis, by the rank of the other process."""

    axis: int
    sent: dict[int, _Message] = field(default_factory=dict)
    received: dict[int, _Message] = field(default_factory=dict)
    packed: list[StepRef] = field(default_factory=list)

    @property
    def along(self) -> str:
        return f" along axis {self.axis}" if self.axis else ""


class _RankWriter(Writer):
    """Builder of the plan of one stage for the part of one process."""

    stage: RankStage
    whole_planes = True

    def _exchange(self, builder: PlanBuilder, steps: Mapping[int, SubdomainSteps], repeats: bool) -> None:
        """Add the copies to the host, the call that exchanges messages, and the copies from the host, axis after axis."""
        own = steps[self.stage.own]
        for axis in self.axes:
            found = _Exchange(axis)
            for lower, upper in self.stage.decomposition.neighbours_along(axis):
                if self.stage.own in (lower.device, upper.device):
                    self._add_faces(builder, found, own, lower, upper)
            if found.sent or found.received:
                self._add_messages(builder, found, own, repeats)

    def _add_messages(self, builder: PlanBuilder, found: _Exchange, own: SubdomainSteps, repeats: bool) -> None:
        to_host: list[StepRef] = []
        outgoing: list[int | View] = []
        for rank, message in found.sent.items():
            whole, parts = message.staged(builder, f"to rank {rank}{found.along}")
            outgoing += [rank, whole]
            to_host += [
                builder.copy(part, face.memory, queue=face.queue, after=face.waits, label=f"{face.label}, to the host")
                for face, part in zip(message.faces, parts, strict=True)
            ]
        incoming = [(rank, message, *message.staged(builder, f"from rank {rank}{found.along}")) for rank, message in found.received.items()]
        arguments: list[int | View] = [*outgoing, *(one for rank, _, whole, _ in incoming for one in (rank, whole))]
        call = builder.call(
            self.stage.function, len(found.sent), *arguments, after=to_host, label=f"exchange messages{found.along}",
            reads=[one for one in outgoing if isinstance(one, View)], writes=[whole for _, _, whole, _ in incoming],
        )  # fmt: skip
        from_host, unpacked = [], []
        for _, message, _, parts in incoming:
            for face, part in zip(message.faces, parts, strict=True):
                arrived = builder.copy(face.memory, part, queue=face.queue, after=[call, *face.waits], label=f"{face.label}, from the host")
                from_host.append(arrived)
                unpacked += [face.unpack(arrived)] if face.unpack else []
        own.copies += [*found.packed, *unpacked] if found.axis else [*to_host, *from_host]
        if repeats:
            builder.carry(call, to_host)
            for one in from_host:
                builder.carry(one, [call])

    def _add_faces(self, builder: PlanBuilder, found: _Exchange, own: SubdomainSteps, lower: Subdomain, upper: Subdomain) -> None:
        """Add the faces sent between two neighbours, one or both of which are this process. Both ends list them in the same order."""
        axis, before = found.axis, list(own.copies)
        for side, sent, source, goal in zip((1, 0), self.turn.faces(self.stage.wanted, axis), (lower, upper), (upper, lower), strict=True):
            if not sent:
                continue
            message, queue = Message(axis, side, source, goal, sent), UPWARDS if side else DOWNWARDS
            if source.device == self.stage.own:
                waits, faces = [*own.face(axis, side), *before], self.faces.sent(message)
                if axis:
                    buffer = self._buffer(builder, f"{message.label} from {source.device}", faces)
                    where: dict[str, Any] = {"device": 0, "queue": queue, "label": f"pack {message.label}", "is_urgent": True}
                    packed = add_move(builder, self.refs, PACK, buffer, faces, after=waits, **where)
                    found.packed.append(packed)
                    to_send = [_Face(buffer, message.label, queue, [packed])]
                else:
                    to_send = self._planes(message, faces, queue, waits)
                found.sent.setdefault(goal.device, _Message()).faces += to_send
            if goal.device == self.stage.own:
                waits, faces = [*own.face(axis, 1 - side), *before], self.faces.received(message)
                if axis:
                    buffer = self._buffer(builder, f"{message.label} to {goal.device}", faces)
                    to_take = [_Face(buffer, message.label, queue, [], self._unpacking(builder, message, buffer, faces, queue, waits))]
                else:
                    to_take = self._planes(message, faces, queue, waits)
                found.received.setdefault(source.device, _Message()).faces += to_take

    def _planes(self, message: Message, faces: Sequence[View], queue: int, waits: list[StepRef]) -> list[_Face]:
        """Return the contiguous planes of each field."""
        way = "up" if message.side else "down"
        return [_Face(face, f"{name} {way}", queue, waits) for (name, _), face in zip(message.sent, faces, strict=True)]

    def _buffer(self, builder: PlanBuilder, name: str, faces: Sequence[View]) -> View:
        return builder.array(name, message_places(faces)[1], "u1", 0)

    def _unpacking(
        self, builder: PlanBuilder, message: Message, buffer: View, faces: Sequence[View], queue: int, waits: list[StepRef]
    ) -> Callable[[StepRef], StepRef]:
        where: dict[str, Any] = {"device": 0, "queue": queue, "label": f"unpack {message.label}", "is_urgent": True}
        return lambda arrived: add_move(builder, self.refs, UNPACK, buffer, faces, after=[arrived, *waits], **where)
