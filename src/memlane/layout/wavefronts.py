"""Count the shared-memory wavefronts of a pattern under a layout by a chip's rule, at every offset.

This is the only module of the package that depends on chips; `chip.batch` counts the accesses, for loads and for stores.
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
    """Bytes per lane."""
    mean: float
    worst: int
    worst_at: tuple[int, int]
    """r and c of the first access with the maximum."""
    ideal: float
    """Minimum wavefronts for the same bytes, on average."""
    ideal_worst: int
    """Minimum wavefronts for the same bytes, at the worst offset."""
    accesses: int
    """Number of examined accesses."""
    draws: int = 1
    """Number of random layouts averaged."""

    @property
    def conflicts(self) -> float:
        """Excess wavefronts, on average."""
        return self.mean - self.ideal


def count(layout: Layout, pattern: Pattern, chip: Chip, width: int, kind: AccessKind = "load", element: int | None = None) -> Wavefronts:
    """Count the wavefronts of a warp that accesses `width` bytes per lane in a tile with elements of `element` bytes (None: `width`).

    If `width` holds several elements, the pattern counts in such vectors: its columns are those of the tile divided by the vector length.
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
    """Count the average wavefronts over randomly drawn layouts, each at one random offset.

    Under one layout all offsets of a column cost the same, so more offsets would not improve the average.
    """
    offsets = random_words(pattern.offsets, len(layouts), seed=len(layouts))
    drawn = [(layout, slice(at, at + 1)) for layout, at in zip(layouts, offsets, strict=True)]
    return _summed(label, drawn, pattern, chip, width, kind, element)


def addresses(layout: Layout, pattern: Pattern, width: int, element: int | None = None, at: slice = slice(None)) -> npt.NDArray[np.uint64]:
    """Return uint64[offsets, 32]: the first byte of each lane's access, relative to the tile. Raises LayoutError if vectors are split."""
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
    """Raise LayoutError unless each aligned vector of `vector` elements of a row is contiguous at a multiple of its size."""
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
