"""Propose layouts for an array whose accesses were recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, Chip
from memlane.errors import LayoutError
from memlane.layout import Layout, OfVectors, Padded, RandomPermuteShift, Skewed, XorSwizzle
from memlane.layout.padding import LaneDistances, least_padding
from memlane.optimize.search import search_layout

MOST_PATTERNS = 4
"""Maximum number of access patterns that a layout is searched for: the costliest ones."""
MOST_SEARCHED = 1 << 14
"""Maximum elements of a tile for a search, which examines every offset."""
_USUAL = ("row", "column")
"""Patterns to search for if no lane addresses were recorded."""


@dataclass(frozen=True, eq=False)
class LanePattern:
    """Relative lane addresses of one access, in elements from lane 0."""

    distances: npt.NDArray[np.int64]
    """int64[32]; undefined for lanes outside `lanes`."""
    lanes: int
    """Mask of the active lanes."""
    excess: int
    """Excess wavefronts over all executions of this instruction."""
    nbytes: int
    elements: int = 1
    """Elements accessed per lane."""

    @property
    def is_of_all(self) -> bool:
        """Whether all lanes of the warp are active."""
        return self.lanes == (1 << LANES) - 1


@dataclass(frozen=True)
class Geometry:
    """An array as rows of elements."""

    rows: int
    columns: int
    element: int
    vector: int
    """Elements of the widest access."""


def geometries(
    nbytes: int, element: int, vector: int, seen: Sequence[LanePattern], rows: int | None, columns: int | None
) -> list[Geometry]:
    """Return possible shapes of an array, the most likely first.

    Given or declared extents decide; else the steps from lane to lane, else a square, or rows that fill the banks once. Lane steps over
    several rows of a square are not taken for one row.
    """
    elements = nbytes // element
    if columns is None and rows is not None:
        columns = elements // rows
    if columns is not None:
        height = rows or elements // columns
        return [Geometry(height, columns, element, vector)] if height * columns <= elements and height and columns % vector == 0 else []
    found: Counter[int] = Counter()
    for one in seen:
        if apart := _rows_apart(one):
            found[apart] += 4 * max(1, one.excess)
        for step in _steps(one):
            for pitch in (step, step - 1, step + 1):
                found[pitch] += (2 if pitch == step else 1) * max(1, one.excess)
    side = isqrt(elements)
    square = [side] if side * side == elements else []
    likely = [pitch for pitch, _ in found.most_common() if not square or pitch == side or pitch % side]
    over_rows = any(pitch % side == 0 for pitch in found) if square else False
    guesses = [*(square if over_rows else []), *likely, *square, 128 // element]
    fits = [
        one for one in dict.fromkeys(guesses) if 1 < one < elements and elements % one == 0 and one % vector == 0 and one * element >= 16
    ]
    return [Geometry(elements // one, one, element, vector) for one in fits[:2]]


def _steps(seen: LanePattern) -> list[int]:
    """Return the two commonest distances between active neighbours that exceed a lane's access, in elements."""
    pairs = [abs(int(seen.distances[lane + 1] - seen.distances[lane])) for lane in range(LANES - 1) if seen.lanes >> lane & 3 == 3]
    return [step for step, _ in Counter(step for step in pairs if step > max(1, seen.elements)).most_common(2)]


def _rows_apart(seen: LanePattern) -> int:
    """Return the row distance of a full-warp access whose lanes form several rows of contiguous lanes; else 0."""
    if not seen.is_of_all:
        return 0
    lane, distances = np.arange(LANES), seen.distances
    for period in (16, 8, 4):
        apart = int(distances[period] - distances[0])
        if apart > period and np.array_equal(distances - distances[0], lane % period + apart * (lane // period)):
            return apart
    return 0


def candidates(geometry: Geometry, seen: Sequence[LanePattern], chip: Chip, room: int) -> Iterator[Layout]:
    """Yield layouts of the array, cheap ones first. `room`: bytes by which it may grow."""
    rows, columns, vector = geometry.rows, geometry.columns, geometry.vector
    wide = columns // vector
    if wide & (wide - 1) == 0 and wide > 1:
        yield _of_vectors(XorSwizzle(rows, wide), vector)
    for pad in dict.fromkeys((vector, 4 * vector, *_fitting_pads(geometry, seen, chip))):
        if rows * pad * geometry.element <= room:
            yield Padded(rows, columns, pad)
    if wide > 1:
        yield _of_vectors(Skewed(rows, wide, 1), vector)
    yield from _searched(geometry, seen, chip)
    if wide > 1:
        yield _of_vectors(RandomPermuteShift(rows, wide, 0), vector)


def _fitting_pads(geometry: Geometry, seen: Sequence[LanePattern], chip: Chip) -> list[int]:
    """Return the least padding with which full-warp accesses take the fewest wavefronts; empty if there are none, or no padding helps."""
    whole = [one for one in seen if one.is_of_all]
    if not whole:
        return []
    # Unrolled loops give many accesses with equal patterns.
    often = Counter((one.distances.tobytes(), one.nbytes) for one in whole)
    alike = {(one.distances.tobytes(), one.nbytes): one for one in whole}
    accesses = [LaneDistances(one.distances, one.lanes, one.nbytes, weight=often[key]) for key, one in alike.items()]
    best = least_padding(accesses, geometry.columns, geometry.element, geometry.vector, chip)
    return [best] if best else []


def _of_vectors(layout: Layout, vector: int) -> Layout:
    return layout if vector == 1 else OfVectors(layout.rows, layout.columns * vector, layout, vector)


def _searched(geometry: Geometry, seen: Sequence[LanePattern], chip: Chip) -> Iterator[Layout]:
    """Yield the layout that a search finds for the recorded patterns, if it succeeds."""
    rows, columns = geometry.rows, geometry.columns
    if rows * columns > MOST_SEARCHED:
        return
    width = geometry.element * geometry.vector
    costly = sorted(seen, key=lambda one: -one.excess)
    formulas = dict.fromkeys(formula for one in costly if one.nbytes == width and (formula := pattern_of(one)))
    try:
        yield search_layout(
            tuple(formulas)[:MOST_PATTERNS] or _USUAL, width=width, element=geometry.element, rows=rows, columns=columns, chip=chip
        ).layout
    except LayoutError:
        return


def pattern_of(seen: LanePattern) -> str | None:
    """Return the access as a formula for `memlane.layout.pattern`, such as `(r * columns + c + 32 * (t % 8))`; None if it is irregular."""
    if not seen.is_of_all:
        return None
    element = seen.distances
    for period in (32, 16, 8, 4, 2):
        inner, outer = int(element[1]), int(element[period]) if period < LANES else 0
        lane = np.arange(LANES)
        if np.array_equal(element, inner * (lane % period) + outer * (lane // period)):
            parts = [f"{inner} * (t % {period})"] if inner else []
            parts += [f"{outer} * (t // {period})"] if outer else []
            return f"({' + '.join(['r * columns + c', *parts])})"
    return None
