"""The picture of a timeline shows what the timeline says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlane as ml
from memlane.errors import CommandError, RecordError
from memlane.model import Work, simulate
from memlane.plan import Span, Timeline, executions
from memlane.report.picture import timeline_svg
from memlane.report.picture.connectors import Grid
from memlane.report.picture.timeline import layout_of
from tests.plan.random_plans import plans

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
    boxes: dict[str | None, list[ElementTree.Element]] = {}
    for group in root.iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        if box is None:
            continue
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
    assert "10 us in total, modelled" in str(root.get("aria-label"))


def test_rows_are_the_queues_of_the_host_and_then_of_the_devices() -> None:
    root = ElementTree.fromstring(timeline_svg(Timeline(spans(), is_modelled=False)))
    names = [text.text for text in root.iter(f"{SVG}text") if re.search(r", queue \d", text.text or "")]
    assert names == ["host, queue 0", "device 0, queue 0", "device 0, queue 1", "device 1, queue 0"]
    assert "measured" in str(root.get("aria-label"))


def test_a_timeline_is_drawn_to_a_file_that_is_not_overwritten(tmp_path: Path) -> None:
    line, path = Timeline(spans(), is_modelled=True), tmp_path / "plan.svg"
    ml.draw(line, path)
    assert path.read_text().startswith("<svg")
    with pytest.raises(RecordError, match=r"plan.svg exists; pass --force \(force=True in Python\) to replace it"):
        ml.draw(line, path)
    for name in ("plan.svg", "plan.html", "plan.pftrace"):
        ml.draw(Timeline((), is_modelled=True), tmp_path / name, force=True)
    with pytest.raises(CommandError, match=r"plan\.png: a timeline can be written as .*; choose a file name that ends in one of these$"):
        ml.draw(line, tmp_path / "plan.png")


def test_names_stand_in_their_boxes_or_right_of_them_or_are_shown_by_the_pointer() -> None:
    name = "a name of many letters"
    boxes = (
        Span(name, "copy", ((0, 0),), 0, 6000),
        Span(name, "launch", ((0, 1),), 0, 100),
        Span(name, "call", ((None, 0),), 0, 100),
        Span("after", "call", ((None, 0),), 200, 6000),
    )
    root = ElementTree.fromstring(timeline_svg(Timeline(boxes, is_modelled=True)))
    groups = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
    inside, right, hidden, after = (group.find(f"{SVG}text") for group in groups)
    assert [group.findtext(f"{SVG}title", "").partition(":")[0] for group in groups] == [name, name, name, "after"]
    assert hidden is None
    assert inside is not None
    assert right is not None
    assert after is not None
    box = groups[1].find(f"{SVG}rect")
    assert box is not None
    assert float(right.get("x", 0)) > float(box.get("x", 0)) + float(box.get("width", 0))
    assert inside.text == right.text == name


# -- lines -----------------------------------------------------------------------------------------------------------------------------


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    order = executions(draw(plans(devices=3, most_turns=4)))
    resources = [(), ("engine",), ("link",)]
    work = [Work(float(draw(st.sampled_from([0, 1, 3, 10, 500]))), draw(st.sampled_from(resources))) for _ in order]
    return simulate(order, work)


@pytest.mark.slow
@given(timelines())
def test_lines_never_cross_a_box(line: Timeline) -> None:
    root = ElementTree.fromstring(timeline_svg(line))
    boxes = [
        tuple(float(box.get(name, 0)) for name in ("x", "y", "width", "height"))
        for group in root.iter(f"{SVG}g")
        for box in group.findall(f"{SVG}rect")
    ]
    assert len(boxes) == sum(len(span.queues) for span in line.spans)
    for group in root.iter(f"{SVG}g"):
        if group.get("class") != "line":
            continue
        corners = [tuple(map(float, one.split())) for one in re.split("[ML]", group.findall(f"{SVG}path")[0].get("d", ""))[1:]]
        assert all(x == to_x or y == to_y for (x, y), (to_x, to_y) in pairwise(corners))
        for (x, y), (to_x, to_y) in pairwise(corners):
            for left, top, width, height in boxes:
                is_beside = max(x, to_x) <= left + 0.02 or min(x, to_x) >= left + width - 0.02
                is_apart = max(y, to_y) <= top + 0.02 or min(y, to_y) >= top + height - 0.02
                assert is_beside or is_apart, (corners, (left, top, width, height))


@given(timelines())
def test_each_line_leads_from_the_end_of_a_step_to_the_start_of_one_that_waited_for_it(line: Timeline) -> None:
    found = layout_of(line, Grid(top=0, pitch=40, box=20, margin=0.02, least=0.004), 0.001, 10_000)
    critical = set(pairwise(line.critical_path()))
    expected = {
        (other, number)
        for number, span in enumerate(line.spans)
        for other in span.needed
        if not {*span.queues} & {*line.spans[other].queues}
    }
    drawn = {(edge.of, edge.to): edge for edge in found.edges}
    assert drawn.keys() <= expected
    assert len(expected) == len(drawn) + found.left_out
    assert expected & critical <= drawn.keys()
    for (of, to), edge in drawn.items():
        assert edge.is_critical == ((of, to) in critical)
        assert edge.is_held == (of not in line.spans[to].waits)
        (first, y), (last, to_y) = edge.points[0], edge.points[-1]
        assert any(box.left <= first <= box.right and y in (40 * box.row, 40 * box.row + 20) for box in found.boxes if box.span == of)
        assert any(box.left <= last <= box.right and to_y in (40 * box.row, 40 * box.row + 20) for box in found.boxes if box.span == to)
