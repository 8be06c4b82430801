"""Perfetto traces, read back with Perfetto's own protocol: slices nested track by track as its trace processor nests them."""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from memlane.errors import CommandError
from memlane.export import export, exporters
from memlane.export.packets import Pattern, mark, varint
from memlane.record import Trace
from tests.synthetic import stalls, transpose


@dataclass(frozen=True)
class Slice:
    name: str
    path: tuple[str, ...]
    """Names of its track and of those above, outermost first."""
    depth: int
    begin: int
    end: int
    facts: dict[str, int]
    source: tuple[str, str, int] | None


@dataclass(frozen=True)
class Shown:
    slices: list[Slice]
    counters: dict[tuple[str, ...], list[tuple[int, float]]]


def read(data: bytes) -> Shown:
    trace = proto.Trace()
    trace.ParseFromString(data)
    names: dict[int, str] = {}
    facts: dict[int, str] = {}
    sources: dict[int, Any] = {}
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")}
    for packet in trace.packet:
        names |= {one.iid: one.name for one in packet.interned_data.event_names}
        facts |= {one.iid: one.name for one in packet.interned_data.debug_annotation_names}
        sources |= {one.iid: one for one in packet.interned_data.source_locations}
    stacks: dict[int, list[Any]] = defaultdict(list)
    slices, counters = [], defaultdict(list)
    for packet in sorted((one for one in trace.packet if one.HasField("track_event")), key=lambda one: one.timestamp):
        event = packet.track_event
        stack = stacks[event.track_uuid]
        path = path_of(tracks, event.track_uuid)
        if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(packet)
        elif event.type == proto.TrackEvent.TYPE_COUNTER:
            counters[path].append((packet.timestamp, event.double_counter_value))
        else:
            began = stack.pop()
            said = {facts[one.name_iid]: one.uint_value for one in began.track_event.debug_annotations}
            where = sources.get(began.track_event.source_location_iid)
            source = (where.file_name, where.function_name, where.line_number) if where is not None else None
            slices.append(Slice(names[began.track_event.name_iid], path, len(stack), began.timestamp, packet.timestamp, said, source))
    assert not any(stacks.values())
    return Shown(slices, dict(counters))


def path_of(tracks: dict[int, Any], number: int) -> tuple[str, ...]:
    track = tracks[number]
    return (*(path_of(tracks, track.parent_uuid) if track.parent_uuid else ()), track.name)


def written(trace: Trace) -> Shown:
    stream = io.BytesIO()
    exporters["perfetto"].write(trace, stream)
    return read(stream.getvalue())


def test_accesses_lie_inside_the_life_of_their_warp() -> None:
    trace = transpose()
    shown = written(trace)
    lives = [one for one in shown.slices if one.name in ("naive", "tiled")]
    accesses = [one for one in shown.slices if one.name not in ("naive", "tiled")]
    assert len(lives) == len(trace.warps)
    assert len(accesses) == trace.table.num_rows
    assert {one.depth for one in lives} == {0}
    assert {one.path for one in lives} == {(f"SM {sm}", f"slot {slot}") for sm in (0, 1) for slot in range(4)}
    for one in accesses:
        slot, _, overlapping = one.path[1].partition(", ")
        assert one.depth == (0 if overlapping else 1)
        assert any(life.path == (one.path[0], slot) and life.begin <= one.begin <= one.end <= life.end for life in lives)


@pytest.mark.parametrize("trace", [transpose(), stalls()], ids=["counted", "exposed"])
def test_every_number_of_an_access_is_there(trace: Trace) -> None:
    shown = [one for one in written(trace).slices if one.facts]
    told = sorted((one.name, one.path[0], *sorted(one.facts.items())) for one in shown)
    wanted = []
    for row in trace.table.to_pylist():
        facts = {
            "block": row["block"],
            "warp": row["warp"],
            "execution": row["execution"],
            "cycles": row["end"] - row["start"],
            "active mask": row["active_mask"],
            **{name: row[name] for name in ("sectors", "wavefronts") if row[name] is not None},
            **({} if row["exposed"] is None else {"exposed cycles": row["exposed"]}),
        }
        wanted.append((f"{row['file']}:{row['line']} {row['op']}", f"SM {row['sm']}", *sorted(facts.items())))
    assert told == sorted(wanted)


def test_an_access_names_its_source_line() -> None:
    found = {one.source for one in written(transpose()).slices if one.facts}
    assert ("transpose.cu", "naive(float*, float const*, int)", 4) in found


def test_times_are_ns_since_the_trace_began() -> None:
    trace = transpose()
    shown = written(trace).slices
    assert min(one.begin for one in shown) == 0
    first = min((one for one in shown if one.facts), key=lambda one: one.begin)
    row = trace.table.to_pylist()[0]
    assert first.begin == int((row["start"] + 10) / 1.98)  # its warp began at cycle -10


def test_accesses_that_overlap_get_tracks_of_their_own() -> None:
    trace = transpose()
    start = np.array(trace.table["start"].to_pylist())
    long = trace.table.set_column(
        trace.table.schema.get_field_index("end"), trace.table.schema.field("end"), pa.array(np.minimum(start + 2500, 9000))
    )
    shown = written(replace(trace, table=long))
    assert len([one for one in shown.slices if one.facts]) == trace.table.num_rows
    lanes = {one.path[1] for one in shown.slices if one.facts}
    assert {"slot 0", "slot 0, overlapping 1", "slot 0, overlapping 2"} <= lanes
    for path in {one.path for one in shown.slices}:
        own = sorted((one.begin, one.end) for one in shown.slices if one.path == path and one.facts)
        assert all(before[1] <= after[0] for before, after in pairwise(own))


def test_the_counter_is_the_mean_number_in_flight() -> None:
    trace = transpose()
    shown = written(trace)
    end = max(one.end for one in shown.slices)
    for sm in (0, 1):
        samples = shown.counters[f"SM {sm}", "accesses in flight"]
        width = end / len(samples)
        busy = sum(one.end - one.begin for one in shown.slices if one.facts and one.path[0] == f"SM {sm}")
        assert sum(value for _, value in samples) * width == pytest.approx(busy, rel=0.02)
        asked = sum(row["sectors"] or 0 for row in trace.table.to_pylist() if row["sm"] == sm)
        assert sum(value for _, value in shown.counters[f"SM {sm}", "sectors requested"]) * width == pytest.approx(asked, rel=0.02)


def test_a_trace_without_accesses_shows_its_warps() -> None:
    trace = transpose()
    assert {one.name for one in written(replace(trace, table=trace.table.slice(0, 0))).slices} == {"naive", "tiled"}


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(
        CommandError, match=r"^writing Perfetto traces needs the package perfetto; install it with: .*pip install 'memlane\[perfetto\]'$"
    ):
        export(transpose(), "perfetto", tmp_path / "t.pftrace")


def test_a_number_too_wide_for_its_field_is_an_error() -> None:
    pattern = Pattern.of(b"\x08" + varint(mark(0, 3)), {"small": 3})
    assert bytes(pattern.copies({"small": np.array([5])})[0]) == b"\x08\x85\x80\x00"
    with pytest.raises(ValueError, match=r"^a value of small takes more than 3 bytes$"):
        pattern.copies({"small": np.array([1 << 21])})
