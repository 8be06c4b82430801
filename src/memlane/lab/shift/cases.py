"""Define the cases: tiles, layouts with many draws of the random ones, and the elements that warps access."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, Chip
from memlane.layout import Layout, pattern, read_spec
from memlane.layout.shifts import random_words
from memlane.optimize import search_layout

SIDE = 32
"""Rows and columns of the tile."""
PATTERNS = ("contiguous", "stride", "diagonal", "antidiagonal", "random")
WIDTHS = (4, 8)
KINDS = ("read", "write")
COUNTS = (1, 16)
"""Accesses of a warp between the clock reads."""
WARPS = (1, 2, 4, 8, 16, 32)
SEARCHED_FOR = ("row", "column", "diagonal", "antidiagonal")
"""Patterns for which the searched layout is optimised."""
NONE, RAS, RAP, SEARCHED = "none", "ras", "rap", "searched"
LAYOUTS = (NONE, RAS, RAP, "pad(1)", "xor", SEARCHED)
TABLES = ("global", "constant", "shared")
"""Memories in which the shifts of RAS and RAP may lie."""

Places = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Drawn:
    """A layout of the tile; for a random one, several draws."""

    name: str
    layouts: tuple[Layout, ...]

    @property
    def first(self) -> Layout:
        return self.layouts[0]

    @property
    def room(self) -> int:
        """Number of elements that the tile takes."""
        return max(layout.size for layout in self.layouts)

    @cached_property
    def shifts(self) -> Places:
        """Look-up tables as int32[draws, rows]; empty for a layout without."""
        tables = [layout.lookup_tables() for layout in self.layouts]
        return np.array([found[0] for found in tables] if tables[0] else np.zeros((0, SIDE)), np.int32)


@lru_cache(maxsize=64)
def drawn(name: str, width: int, chip: Chip, draws: int) -> Drawn:
    """Return the layout of that name for elements of `width` bytes."""
    if name == NONE:
        name = "row-major"
    elif name == SEARCHED:
        return Drawn(SEARCHED, (search_layout(SEARCHED_FOR, width=width, rows=SIDE, columns=SIDE, chip=chip).layout,))
    spec = read_spec(name)
    return Drawn(name, tuple(spec.of(SIDE, SIDE, seed) for seed in range(draws if spec.random else 1)))


@dataclass(frozen=True, eq=False)
class Accesses:
    """Elements that the lanes access, int32[draws, accesses of a warp, threads]."""

    rows: Places
    columns: Places

    @property
    def draws(self) -> int:
        return len(self.rows)

    def offsets(self, layout: Drawn) -> Places:
        """Return their offsets, each draw under a draw of the layout if it is random."""
        several = len(layout.layouts)
        found = [layout.layouts[draw % several](self.rows[draw], self.columns[draw]) for draw in range(self.draws)]
        return np.stack(found).astype(np.int32)


@lru_cache(maxsize=512)
def accesses(name: str, warps: int, count: int, draws: int) -> Accesses:
    """Return the accesses of each warp, each at a random offset in the tile."""
    one = pattern(name, SIDE, SIDE)
    at = np.array(random_words(one.offsets, draws * count * warps, seed=count), np.int64)
    shape = (draws, count, warps * LANES)
    return Accesses(one.i[at].reshape(shape).astype(np.int32), one.j[at].reshape(shape).astype(np.int32))
