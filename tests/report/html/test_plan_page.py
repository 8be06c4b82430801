"""The page of a plan's timeline: it shows what the timeline says, asks for nothing, and can be used by keys alone."""

from __future__ import annotations

import json
import re

import pytest

from memlane.plan import Span, Timeline
from memlane.report.html.plan_page import render_plan_page
from tests.report.html.reading import read

SPANS = (
    Span("upload <0>", "copy", ((0, 1),), 0, 4000),
    Span("work", "launch", ((0, 0),), 4000, 5000, (0,)),
    Span("upload 1", "copy", ((0, 1),), 4000, 8000, (0,), turns=(3,)),
    Span("together", "together", ((0, 0), (1, 0)), 8000, 10_000, (1, 2)),
    Span("check", "call", ((None, 0),), 9000, 9500, held_by=2),
)
LINE = Timeline(SPANS, is_modelled=True)


def test_boxes_lie_where_their_times_are() -> None:
    root = read(render_plan_page(LINE))
    drawing = root.by_id("drawing")
    boxes = [one for one in drawing.all("svg") if "data-step" in one.attributes]
    assert [one.attributes["data-step"] for one in boxes] == ["0", "1", "2", "3", "3", "4"]
    for one in boxes:
        span = SPANS[int(one.attributes["data-step"])]
        left, width = (float(one.attributes[name].rstrip("%")) for name in ("x", "width"))
        assert left == pytest.approx(1 + 98 * span.start_ns / 10_000, abs=1e-3)
        assert width == pytest.approx(98 * span.elapsed_ns / 10_000, abs=1e-3)
    critical = {one.attributes["data-step"] for one in boxes if "critical" in one.attributes["class"].split()}
    assert critical == {"0", "2", "3"}
    lines = [(one.attributes["data-of"], one.attributes["data-to"], one.attributes["class"]) for one in drawing.all("g")]
    assert lines == [("0", "1", "line"), ("2", "3", "line critical"), ("2", "4", "line held")]


def test_the_tables_say_what_the_drawing_shows() -> None:
    root = read(render_plan_page(LINE))
    rows = [[" ".join(cell.text.split()) for cell in row.all("td")] for row in root.by_id("path").all("tr")]
    assert rows[1:] == [
        ["0 ns", "4 us", "4 us", "device 0, queue 1", "upload <0>", "", ""],
        ["4 us", "8 us", "4 us", "device 0, queue 1", "upload 1", "3", "upload <0>"],
        ["8 us", "10 us", "2 us", "device 0, queue 0, device 1, queue 0", "together", "", "work, upload 1"],
    ]
    steps = root.by_id("steps").all("tr")
    assert len(steps) == 1 + len(SPANS)
    assert "upload 1 (held what it needs)" in steps[-1].text
    figures = dict(zip([one.text for one in root.all("dt")], [one.text for one in root.all("dd")], strict=True))
    assert figures["from the first start to the last end"] == "10 us"
    assert figures["copies, share of the critical path"] == "80 %"
    assert figures["kernels, share of the critical path"] == "20 %"


def test_the_page_asks_for_nothing_and_hostile_names_stay_text() -> None:
    hostile = "</script><script>alert(1)</script><img src=x>"
    text = render_plan_page(Timeline((Span(hostile, "copy", ((0, 0),), 0, 1),), is_modelled=False))
    root = read(text)
    assert len(root.all("script")) == 2
    assert not root.all("img")
    assert not root.all("link")
    assert set(re.findall(r"https?://[^\s\"'<>)]+", text)) <= {"http://www.w3.org/2000/svg"}
    (policy,) = [one.attributes["content"] for one in root.all("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert hostile in json.loads(root.by_id("data").text)["spans"][0][0]
    assert "measured" in root.all("p")[0].text


def test_a_plan_without_steps_has_a_page() -> None:
    assert "The plan has no steps." in render_plan_page(Timeline((), is_modelled=True))


def test_many_waits_are_drawn_on_the_critical_path_alone() -> None:
    spans = [
        Span(f"copy {number}", "copy", ((0, 1),), 10 * number, 10 * number + 10, ((number - 1,) if number else ())) for number in range(500)
    ]
    spans += [Span(f"work {number}", "launch", ((0, 0),), 10 * number + 10, 10 * number + 15, (number,)) for number in range(500)]
    root = read(render_plan_page(Timeline(tuple(spans), is_modelled=True)))
    assert [one.attributes["class"] for one in root.by_id("drawing").all("g")] == ["line critical"]
    assert "Not drawn: 499 waits beside the critical path" in root.by_id("timeline").text
