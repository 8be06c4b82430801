"""Timelines of plans for Perfetto, read back with Perfetto's own protocol: tracks, slices, and arrows between them."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from memlane.errors import CommandError
from memlane.export.plan_timeline import perfetto_timeline
from memlane.model import Work, simulate
from memlane.plan import Span, Timeline, executions
from tests.plan.random_plans import plans

Slice = tuple[tuple[str, ...], str, int, int]
"""Names of its track and of those above, its own, begin and end."""

SPANS = (
    Span("upload", "copy", ((0, 1),), 0, 4000.4, path=(0,)),
    Span("work", "launch", ((0, 0),), 4000.4, 5000, (0,), path=(1, 0), turns=(3,)),
    Span("other", "copy", ((1, 1),), 4000.4, 8000, held_by=0, path=(2,)),
    Span("both", "together", ((0, 0), (1, 0)), 8000, 10_000, (1, 2), path=(3,)),
    Span("check", "call", ((None, 0),), 9000, 9500, path=(4,)),
)


def read(data: bytes) -> tuple[list[tuple[Slice, dict[str, object]]], set[tuple[Slice, Slice]]]:
    """Slices with their facts, and arrows as pairs of slices."""
    trace = proto.Trace()
    trace.ParseFromString(data)
    tracks = {one.track_descriptor.uuid: one.track_descriptor for one in trace.packet if one.HasField("track_descriptor")}

    def path(number: int) -> tuple[str, ...]:
        return (*(path(tracks[number].parent_uuid) if tracks[number].parent_uuid else ()), tracks[number].name)

    open_on: dict[int, Any] = {}
    slices = []
    ends: dict[int, list[Slice]] = defaultdict(list)
    begins: dict[int, list[Slice]] = defaultdict(list)
    for packet in sorted((one for one in trace.packet if one.HasField("track_event")), key=lambda one: one.timestamp):
        event = packet.track_event
        if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_on, "slices of one track overlap"
            open_on[event.track_uuid] = packet
            continue
        began = open_on.pop(event.track_uuid)
        first = began.track_event
        one = (path(event.track_uuid), first.name, began.timestamp, packet.timestamp)
        facts = {fact.name: getattr(fact, fact.WhichOneof("value")) for fact in first.debug_annotations}
        assert list(first.categories) == [facts["kind"]]
        slices.append((one, facts))
        for flow in first.flow_ids:
            begins[flow].append(one)
        for flow in first.terminating_flow_ids:
            ends[flow].append(one)
    assert not open_on
    assert begins.keys() == ends.keys()
    assert all(len(found) == 1 for each in (begins, ends) for found in each.values())
    return slices, {(begins[flow][0], ends[flow][0]) for flow in begins}


def test_steps_lie_on_tracks_of_devices_and_queues_and_arrows_lead_to_what_waited() -> None:
    slices, arrows = read(perfetto_timeline(Timeline(SPANS, is_modelled=True)))
    upload = ("device 0", "queue 1"), "upload", 0, 4000
    work = ("device 0", "queue 0"), "work", 4000, 5000
    other = ("device 1", "queue 1"), "other", 4000, 8000
    both = ("device 0", "queue 0"), "both", 8000, 10_000
    check = ("host", "queue 0"), "check", 9000, 9500
    assert {one for one, _ in slices} == {upload, work, other, both, (("device 1", "queue 0"), "both", 8000, 10_000), check}
    assert arrows == {(upload, work), (upload, other), (work, both), (other, both)}
    facts = dict(slices)
    assert facts[work] == {"kind": "launch", "on the critical path": False, "step": "1.0", "turn": "3"}
    assert [one[1] for one, said in slices if said["on the critical path"]] == ["upload", "other", "both", "both"]


def test_times_are_those_of_the_global_timer_where_it_is_known() -> None:
    slices, _ = read(perfetto_timeline(replace(Timeline(SPANS, is_modelled=True), globaltimer_ns=1_000_000)))
    assert min(begin for (_, _, begin, _), _ in slices) == 1_000_000


@given(plans(devices=3, most_turns=4), st.data())
def test_random_timelines_come_back_whole(plan: Any, data: st.DataObject) -> None:
    order = executions(plan)
    times = st.sampled_from([0.0, 0.3, 1.0, 7.6])
    work = [Work(data.draw(times), data.draw(st.sampled_from([(), ("engine",)])), data.draw(times)) for _ in order]
    line = simulate(order, work)
    slices, arrows = read(perfetto_timeline(line))

    def shown(span: Span) -> list[Slice]:
        places = [("host" if device is None else f"device {device}", f"queue {queue}") for device, queue in span.queues]
        return [(place, span.name, round(span.start_ns), round(span.end_ns)) for place in places]

    assert sorted(one for one, _ in slices) == sorted(one for span in line.spans for one in shown(span))
    pairs = [(line.spans[other], span) for span in line.spans for other in span.needed]
    expected = {(shown(one)[0], shown(other)[0]) for one, other in pairs if one.start_ns <= other.start_ns}
    assert arrows == expected


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(CommandError, match="needs the package perfetto; install it with: "):
        perfetto_timeline(Timeline(SPANS, is_modelled=True))
