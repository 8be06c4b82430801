"""Write the timeline of a plan as a Perfetto trace, which https://ui.perfetto.dev and its SQL open.

There is a group for each device, in it a track for each queue, with the named steps on it. Arrows lead from each step to those that waited
for it, and to those that next needed a resource that it used, unless their latency began before it: no arrow leads back in time. The
annotations of a step give its kind, its place in the plan, its turns, and whether it is on the critical path. Times are whole ns: of the
global timer if the timeline has it, else from the start of the plan.
"""

from __future__ import annotations

from typing import Any

from memlane.export.perfetto import CLEARS_STATE, NEEDS_STATE, SEQUENCE, protocol
from memlane.plan import Queue, Span, Timeline


def perfetto_timeline(timeline: Timeline) -> bytes:
    """Return the timeline as a Perfetto trace. Raises CommandError if the package perfetto is missing."""
    proto = protocol()
    made = proto.Trace()
    made.packet.add(trusted_packet_sequence_id=SEQUENCE, sequence_flags=CLEARS_STATE)
    tracks = _tracks(proto, made, sorted({queue for span in timeline.spans for queue in span.queues}, key=_place))
    leaving: list[list[int]] = [[] for _ in timeline.spans]
    arriving: list[list[int]] = [[] for _ in timeline.spans]
    waits = [(other, number) for number, span in enumerate(timeline.spans) for other in span.needed]
    waits = [(other, number) for other, number in waits if timeline.spans[other].start_ns <= timeline.spans[number].start_ns]
    for flow, (other, number) in enumerate(waits, 1):
        leaving[other].append(flow)
        arriving[number].append(flow)
    critical = set(timeline.critical_path())
    order = sorted(range(len(timeline.spans)), key=lambda number: (timeline.spans[number].start_ns, timeline.spans[number].end_ns, number))
    for number in order:
        span = timeline.spans[number]
        for place, queue in enumerate(span.queues):
            begin = _event(made, proto.TrackEvent.TYPE_SLICE_BEGIN, span.start_ns, timeline, tracks[queue])
            begin.name = span.name
            begin.categories.append(span.kind)
            _describe(begin, span, number in critical)
            if not place:
                begin.flow_ids.extend(leaving[number])
                begin.terminating_flow_ids.extend(arriving[number])
            _event(made, proto.TrackEvent.TYPE_SLICE_END, span.end_ns, timeline, tracks[queue])
    serialised: bytes = made.SerializeToString()
    return serialised


def _place(queue: Queue) -> tuple[int, int]:
    return -1 if queue[0] is None else queue[0], queue[1]


def _tracks(proto: Any, made: Any, queues: list[Queue]) -> dict[Queue, int]:
    """Add a track for each device and in it one for each queue; return the track numbers of the queues."""
    explicit = proto.TrackDescriptor.ChildTracksOrdering.EXPLICIT
    devices = {device: 1 + number for number, device in enumerate(dict.fromkeys(device for device, _ in queues))}
    for device, number in devices.items():
        _track(made, number, "host" if device is None else f"device {device}", 0, number, child_ordering=explicit)
    numbers = {}
    for number, queue in enumerate(queues, 1 + len(devices)):
        numbers[queue] = number
        _track(made, number, f"queue {queue[1]}", devices[queue[0]], queue[1])
    return numbers


def _track(made: Any, number: int, name: str, parent: int, rank: int, **more: Any) -> None:
    descriptor = made.packet.add(trusted_packet_sequence_id=SEQUENCE).track_descriptor
    descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = number, name, rank
    if parent:
        descriptor.parent_uuid = parent
    for key, value in more.items():
        setattr(descriptor, key, value)


def _event(made: Any, kind: int, ns: float, timeline: Timeline, track: int) -> Any:
    time = (timeline.globaltimer_ns or 0) + round(ns)
    packet = made.packet.add(timestamp=time, trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_STATE)
    packet.track_event.type, packet.track_event.track_uuid = kind, track
    return packet.track_event


def _describe(event: Any, span: Span, is_critical: bool) -> None:
    event.debug_annotations.add(name="kind", string_value=span.kind)
    event.debug_annotations.add(name="on the critical path", bool_value=is_critical)
    if span.path:
        event.debug_annotations.add(name="step", string_value=".".join(map(str, span.path)))
    if span.turns:
        event.debug_annotations.add(name="turn", string_value=", ".join(map(str, span.turns)))
