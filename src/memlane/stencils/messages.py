"""Plan the steps of one part for one process, which exchanges cells with other processes by messages.

The launches are those of `exchange`. Cells that neighbours need are copied to host memory, one piece for each neighbour with all fields; a
host function sends and receives all messages of the process along an axis; received cells are copied to the halos. Faces that are not
contiguous are packed before and unpacked afterwards. The exchange waits only for the borders, so it overlaps with the computation of the
cells between them.

A direct exchange passes memory of the device to the function instead. Contiguous faces are sent from where they are, and received in the
halos. If the function does not enqueue its work, several faces for one neighbour are gathered on the device first, into one message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memlane.plan import Home, KernelRef, Plan, PlanBuilder, StepRef, View
from memlane.stencils.decomposition import Subdomain
from memlane.stencils.exchange import DOWNWARDS, FROM_BELOW, UPWARDS, SharedStage, Writer
from memlane.stencils.faces import PACK, UNPACK, Message, add_move, message_places
from memlane.stencils.turns import SubdomainSteps


@dataclass(frozen=True)
class RankStage(SharedStage):
    """Stage of the turns of one part of a grid; other processes have the other parts. `own` is the number of this part.

    `function` names the function that exchanges messages. Its arguments are how many pieces are sent, then for each piece the number of the
    other process and the memory: first those that are sent, then those that are received.
    """

    own: int = 0
    function: str = ""
    is_direct: bool = False
    """Whether the function gets memory of the device, not of the host."""
    enqueues: bool = False
    """Whether the function enqueues its work on a stream (`DeviceCall.enqueues`)."""

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

    def staged(self, builder: PlanBuilder, name: str, home: Home) -> tuple[View, list[View]]:
        """Add memory for the message; return all of it, and the part of each face."""
        memory = [face.memory for face in self.faces]
        starts, end = message_places(memory)
        whole = builder.array(name, end, "u1", home)
        return whole, [whole.buffer.view(one.dtype, one.shape, start) for start, one in zip(starts, memory, strict=True)]


@dataclass
class _Passed:
    """One message as the function gets it."""

    rank: int
    memory: list[View]
    parts: list[tuple[_Face, View]] = field(default_factory=list)
    """Faces that are gathered or scattered by copies, with their part of the memory."""
    in_place: list[_Face] = field(default_factory=list)


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
        """Add the exchange of messages with other processes, axis after axis."""
        own = steps[self.stage.own]
        for axis in self.axes:
            found = _Exchange(axis)
            for lower, upper in self.stage.decomposition.neighbours_along(axis):
                if self.stage.own in (lower.device, upper.device):
                    self._add_faces(builder, found, own, lower, upper)
            if found.sent or found.received:
                self._add_messages(builder, found, own, repeats)

    def _add_messages(self, builder: PlanBuilder, found: _Exchange, own: SubdomainSteps, repeats: bool) -> None:
        """Add the call that exchanges the messages along an axis, with the copies that gather and scatter their faces."""
        sent = [self._passed(builder, rank, one, f"to rank {rank}{found.along}") for rank, one in found.sent.items()]
        received = [self._passed(builder, rank, one, f"from rank {rank}{found.along}") for rank, one in found.received.items()]
        stage = "message" if self.stage.is_direct else "host"
        gathered = [
            builder.copy(part, face.memory, queue=face.queue, after=face.waits, label=f"{face.label}, to the {stage}")
            for one in sent
            for face, part in one.parts
        ]
        waits = [*gathered, *(step for one in (*sent, *received) for face in one.in_place for step in face.waits)]
        call = self._call(builder, found, sent, received, waits)
        scattered, unpacked = [], []
        for one in received:
            unpacked += [face.unpack(call) for face in one.in_place if face.unpack]
            for face, part in one.parts:
                label = f"{face.label}, from the {stage}"
                arrived = builder.copy(face.memory, part, queue=face.queue, after=[call, *face.waits], label=label)
                scattered.append(arrived)
                unpacked += [face.unpack(arrived)] if face.unpack else []
        if self.stage.is_direct:
            own.copies += [*found.packed, *gathered, call, *scattered, *unpacked]
        else:
            own.copies += [*found.packed, *unpacked] if found.axis else [*gathered, *scattered]
        if repeats:
            builder.carry(call, [*gathered, *(found.packed if self.stage.is_direct else ())])
            for step in [*scattered, *(unpacked if self.stage.is_direct else ())]:
                builder.carry(step, [call])

    def _passed(self, builder: PlanBuilder, rank: int, message: _Message, name: str) -> _Passed:
        """Return the memory of a message that the function gets: the faces in place, or an array that gathers all of them."""
        if self.stage.is_direct and (self.stage.enqueues or len(message.faces) == 1):
            return _Passed(rank, [face.memory for face in message.faces], in_place=message.faces)
        whole, parts = message.staged(builder, name, 0 if self.stage.is_direct else "pinned")
        return _Passed(rank, [whole], list(zip(message.faces, parts, strict=True)))

    def _call(
        self, builder: PlanBuilder, found: _Exchange, sent: Sequence[_Passed], received: Sequence[_Passed], waits: Sequence[StepRef]
    ) -> StepRef:
        """Add the call of the function that exchanges messages."""
        outgoing, incoming = ([(one.rank, view) for one in messages for view in one.memory] for messages in (sent, received))
        given: list[int | View] = [len(outgoing), *(value for pair in (*outgoing, *incoming) for value in pair)]
        reads, writes = [view for _, view in outgoing], [view for _, view in incoming]
        where: dict[str, Any] = {"after": waits, "reads": reads, "writes": writes, "label": f"exchange messages{found.along}"}
        if not self.stage.is_direct:
            return builder.call(self.stage.function, *given, **where)
        # All exchanges of a rank are on one queue, so that every rank makes them in the same order.
        return builder.device_call(self.stage.function, *given, device=0, queue=FROM_BELOW, enqueues=self.stage.enqueues, **where)

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
