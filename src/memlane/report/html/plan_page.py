"""Write the page of a plan's timeline: queues with their steps, lines for dependences, and the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from jinja2 import Template
from markupsafe import Markup

from memlane.number_format import duration, percent
from memlane.plan import Span, Timeline
from memlane.report.html.page import embedded, environment, text_of
from memlane.report.picture.connectors import Box, Edge, Grid
from memlane.report.picture.timeline import LETTER, MOST, NAMES, layout_of, queue_name, span_title, ticks

SCRIPTS = ("data", "theme", "plan")
_WIDTH = 1000.0
"""Approximate width of the timeline in pixels on a page that is not zoomed; narrower boxes are drawn one pixel wide."""
_INDENT, _SCALE = 1.0, 98.0
"""Left edge and width of the timeline in percent of its drawing; lines go around it in the rest."""
_GRID = Grid(top=12.0, pitch=38.0, box=24.0, margin=0.009, least=4 / _WIDTH)
_AXIS = 30.0
MOST_LINES = 400


@dataclass(frozen=True)
class _Step:
    """A row of the table of steps."""

    number: int
    queue: str
    name: str
    kind: str
    turns: str
    start: str
    end: str
    elapsed: str
    waited: str
    """Names of the steps that it waited for."""
    is_critical: bool


def render_plan_page(timeline: Timeline) -> str:
    """Return the page of a timeline as text: one file that needs no network."""
    found = layout_of(timeline, _GRID, 1 / _WIDTH, MOST_LINES)
    path = timeline.critical_path()
    critical = set(path)
    shown = timeline.spans[:MOST]
    steps = [_step(timeline, number, number in critical) for number in range(len(shown))]
    rows = {box.span: box.row for box in reversed(found.boxes)}
    data = {
        "spans": [
            [span_title(span), rows[number], span.start_ns, span.end_ns, duration(span.elapsed_ns), list(span.needed), number in critical]
            for number, span in enumerate(shown)
        ],
        "path": [number for number in path if number < MOST],
    }
    return _template().render(
        timeline=timeline,
        total=duration(timeline.elapsed_ns),
        height=found.grid.upper(max(1, len(found.rows))) + _AXIS,
        queues=[(queue_name(queue), found.grid.upper(row)) for queue, row in found.rows.items()],
        marks=[(_percent(tick / found.total_ns), duration(tick), "" if tick else "first") for tick in ticks(found.total_ns)],
        boxes=[_box(timeline.spans[box.span], box, box.span in critical) for box in found.boxes],
        lines=[_line(edge) for edge in found.edges],
        lines_left_out=found.left_out,
        kinds=NAMES,
        path=[_step(timeline, number, True) for number in path],
        shares=_shares(timeline, path),
        steps=steps,
        left_out=len(timeline.spans) - len(shown),
        devices=len({queue[0] for queue in found.rows if queue[0] is not None}),
        extra_style=Markup(text_of("plan.css")),
        **embedded(data, SCRIPTS),
    )


def _step(timeline: Timeline, number: int, is_critical: bool) -> _Step:
    span = timeline.spans[number]
    waited = [timeline.spans[other].name + (" (held what it needs)" if other not in span.waits else "") for other in span.needed]
    queue = ", ".join(map(queue_name, span.queues))
    start, end, elapsed = (duration(ns, 4) for ns in (span.start_ns, span.end_ns, span.elapsed_ns))
    turns = ", ".join(map(str, span.turns))
    return _Step(number, queue, span.name, span.work, turns, start, end, elapsed, ", ".join(waited), is_critical)


def _shares(timeline: Timeline, path: Sequence[int]) -> list[tuple[str, str]]:
    """Return the share of each kind of step on the critical path, and of the time in which none of its steps ran, in percent."""
    total = max(timeline.elapsed_ns, 1e-9)
    spent = dict.fromkeys(NAMES, 0.0)
    ended = 0.0
    for number in path:
        span = timeline.spans[number]
        # The latency of a step may pass while what it needs is still in use: that time belongs to the holder.
        spent[span.work] += span.end_ns - max(span.start_ns, ended)
        ended = span.end_ns
    shares = [(NAMES[kind], percent(ns / total)) for kind, ns in spent.items() if ns]
    idle = timeline.elapsed_ns - sum(spent.values())
    return [*shares, *([("between steps", percent(idle / total))] if idle > total / 1000 else [])]


def _percent(share: float) -> str:
    return f"{_INDENT + _SCALE * share:.4f}%"


def _box(span: Span, box: Box, is_critical: bool) -> dict[str, object]:
    width = f"{_SCALE * (box.right - box.left):.4f}%"
    words = {"x": _percent(box.left), "y": _GRID.upper(box.row), "width": width, "height": _GRID.box, "name": span.name}
    return {
        **words,
        "kind": span.work,
        "critical": is_critical,
        "number": box.span,
        "title": span_title(span),
        "narrow": not _fits(span, box),
    }


def _fits(span: Span, box: Box) -> bool:
    """Return whether the name of a span fits into its box on a page that is not zoomed."""
    return len(span.name) * LETTER + 9 <= _WIDTH * (box.right - box.left)


def _line(edge: Edge) -> dict[str, object]:
    """Return the parts of a line, vertical and horizontal in turn, and the place and direction of its head."""
    (x, y), (_, before) = edge.points[-1], edge.points[-2]
    down = y > before
    points = [*edge.points[:-1], (x, y - 5 if down else y + 5)]
    parts = [(_percent(a), f"{b:.1f}", _percent(c), f"{d:.1f}") for (a, b), (c, d) in pairwise(points)]
    head = {"x": _percent(x), "y": f"{y:.1f}", "shape": "M-3-5h6l-3 5z" if down else "M-3 5h6l-3-5z"}
    return {"of": edge.of, "to": edge.to, "critical": edge.is_critical, "held": edge.is_held, "parts": parts, "head": head}


@cache
def _template() -> Template:
    return environment().get_template("plan.html.j2")
