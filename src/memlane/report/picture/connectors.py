"""Route connectors between boxes in rows: lines that leave one box, run between the rows, and never cross a box."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from memlane.plan import Queue, Timeline

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A box in a row: `left` and `right` are shares of the total width, `span` is the number of the span that it shows."""

    span: int
    row: int
    left: float
    right: float


@dataclass(frozen=True)
class Grid:
    """Positions of rows from top to bottom in pixels, and how far left and right of the boxes lines may go, in shares of the width."""

    top: float
    pitch: float
    box: float
    """Height of a box."""
    margin: float
    least: float
    """Least width of a gap between two boxes through which a line may go."""

    def upper(self, row: int) -> float:
        """Return the upper edge of the boxes of a row."""
        return self.top + row * self.pitch

    def above(self, row: int) -> float:
        """Return the middle of the space above the boxes of a row."""
        return self.upper(row) - (self.pitch - self.box) / 2


class Connectors:
    """Routes between boxes."""

    def __init__(self, boxes: Iterable[Box], grid: Grid) -> None:
        self.grid = grid
        rows: dict[int, list[Box]] = {}
        for box in boxes:
            rows.setdefault(box.row, []).append(box)
        self._gaps = {row: self._gaps_of(sorted(own, key=lambda box: box.left)) for row, own in rows.items()}

    def _gaps_of(self, boxes: list[Box]) -> list[tuple[float, float]]:
        """Return the gaps in a row through which lines may go, from left to right."""
        gaps: list[tuple[float, float]] = []
        edge, inset = -self.grid.margin, self.grid.least / 2
        for left, right in [*((box.left, box.right) for box in boxes), (1 + self.grid.margin, 0.0)]:
            if left - edge >= self.grid.least:
                gaps.append((edge + inset, left - inset))
            edge = max(edge, right)
        return gaps

    def route(self, of: Box, to: Box) -> list[Point]:
        """Return the corners of a line from the end of a box to the beginning of another one: x in shares, y in pixels."""
        grid, down = self.grid, to.row >= of.row
        leaves, arrives = of.right - min(grid.least, (of.right - of.left) / 2), to.left + min(grid.least, (to.right - to.left) / 2)
        first, last = (of.row + 1, to.row) if down else (of.row, to.row + 1)
        if of.row == to.row:
            last = first
        points = [(leaves, grid.upper(of.row) + (grid.box if down else 0.0)), (leaves, grid.above(first))]
        x = leaves
        for room in range(first, last) if down else range(first - 1, last - 1, -1):
            x = self._passage(room, x, arrives)
            points += [(x, grid.above(room + (not down))), (x, grid.above(room + down))]
        edge = grid.upper(to.row) + (0.0 if down and of.row != to.row else grid.box)
        points += [(arrives, grid.above(last)), (arrives, edge)]
        return [point for number, point in enumerate(points) if not number or point != points[number - 1]]

    def _passage(self, row: int, x: float, wanted: float) -> float:
        """Return the x where a line crosses a row, with the least detour between x and where the line is to arrive."""
        gaps = self._gaps.get(row)
        if gaps is None:
            return wanted
        near = {min(max(at + step, 0), len(gaps) - 1) for one in (x, wanted) for at in [bisect_left(gaps, (one, one))] for step in (-1, 0)}
        places = [min(max(one, gaps[number][0]), gaps[number][1]) for number in near for one in (x, wanted)]
        return min(places, key=lambda place: (abs(place - x) + abs(place - wanted), abs(place - x)))


@dataclass(frozen=True)
class Edge:
    """A dependence of one step on another: the numbers of two spans, whether it is on the critical path, and its line."""

    of: int
    to: int
    is_critical: bool
    is_held: bool
    """Whether the first span held a resource that the second needed, instead of being named by it as a dependence."""
    points: tuple[Point, ...] = ()


def queues_of(timeline: Timeline) -> list[Queue]:
    """Return the queues of a timeline, those of the host first and then by device."""
    queues = {queue for span in timeline.spans for queue in span.queues}
    return sorted(queues, key=lambda queue: (-1 if queue[0] is None else queue[0], queue[1]))


def edges_of(timeline: Timeline) -> list[Edge]:
    """Return the dependences of all spans, without lines, in the order of the spans that waited."""
    path = timeline.critical_path()
    critical = set(pairwise(path))
    found = []
    for number, span in enumerate(timeline.spans):
        found += [Edge(other, number, (other, number) in critical, other not in span.waits) for other in span.needed]
    return found
