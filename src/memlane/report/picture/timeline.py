"""The timeline of a plan as SVG: a row for each queue, a box for each step, arrows on the critical path."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from itertools import pairwise

from memlane.plan import Queue, Span, Timeline
from memlane.record.output import replacing
from memlane.report.picture import shapes as s

PAGE, LEFT, RIGHT = 1280, 190, 1250
_TOP, _PITCH, _BOX = 96.0, 44.0, 28.0
_KINDS = {"launch": "#1668d6", "together": "#1668d6", "copy": "#1f7a6a", "call": "#8a5a1c"}
_LETTER = 6.6
"""Width of a letter in a box, about."""
MOST = 4000
"""Steps that are drawn; of longer plans the first ones."""


def draw(timeline: Timeline, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write the picture of a timeline to an SVG file. Raises RecordError if the file exists, unless `force`, or cannot be written."""
    with replacing(path, force) as stream:
        stream.write(timeline_svg(timeline).encode())


def timeline_svg(timeline: Timeline) -> str:
    """Return the picture of a timeline as SVG: queues from top to bottom, time from left to right, the critical path framed."""
    spans = timeline.spans[:MOST]
    rows = {queue: row for row, queue in enumerate(_queues(spans))}
    height = round(_TOP + _PITCH * max(1, len(rows)) + 64)
    total = max(timeline.elapsed_ns, 1e-9)

    def x(ns: float) -> float:
        return LEFT + (RIGHT - LEFT) * ns / total

    path = [number for number in timeline.critical_path() if number < len(spans)]
    kind = "modelled" if timeline.is_modelled else "measured"
    left = f"; the first {MOST:,} of {len(timeline.spans):,} steps" if len(timeline.spans) > MOST else ""
    caption = f"{_time(total)} in all, {kind}; framed: the steps that decide when it ends{left}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE} {height}" width="{PAGE}" height="{height}" class="ml-picture" '
        f'font-family="{s.SANS}" role="img" aria-label="{s.escape(caption, quote=True)}">',
        f"<title>{s.escape(caption)}</title>",
        s.style_sheet(),
        f'<rect width="{PAGE}" height="{height}" class="f-paper" fill="{s.PAPER.light}"/>',
        s.text(28, 44, "Timeline of a plan", 24, s.TEXT, bold=True),
        s.text(28, 72, caption, 16, s.MUTED),
        *_legend(),
        *_axis(total, height, x),
    ]
    for queue, row in rows.items():
        parts.append(s.text(28, _TOP + row * _PITCH + 19, _queue_name(queue), 14, s.TEXT))
    critical = set(path)
    for number, span in enumerate(spans):
        for queue in span.queues:
            parts.append(_box(span, _TOP + rows[queue] * _PITCH, x, number in critical))
    for number, following in pairwise(path):
        one, other = spans[number], spans[following]
        if one.queues[0] != other.queues[0]:
            rows_of = rows[one.queues[0]], rows[other.queues[0]]
            parts.append(_jump(x(one.end_ns), x(other.start_ns), *rows_of))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    parts = []
    for number, (kind, words) in enumerate((("launch", "kernels"), ("copy", "copies"), ("call", "host functions"))):
        left = 900 + 110 * number
        parts += [s.rect(left, 34, 12, 12, _KINDS[kind]), s.text(left + 18, 45, words, 14, s.MUTED)]
    return parts


def _queues(spans: Sequence[Span]) -> list[Queue]:
    """Return the queues in the order of their devices, the host's first."""
    return sorted({queue for span in spans for queue in span.queues}, key=lambda queue: (-1 if queue[0] is None else queue[0], queue[1]))


def _queue_name(queue: Queue) -> str:
    return f"{'host' if queue[0] is None else f'device {queue[0]}'}, queue {queue[1]}"


def _box(span: Span, top: float, x: Callable[[float], float], is_critical: bool) -> str:
    left, right = x(span.start_ns), max(x(span.end_ns), x(span.start_ns) + 0.8)
    box = s.rect(left, top, right - left, _BOX, _KINDS[span.kind], frame=s.BAD if is_critical else None)
    letters = int((right - left - 8) / _LETTER)
    name = span.name if len(span.name) <= letters else f"{span.name[: letters - 1]}…" if letters > 3 else ""
    label = s.text(left + 4, top + 18, name, 12, "#ffffff") if name else ""
    turn = f", turn {', '.join(map(str, span.turns))}" if span.turns else ""
    title = f"<title>{s.escape(f'{span.name}{turn}: {_time(span.start_ns)} to {_time(span.end_ns)}')}</title>"
    return f"<g>{title}{box}{label}</g>"


def _jump(from_x: float, to_x: float, from_row: int, to_row: int) -> str:
    """An arrow from the end of a step to the start of the one that it let begin."""
    down = to_row > from_row
    y = _TOP + from_row * _PITCH + (_BOX if down else 0)
    to_y = _TOP + to_row * _PITCH + (0 if down else _BOX)
    return f'<path d="M{from_x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" class="s-bad" stroke="{s.BAD.light}" stroke-width="1.6" fill="none"/>'


def _axis(total: float, height: int, x: Callable[[float], float]) -> list[str]:
    step = 10 ** math.floor(math.log10(total / 4))
    step = next((step * many for many in (1, 2, 5, 10) if total / (step * many) <= 8), step * 10)
    ticks = [number * step for number in range(int(total / step) + 1)]
    lines = [s.line(x(tick), _TOP - 8, x(tick), height - 40, s.FRAME) for tick in ticks]
    return [*lines, *(s.text(x(tick), height - 20, _time(tick), 13, s.MUTED, anchor="middle") for tick in ticks)]


def _time(ns: float) -> str:
    """`12.5 us`, in the unit that fits."""
    unit, scale = ("ms", 1e6) if ns >= 1e6 else ("us", 1e3) if ns >= 1e3 else ("ns", 1.0)
    return f"{ns / scale:.4g} {unit}"
