"""Draw the timeline of a plan as SVG: a row for each queue, a box for each step, lines for dependences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from memlane.number_format import duration, plural
from memlane.plan import Queue, Span, Timeline
from memlane.report.picture import shapes as s
from memlane.report.picture.connectors import Box, Connectors, Edge, Grid, Point, edges_of, queues_of

PAGE, LEFT, RIGHT = 1280, 190, 1240
_TOP, _PITCH, _BOX = 96.0, 44.0, 26.0
KINDS = {"launch": "#1668d6", "copy": "#1f7a6a", "call": "#966420"}
"""Colours that contrast with white letters and with light and dark backgrounds."""
NAMES = {"launch": "kernels", "copy": "copies", "call": "host functions"}
LETTER = 6.6
"""Approximate width of a letter in a box."""
_NARROWEST = 0.8
MOST = 4000
"""Largest number of steps drawn; of longer plans the first ones."""
MOST_LINES = 150
"""Largest number of lines for dependences between queues; if there are more, only those on the critical path are drawn."""
_LONGEST_DETOUR = 0.1
"""Longest detour around boxes, in shares of the width, of a line beside the critical path; a longer one is left out."""


@dataclass(frozen=True)
class Layout:
    """A timeline laid out: rows, boxes and lines, x in shares of its time, y in pixels."""

    rows: dict[Queue, int]
    boxes: list[Box]
    edges: list[Edge]
    """The edges that are drawn, with their lines."""
    left_out: int
    """Number of dependences between queues that are not drawn."""
    grid: Grid
    total_ns: float


def layout_of(timeline: Timeline, grid: Grid, narrowest: float, most_lines: int) -> Layout:
    """Lay out a timeline. `narrowest`: the least width of a box, as a share."""
    spans = timeline.spans[:MOST]
    rows = {queue: row for row, queue in enumerate(queues_of(replace(timeline, spans=spans)))}
    begin, total = min((span.start_ns for span in spans), default=0.0), max(timeline.elapsed_ns, 1e-9)
    boxes = []
    for number, span in enumerate(spans):
        left, right = (span.start_ns - begin) / total, (span.end_ns - begin) / total
        boxes += [Box(number, rows[queue], left, max(right, left + narrowest)) for queue in span.queues]
    own: dict[int, list[Box]] = {}
    for box in boxes:
        own.setdefault(box.span, []).append(box)
    edges = [edge for edge in edges_of(timeline) if edge.to < len(spans) and edge.of < len(spans)]
    edges = [edge for edge in edges if not set(spans[edge.of].queues) & set(spans[edge.to].queues)]
    count = len(edges)
    if count > most_lines:
        edges = [edge for edge in edges if edge.is_critical]
    connectors = Connectors(boxes, grid)
    drawn = []
    for edge in edges:
        pairs = [(one, other) for one in own[edge.of] for other in own[edge.to]]
        points = connectors.route(*min(pairs, key=lambda pair: abs(pair[0].row - pair[1].row)))
        if edge.is_critical or _detour(points) < _LONGEST_DETOUR:
            drawn.append(replace(edge, points=tuple(points)))
    return Layout(rows, boxes, drawn, count - len(drawn), grid, total)


def _detour(points: list[Point]) -> float:
    """Return the horizontal length that a line has more than a direct one, because of boxes in its way."""
    return sum(abs(one - other) for (one, _), (other, _) in pairwise(points)) - abs(points[-1][0] - points[0][0])


def timeline_svg(timeline: Timeline) -> str:
    """Return the picture of a timeline as SVG: queues from top to bottom, time from left to right, the critical path framed."""
    width = RIGHT - LEFT
    found = layout_of(timeline, Grid(_TOP, _PITCH, _BOX, 14 / width, 5 / width), _NARROWEST / width, MOST_LINES)
    height = round(_TOP + _PITCH * max(1, len(found.rows)) + 64)
    said = caption(timeline)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE} {height}" width="{PAGE}" height="{height}" class="ml-picture" '
        f'font-family="{s.SANS}" role="img" aria-label="{s.escape(said, quote=True)}">',
        f"<title>{s.escape(said)}</title>",
        s.style_sheet(),
        f'<rect width="{PAGE}" height="{height}" class="f-paper" fill="{s.PAPER.light}"/>',
        s.text(28, 40, "Timeline of a plan", 24, s.TEXT, bold=True),
        s.text(28, 66, said, 15, s.MUTED),
        *_legend(),
        *_axis(found, height),
    ]
    for queue, row in found.rows.items():
        parts.append(s.text(28, found.grid.upper(row) + 18, queue_name(queue), 14, s.TEXT))
    critical = set(timeline.critical_path())
    for box, room in zip(found.boxes, _rooms(found), strict=True):
        parts.append(_box(timeline.spans[box.span], box, found.grid.upper(box.row), room, box.span in critical))
    parts += [_line(edge) for edge in sorted(found.edges, key=lambda edge: edge.is_critical)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def caption(timeline: Timeline) -> str:
    """Return a sentence on the timeline: its total time, and what is framed."""
    kind = "modelled" if timeline.is_modelled else "measured"
    left = f"; the first {MOST:,} of {plural(len(timeline.spans), 'step')}" if len(timeline.spans) > MOST else ""
    return f"{duration(timeline.elapsed_ns)} in total, {kind}; framed: the steps on the critical path{left}"


def queue_name(queue: Queue) -> str:
    """Return the name of a queue: `device 0, queue 1`."""
    return f"{'host' if queue[0] is None else f'device {queue[0]}'}, queue {queue[1]}"


def span_title(span: Span) -> str:
    """Return the name of a span, its turn and its times, as a tooltip."""
    turn = f", turn {', '.join(map(str, span.turns))}" if span.turns else ""
    return f"{span.name}{turn}: {duration(span.start_ns, 4)} to {duration(span.end_ns, 4)}"


def ticks(total_ns: float) -> list[float]:
    """Return about six round times over a timeline, in ns."""
    step = 10.0 ** math.floor(math.log10(total_ns / 4))
    step = next((step * many for many in (1, 2, 5, 10) if total_ns / (step * many) <= 8), step * 10)
    return [number * step for number in range(int(total_ns / step) + 1)]


def _x(share: float) -> float:
    return LEFT + (RIGHT - LEFT) * share


def _legend() -> list[str]:
    parts = []
    for number, (kind, words) in enumerate(NAMES.items()):
        left = 900 + 110 * number
        parts += [s.rect(left, 30, 12, 12, KINDS[kind]), s.text(left + 18, 41, words, 14, s.MUTED)]
    return parts


def _rooms(found: Layout) -> list[float]:
    """Return the free space to the right of each box in its row, in pixels."""
    order = sorted(range(len(found.boxes)), key=lambda number: (found.boxes[number].row, found.boxes[number].left))
    rooms = [0.0] * len(order)
    for at, number in enumerate(order):
        box, after = found.boxes[number], found.boxes[order[at + 1]] if at + 1 < len(order) else None
        edge = after.left if after is not None and after.row == box.row else 1 + found.grid.margin
        rooms[number] = _x(edge) - _x(box.right)
    return rooms


def _box(span: Span, box: Box, top: float, room: float, is_critical: bool) -> str:
    """Return a box with its name inside, or right of it where it is too narrow and there is room; the tooltip has name and times."""
    left, right = _x(box.left), _x(box.right)
    frame = f' class="s-{s.BAD.name}" stroke="{s.BAD.light}" stroke-width="2"' if is_critical else ""
    corners = ' rx="3"' if right - left >= 12 else ""
    rect = f'<rect x="{left:.2f}" y="{top:.1f}" width="{right - left:.2f}" height="{_BOX:.1f}"{corners} fill="{KINDS[span.work]}"{frame}/>'
    letters = int((right - left - 8) / LETTER)
    label = ""
    if len(span.name) <= letters or letters > 3:
        name = span.name if len(span.name) <= letters else f"{span.name[: letters - 1]}…"
        label = s.text(left + 4, top + 17, name, 12, "#ffffff")
    elif room >= 8 + LETTER * len(span.name):
        label = s.text(right + 4, top + 17, span.name, 12, s.TEXT)
    return f"<g><title>{s.escape(span_title(span))}</title>{rect}{label}</g>"


def _line(edge: Edge) -> str:
    """Return a line from the step waited for to the beginning of the step that waited, with a head there."""
    ink, width = (s.BAD, 1.8) if edge.is_critical else (s.MUTED, 1.0)
    dashes = ' stroke-dasharray="4 3"' if edge.is_held else ""
    (x, y), (_, before) = edge.points[-1], edge.points[-2]
    back = -5 if y > before else 5
    corners = "L".join(f"{_x(share):.2f} {at:.1f}" for share, at in [*edge.points[:-1], (x, y + back)])
    head = f'<path d="M{_x(x) - 3:.2f} {y + back:.1f}h6l-3 {-back}z" class="f-{ink.name}" fill="{ink.light}"/>'
    line = f'<path d="M{corners}" class="s-{ink.name}" stroke="{ink.light}" stroke-width="{width}" fill="none"{dashes}/>'
    return f'<g class="line" data-from="{edge.of}" data-to="{edge.to}">{line}{head}</g>'


def _axis(found: Layout, height: int) -> list[str]:
    marks = [(tick / found.total_ns, tick) for tick in ticks(found.total_ns)]
    lines = [s.line(_x(share), _TOP - 12, _x(share), height - 40, s.FRAME) for share, _ in marks]
    return [*lines, *(s.text(_x(share), height - 20, duration(tick), 13, s.MUTED, anchor="middle") for share, tick in marks)]
