"""Write Perfetto traces, which https://ui.perfetto.dev and its SQL open.

There is a group for each SM, in it a track for each warp slot: the life of a warp, in it its accesses, named by line and operation.
Overlapping accesses of a warp get further tracks below. Each SM has two counters: accesses in flight, and sectors requested. Times are
whole ns since the trace began; the cycles are annotations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from memlane.errors import CommandError
from memlane.export.format import Exporter
from memlane.export.packets import Pattern, interleave, mark
from memlane.export.tracks import Ints, Lines, Times, Tracks, line_name, lines, tracks
from memlane.packages import install_command
from memlane.record import Trace, kernel_label

BINS = 512
"""Number of samples of a counter over the trace."""
SEQUENCE = 1
NEEDS_STATE, CLEARS_STATE = 2, 1

_ANNOTATIONS = ("block", "warp", "execution", "cycles", "active mask", "sectors", "wavefronts", "exposed cycles")
_WIDTHS = {"timestamp": 8, "track": 5, "name": 4, "source": 4, "block": 5, "warp": 3, "execution": 5, "cycles": 8, "active mask": 5}
_OPTIONAL = {"sectors": 3, "wavefronts": 3, "exposed cycles": 5}
_COLUMNS = {"exposed cycles": "exposed"}
_ROWS_AT_ONCE = 1 << 13  # so that they stay in a processor's cache


def write(trace: Trace, stream: BinaryIO) -> None:
    """Write `trace` as a Perfetto trace. Raises CommandError if the package perfetto is missing, RecordError without a common time axis."""
    proto = protocol()
    drawn = tracks(trace)
    shown = lines(drawn)
    layout = _Layout(shown, shown.sms)
    stream.write(_head(proto, trace, layout))
    for part in _slices(proto, trace, drawn, layout):
        stream.write(part)
    stream.write(_counters(proto, trace, drawn, layout))


def protocol() -> Any:
    """Return the message classes of the format. Raises CommandError if the package perfetto is missing."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise CommandError(f"writing Perfetto traces needs the package perfetto; install it with: {install_command('perfetto')}") from None
    return perfetto_trace_pb2


# -- tracks --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Layout:
    """Track numbers."""

    lines: Lines
    sms: list[int]

    def sm_track(self, sm: int) -> int:
        return 1 + sm

    def counter_track(self, sm: int, which: int) -> int:
        return 1 + max(self.sms, default=0) + 1 + 2 * sm + which

    @property
    def first(self) -> int:
        """Number of the first line."""
        return self.counter_track(max(self.sms, default=0), 1) + 1


# -- packets -------------------------------------------------------------------------------------------------------------------


def _head(proto: Any, trace: Trace, layout: _Layout) -> bytes:
    """Return the packets with names, source lines and tracks."""
    made = proto.Trace()
    first = made.packet.add(trusted_packet_sequence_id=SEQUENCE, sequence_flags=CLEARS_STATE)
    for number, name in enumerate(_ANNOTATIONS, 1):
        first.interned_data.debug_annotation_names.add(iid=number, name=name)
    for site in trace.sites:
        name = f"{PurePath(site.file).name}:{site.line} {site.op}"
        first.interned_data.event_names.add(iid=1 + site.id, name=name)
        first.interned_data.source_locations.add(iid=1 + site.id, file_name=site.file, function_name=site.kernel, line_number=site.line)
    for launch in trace.launches:
        first.interned_data.event_names.add(iid=1 + len(trace.sites) + launch.id, name=kernel_label(launch.kernel))
    explicit = proto.TrackDescriptor.ChildTracksOrdering.EXPLICIT
    for sm in layout.sms:
        _track(made, layout.sm_track(sm), trace.sm_name(sm), 0, sm, child_ordering=explicit)
        for which, (name, unit) in enumerate((("accesses in flight", "accesses"), ("sectors requested", "sectors/ns"))):
            counter = _track(made, layout.counter_track(sm, which), name, layout.sm_track(sm), which)
            counter.counter.unit_name = unit
    for number, (sm, slot, lane) in enumerate(layout.lines.places):
        _track(made, layout.first + number, line_name(slot, lane), layout.sm_track(sm), 2 + slot)
    serialised: bytes = made.SerializeToString()
    return serialised


def _track(made: Any, number: int, name: str, parent: int, rank: int, **more: Any) -> Any:
    descriptor = made.packet.add(trusted_packet_sequence_id=SEQUENCE).track_descriptor
    descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = number, name, rank
    if parent:
        descriptor.parent_uuid = parent
    for key, value in more.items():
        setattr(descriptor, key, value)
    return descriptor


def _access(proto: Any, *optional: str) -> Pattern:
    """Return the packets that begin and end an access whose `optional` counts are known."""
    widths = _WIDTHS | {name: _OPTIONAL[name] for name in optional} | {"end": _WIDTHS["timestamp"], "end track": _WIDTHS["track"]}
    marks = {name: mark(number, width) for number, (name, width) in enumerate(widths.items())}
    made, packet = _packet(proto, marks["timestamp"])
    event = packet.track_event
    event.type, event.track_uuid, event.name_iid = proto.TrackEvent.TYPE_SLICE_BEGIN, marks["track"], marks["name"]
    event.source_location_iid = marks["source"]
    for name in widths:
        if name in _ANNOTATIONS:
            event.debug_annotations.add(name_iid=1 + _ANNOTATIONS.index(name), uint_value=marks[name])
    last = made.packet.add(timestamp=marks["end"], trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_STATE)
    last.track_event.type, last.track_event.track_uuid = proto.TrackEvent.TYPE_SLICE_END, marks["end track"]
    return Pattern.of(made.SerializeToString(), widths)


def _bare(proto: Any, kind: int, named: bool) -> Pattern:
    """Return the packet that begins a life, or that ends any slice."""
    widths = {name: _WIDTHS[name] for name in ("timestamp", "track", *(("name",) if named else ()))}
    marks = {name: mark(number, width) for number, (name, width) in enumerate(widths.items())}
    made, packet = _packet(proto, marks["timestamp"])
    packet.track_event.type, packet.track_event.track_uuid = kind, marks["track"]
    if named:
        packet.track_event.name_iid = marks["name"]
    return Pattern.of(made.SerializeToString(), widths)


def _packet(proto: Any, timestamp: int) -> tuple[Any, Any]:
    made = proto.Trace()
    return made, made.packet.add(timestamp=timestamp, trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_STATE)


def _slices(proto: Any, trace: Trace, drawn: Tracks, layout: _Layout) -> Iterator[bytes]:
    """Yield packets: lives begin, accesses begin and end warp by warp, lives end.

    A reader that sorts by time keeps this order among equal times, and so nests each access inside its life.
    """
    event = proto.TrackEvent
    lives, origin = drawn.lives, _origin(drawn)
    track = layout.first + layout.lines.of_life
    begin, end = _bare(proto, event.TYPE_SLICE_BEGIN, True), _bare(proto, event.TYPE_SLICE_END, False)
    yield begin.copies({"timestamp": _whole(lives.begin_ns, origin), "track": track, "name": 1 + len(trace.sites) + lives.launch}).tobytes()
    rows = {name: trace.table[name].to_numpy() for name in ("site", "block", "warp", "execution", "start", "end", "active_mask")}
    optional = {name: trace.table[_COLUMNS.get(name, name)] for name in _OPTIONAL}
    counts = {name: column.fill_null(0).to_numpy() for name, column in optional.items()}
    # The optional columns that each row has, one bit each.
    known = sum(column.is_valid().to_numpy().astype(np.uint8) << bit for bit, column in enumerate(optional.values()))
    order = drawn.order
    patterns = [_access(proto, *(name for bit, name in enumerate(_OPTIONAL) if has >> bit & 1)) for has in range(1 << len(_OPTIONAL))]
    for first in range(0, len(order), _ROWS_AT_ONCE):
        chosen = order[first : first + _ROWS_AT_ONCE]
        values = {
            "timestamp": _whole(drawn.start_ns[chosen], origin),
            "track": layout.first + layout.lines.of_row[chosen],
            "name": 1 + rows["site"][chosen],
            "source": 1 + rows["site"][chosen],
            "cycles": np.maximum(rows["end"][chosen] - rows["start"][chosen], 0),
            "active mask": rows["active_mask"][chosen],
            **{name: rows[name][chosen] for name in ("block", "warp", "execution")},
            **{name: counts[name][chosen] for name in _OPTIONAL},
        }
        values |= {"end": _whole(drawn.end_ns[chosen], origin), "end track": values["track"]}
        parts = []
        for has in np.unique(known[chosen]).tolist():
            mine = np.flatnonzero(known[chosen] == has)
            parts.append((mine, patterns[has].copies({name: values[name][mine] for name in patterns[has].fields})))
        yield interleave(parts)
    yield end.copies({"timestamp": _whole(lives.end_ns, origin), "track": track}).tobytes()


def _origin(drawn: Tracks) -> float:
    return float(drawn.lives.begin_ns.min()) if len(drawn.life) or len(drawn.lives.sm) else 0.0


def _whole(ns: Times, origin: float) -> Ints:
    return np.floor(ns - origin).astype(np.int64)


# -- counters ------------------------------------------------------------------------------------------------------------------


def _counters(proto: Any, trace: Trace, drawn: Tracks, layout: _Layout) -> bytes:
    """Return the counters: means over `BINS` equal parts of the trace."""
    made = proto.Trace()
    if not len(drawn.life):
        return b""
    origin = _origin(drawn)
    edges = np.linspace(0, float(drawn.lives.end_ns.max()) - origin, BINS + 1)
    sectors = trace.table["sectors"].fill_null(0).to_numpy()
    sm_of_row = drawn.lives.place[drawn.life]
    width = max(float(edges[1]), 1.0)
    for sm in layout.sms:
        mine = np.flatnonzero(sm_of_row == sm)
        start, end = drawn.start_ns[mine] - origin, drawn.end_ns[mine] - origin
        in_flight = np.diff(_elapsed(start, edges) - _elapsed(end, edges)) / width
        asked = np.histogram(start, edges, weights=sectors[mine])[0] / width
        for which, values in enumerate((in_flight, asked)):
            for time, value in zip(edges[:-1].tolist(), values.tolist(), strict=True):
                packet = made.packet.add(timestamp=int(time), trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDS_STATE)
                packet.track_event.type = proto.TrackEvent.TYPE_COUNTER
                packet.track_event.track_uuid, packet.track_event.double_counter_value = layout.counter_track(sm, which), value
    serialised: bytes = made.SerializeToString()
    return serialised


def _elapsed(since: Times, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return, at each edge, the time since each of `since`, summed over those that have passed."""
    passed = np.sort(since)
    totals = np.concatenate(([0.0], np.cumsum(passed)))
    count = np.searchsorted(passed, edges)
    return count * edges - totals[count]


EXPORTER = Exporter("perfetto", ".pftrace", "for ui.perfetto.dev and its SQL: a track for each warp slot, and counters", write)
