"""Draw the lower half of the picture of a global or local access: the 128-byte lines that are touched, and their sectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from memlane.chip import SECTOR_BYTES
from memlane.number_format import plural
from memlane.report.picture import shapes as s
from memlane.report.picture.drawing import Drawing

LEFT, WIDTH = 64.0, 1152.0
_ABREAST = 8
"""Largest number of lines side by side with their four sectors in a row; beyond that each line is a column of sectors."""
_HEIGHT, _STACKED = 64.0, 40.0
"""Height of a sector in a row, and in a column."""

Runs = list[tuple[int, int]]


@dataclass(frozen=True)
class _Sectors:
    """The data drawn of each sector."""

    lines: tuple[int, ...]
    """The lines touched, by address divided by their size."""
    moved: Counter[int]
    """Number of times that each sector moves, by address divided by 32."""
    asked: dict[int, Runs]
    """Bytes of each sector that are requested, as runs (from, to)."""
    line_bytes: int

    @classmethod
    def of(cls, drawing: Drawing) -> _Sectors:
        line_bytes = drawing.chip.line_bytes
        moved: Counter[int] = Counter()
        asked: dict[int, set[int]] = {}
        for piece in drawing.pieces:
            moved.update(range(piece.start // SECTOR_BYTES, (piece.start + piece.nbytes) // SECTOR_BYTES))
            for touch in piece.touches:
                for byte in range(touch.address, touch.address + touch.nbytes):
                    asked.setdefault(byte // SECTOR_BYTES, set()).add(byte % SECTOR_BYTES)
        lines = sorted({sector * SECTOR_BYTES // line_bytes for sector in moved})
        return cls(tuple(lines), moved, {sector: _runs(sorted(found)) for sector, found in asked.items()}, line_bytes)


Place = Callable[[int], tuple[float, float]]
"""Function from the address of a byte to the upper left corner of its place in the drawing."""


def draw_sectors(drawing: Drawing, top: float, lanes: Callable[[int], float]) -> tuple[list[str], float]:
    """Return arrows from the lanes and the lines of memory below, and the lower edge of the drawing.

    The middle of a lane's lower edge is at `lanes(number)` and `top`.
    """
    found = _Sectors.of(drawing)
    count, per_line = len(found.lines), found.line_bytes // SECTOR_BYTES
    stacked = count > _ABREAST
    upper = top + (190 if stacked else 150)
    gap = min(14.0, 160.0 / count)
    pitch = (WIDTH + gap) / count
    across = 1 if stacked else per_line
    width, height = (pitch - gap) / across, _STACKED if stacked else _HEIGHT
    column = {line: index for index, line in enumerate(found.lines)}

    def corner(sector: int) -> tuple[float, float]:
        line, number = divmod(sector, per_line)
        left = LEFT + column[line] * pitch
        return (left, upper + number * height) if stacked else (left + number * width, upper)

    shapes: list[str] = []
    for line in found.lines:
        for sector in range(line * per_line, (line + 1) * per_line):
            shapes += _sector(found, sector, *corner(sector), width, height)
    for piece in drawing.pieces:
        for touch in piece.touches:
            middle = touch.address + touch.nbytes / 2
            x, y = corner(touch.address // SECTOR_BYTES)
            shapes.append(s.arrow(lanes(touch.lane), top, x + (middle % SECTOR_BYTES) / SECTOR_BYTES * width, y, s.ASKED, faint=stacked))
    bottom = upper + height * (per_line if stacked else 1)
    shapes += _offsets(found, pitch, gap, bottom + 18)
    shapes += _legend(found, drawing, bottom + 48)
    return shapes, bottom + 60


def _sector(found: _Sectors, sector: int, x: float, y: float, width: float, height: float) -> list[str]:
    """Return one sector: what moves, what is requested, and how often it moves if more than once."""
    moves = found.moved[sector]
    shapes = [s.rect(x, y, width, height, s.WASTED if moves else s.EMPTY)]
    for first, last in found.asked.get(sector, []):
        left = x + first / SECTOR_BYTES * width
        shapes.append(s.rect(left, y, max(1.5, (last - first) / SECTOR_BYTES * width), height, s.ASKED))
        shapes += [
            s.line(x + word / SECTOR_BYTES * width, y, x + word / SECTOR_BYTES * width, y + height, s.FRAME)
            for word in _cuts(first, last, width)
        ]
    shapes.append(s.rect(x, y, width, height, None, frame=s.MUTED if moves else s.FRAME, dashed=not moves))
    if moves > 1:
        shapes.append(s.text(x + width / 2, y + height / 2 + 4, f"{moves} x", 12, s.TEXT, anchor="middle", bold=True))
    return shapes


def _cuts(first: int, last: int, width: float) -> range:
    """Return the boundaries between requested words, where these are wide enough to be distinguished."""
    return range(first // 4 * 4 + 4, last, 4) if width >= 8 * 6 else range(0)


def _offsets(found: _Sectors, pitch: float, gap: float, y: float) -> list[str]:
    """Return the distance of each line from the first; where lines are narrow, the distance between them."""
    base = found.lines[0] * found.line_bytes
    steps = {later - earlier for earlier, later in zip(found.lines, found.lines[1:], strict=False)}
    if pitch - gap < 60:
        apart = f", {plural(steps.pop() * found.line_bytes, 'byte')} apart" if len(steps) == 1 else ""
        return [s.text(LEFT, y, f"{plural(len(found.lines), 'line')} of {plural(found.line_bytes, 'byte')}{apart}", 14, s.MUTED)]
    labels = [f"line +{line * found.line_bytes - base:,}" for line in found.lines]
    labels[0] = f"a line of {plural(found.line_bytes, 'byte')}" if pitch > 200 else "line 0"
    return [s.text(LEFT + index * pitch, y, label, 14, s.MUTED) for index, label in enumerate(labels)]


def _legend(found: _Sectors, drawing: Drawing, y: float) -> list[str]:
    sectors = sum(found.moved.values())
    wasted = drawing.moved_bytes - drawing.asked_bytes
    entries = [(s.ASKED, False, f"requested: {drawing.asked_bytes:,} B")]
    if wasted:
        entries.append((s.WASTED, False, f"moved but not requested: {wasted:,} B"))
    if sectors < len(found.lines) * (found.line_bytes // SECTOR_BYTES):
        entries.append((s.EMPTY, True, "not moved"))
    shapes, x = [], LEFT
    for ink, dashed, words in entries:
        shapes.append(s.rect(x, y - 13, 16, 16, ink, frame=s.FRAME, dashed=dashed))
        shapes.append(s.text(x + 24, y, words, 15, s.TEXT))
        x += 24 + 8.2 * len(words) + 36
    shapes.append(s.text(LEFT + WIDTH, y, f"a box is a sector of {SECTOR_BYTES} bytes", 15, s.MUTED, anchor="end"))
    return shapes


def _runs(numbers: list[int]) -> Runs:
    """Return runs of consecutive numbers, each as (first, last + 1)."""
    found: Runs = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found
