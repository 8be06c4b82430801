"""The picture of a timeline shows what the timeline says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import memlane as ml
from memlane.errors import RecordError
from memlane.plan import Span, Timeline
from memlane.report.picture import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


def spans() -> tuple[Span, ...]:
    return (
        Span("upload <0>", "copy", ((0, 1),), 0, 4000),
        Span("work", "launch", ((0, 0),), 4000, 5000, (0,)),
        Span("upload 1", "copy", ((0, 1),), 4000, 8000, (0,), turns=(3,)),
        Span("together", "together", ((0, 0), (1, 0)), 8000, 10_000, (1, 2)),
        Span("check", "call", ((None, 0),), 9000, 9500),
    )


def test_boxes_lie_where_their_times_are_and_the_critical_path_is_framed() -> None:
    root = ElementTree.fromstring(timeline_svg(Timeline(spans(), is_modelled=True)))
    boxes = {}
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        assert box is not None
        boxes.setdefault(group.findtext(f"{SVG}title"), []).append(box)
    assert list(boxes) == [
        "upload <0>: 0 ns to 4 us",
        "work: 4 us to 5 us",
        "upload 1, turn 3: 4 us to 8 us",
        "together: 8 us to 10 us",
        "check: 9 us to 9.5 us",
    ]
    first, work, second, together, _ = boxes.values()
    scale = float(first[0].get("width", 0)) / 4000
    for found, one in zip(boxes.values(), spans(), strict=True):
        for box in found:
            assert float(box.get("width", 0)) == pytest.approx(scale * one.elapsed_ns, abs=0.2)
            assert float(box.get("x", 0)) - float(first[0].get("x", 0)) == pytest.approx(scale * one.start_ns, abs=0.2)
    assert work[0].get("y") != first[0].get("y") == second[0].get("y")
    assert len(together) == 2
    framed = [name for name, found in boxes.items() if "s-bad" in str(found[0].get("class"))]
    assert [name.partition(":")[0] for name in framed] == ["upload <0>", "upload 1, turn 3", "together"]
    assert "10 us in all, modelled" in str(root.get("aria-label"))


def test_rows_are_the_queues_of_the_host_and_then_of_the_devices() -> None:
    root = ElementTree.fromstring(timeline_svg(Timeline(spans(), is_modelled=False)))
    names = [text.text for text in root.iter(f"{SVG}text") if re.search(r", queue \d", text.text or "")]
    assert names == ["host, queue 0", "device 0, queue 0", "device 0, queue 1", "device 1, queue 0"]
    assert "measured" in str(root.get("aria-label"))


def test_a_timeline_is_drawn_to_a_file_that_is_not_overwritten(tmp_path: Path) -> None:
    line, path = Timeline(spans(), is_modelled=True), tmp_path / "plan.svg"
    ml.draw(line, path)
    assert path.read_text().startswith("<svg")
    with pytest.raises(RecordError, match=r"plan.svg exists; give --force \(force=True in Python\) to replace it"):
        ml.draw(line, path)
    ml.draw(Timeline((), is_modelled=True), path, force=True)
