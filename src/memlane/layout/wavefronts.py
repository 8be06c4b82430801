"""What a pattern costs under a layout: wavefronts of shared memory by a chip's rule, at every offset.

The one module of this package that knows of chips: an access is what `chip.batch` says it is, for loads and for stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, AccessKind, Chip, batch
from memlane.chip.model import WIDTHS
from memlane.errors import LayoutError
from memlane.layout.layout import Layout
from memlane.layout.patterns import Pattern
from memlane.layout.shifts import random_words
from memlane.number_format import plural

EVERY_LANE = (1 << LANES) - 1


@dataclass(frozen=True)
class Wavefronts:
    """Wavefronts of one access, over the offsets of a pattern."""

    pattern: str
    layout: str
    chip: str
    kind: AccessKind
    width: int
    """Bytes that a lane asks for."""
    mean: float
    worst: int
    worst_at: tuple[int, int]
    """r and c of the first access that takes the worst number."""
    ideal: float
    """The mean of the least that would do for the same bytes."""
    ideal_worst: int
    """The greatest of them."""
    accesses: int
    """How many were looked at."""
    draws: int = 1
    """Over how many random layouts the mean is taken."""

    @property
    def conflicts(self) -> float:
        """Wavefronts beyond the ideal, in the mean."""
        return self.mean - self.ideal


def count(layout: Layout, pattern: Pattern, chip: Chip, width: int, kind: AccessKind = "load", element: int | None = None) -> Wavefronts:
    """Of a warp that accesses `width` bytes a lane, elements of the tile having `element` bytes (None: as many).

    Where `width` is several elements, the pattern counts in such vectors: its columns are those of the tile divided by their number.
    """
    return _summed(str(layout), [(layout, slice(None))], pattern, chip, width, kind, element)


def count_drawn(
    layouts: Sequence[Layout],
    label: str,
    pattern: Pattern,
    chip: Chip,
    width: int,
    kind: AccessKind = "load",
    element: int | None = None,
) -> Wavefronts:
    """The same over layouts that were drawn at random, each at one random offset. (Under one layout all offsets of a column cost the same:
    more of them would say nothing more of the mean.)"""
    offsets = random_words(pattern.offsets, len(layouts), seed=len(layouts))
    drawn = [(layout, slice(at, at + 1)) for layout, at in zip(layouts, offsets, strict=True)]
    return _summed(label, drawn, pattern, chip, width, kind, element)


def addresses(layout: Layout, pattern: Pattern, width: int, element: int | None = None, at: slice = slice(None)) -> npt.NDArray[np.uint64]:
    """uint64[offsets, 32]: the byte that each lane's access begins at, the tile beginning at 0. LayoutError if vectors are torn."""
    element = element or width
    for what, given in (("access", width), ("hold elements of", element)):
        if given not in WIDTHS:
            raise LayoutError(f"a lane cannot {what} {plural(given, 'byte')}; choose one of {', '.join(map(str, WIDTHS))}")
    if width % element:
        raise LayoutError(f"an access of {plural(width, 'byte')} does not hold whole elements of {plural(element, 'byte')}")
    vector = width // element
    if (layout.rows, layout.columns) != (pattern.rows, pattern.columns * vector):
        raise LayoutError(
            f"{layout} has {layout.rows}x{plural(layout.columns, 'element')}, but the pattern {pattern.name} is for a tile of "
            f"{pattern.rows}x{pattern.columns * vector}"
        )
    if vector > 1:
        check_vectors(layout, vector)
    return (layout(pattern.i[at], pattern.j[at] * vector) * element).astype(np.uint64)


def check_vectors(layout: Layout, vector: int) -> None:
    """LayoutError unless each aligned vector of that many elements of a row lies side by side at a multiple of its size."""
    table = layout.table.reshape(layout.rows, -1, vector)
    torn = np.argwhere((table[..., :1] % vector != 0).any(axis=-1) | (table - table[..., :1] != np.arange(vector)).any(axis=-1))
    if torn.size:
        i, j = torn[0]
        raise LayoutError(
            f"{layout} splits vectors of {plural(vector, 'element')}, the first at ({i}, {j * vector}): their elements are not contiguous"
        )


def _summed(
    label: str, parts: Sequence[tuple[Layout, slice]], pattern: Pattern, chip: Chip, width: int, kind: AccessKind, element: int | None
) -> Wavefronts:
    asked = np.concatenate([addresses(layout, pattern, width, element, at) for layout, at in parts])
    masks = np.full(len(asked), EVERY_LANE, np.uint32)
    cost = batch.wavefronts(chip, asked, masks, width, kind)
    ideal = batch.ideal_wavefronts(chip, asked, masks, width, kind)
    first = int(cost.argmax())
    r, c = pattern.at[first] if len(parts) == 1 else pattern.at[parts[first][1]][0]
    return Wavefronts(
        pattern.name, label, chip.name, kind, width, float(cost.mean()), int(cost[first]), (int(r), int(c)),
        float(ideal.mean()), int(ideal.max()), len(asked), len(parts),
    )  # fmt: skip
