"""Define access patterns: the elements of a tile that the 32 lanes of a warp access, at every offset of the warp.

    contiguous, row      lane t at (r, c + t)
    stride, column       (r + t, c): called stride in the literature on shifts
    strideN              every N-th element: row-major index r * columns + c + N t
    diagonal             (r + t, c + t)
    antidiagonal         (r + t, c - t)
    xordiagonal          (r ^ t, c ^ t); for tiles whose sides are powers of two
    blockRxC             R rows of C neighbours, R C = 32, aligned to a tiling by such blocks
    anyblockRxC          the same blocks starting at any element
    random               each lane anywhere; other elements at each offset
    (I, J) or (K)        formulas of t, r, c, rows, columns: row and column, or the row-major index

(r, c) runs over all elements of the tile. Rows and columns wrap around at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES
from memlane.errors import LayoutError
from memlane.layout.expression import Expression, name, number
from memlane.layout.formula import read_formulas
from memlane.layout.layout import power_of_two, whole_number
from memlane.layout.program import Program
from memlane.layout.shifts import random_words
from memlane.number_format import plural

RANDOM_OFFSETS = 4096
LARGEST_TILE = 1 << 16
"""Maximum elements of a tile, each of which is an offset to examine."""

Coordinates = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Accesses of a warp to a tile of `rows` x `columns`; arrays are int64[offsets, 32]."""

    name: str
    rows: int
    columns: int
    i: Coordinates
    j: Coordinates
    at: Coordinates
    """int64[offsets, 2]: r and c of each access; for random accesses, a number and 0."""

    @property
    def offsets(self) -> int:
        return len(self.at)


Formula = Callable[[Expression, Expression, Expression, int, int], tuple[Expression, Expression]]

_FORMULAS: Mapping[str, Formula] = {
    "row": lambda t, r, c, rows, columns: (r, c + t),
    "column": lambda t, r, c, rows, columns: (r + t, c),
    "diagonal": lambda t, r, c, rows, columns: (r + t, c + t),
    "antidiagonal": lambda t, r, c, rows, columns: (r + t, c - t),
    "xordiagonal": lambda t, r, c, rows, columns: (r ^ t, c ^ t),
}
_OTHER_NAMES = {"contiguous": "row", "stride": "column", "anti-diagonal": "antidiagonal", "xor-diagonal": "xordiagonal"}
_KNOWN = (
    "contiguous (row), stride (column), strideN, diagonal, antidiagonal, xordiagonal, blockRxC, anyblockRxC, random, "
    "and formulas in parentheses such as (t, 2 * t + c)"
)


@lru_cache(maxsize=256)
def pattern(word: str, rows: int, columns: int) -> Pattern:
    """Return the named pattern on a tile. Raises LayoutError for an unknown name, or a pattern undefined on this tile."""
    for extent, count in (("rows", rows), ("columns", columns)):
        whole_number(f"the {extent} of a tile", count, 1)
    if rows * columns > LARGEST_TILE:
        raise LayoutError(f"a tile of {rows}x{columns} has {plural(rows * columns, 'offset')}; at most {LARGEST_TILE:,} can be examined")
    plain = plain_name(word)
    if plain.startswith("("):
        return _of_formula(word.strip(), rows, columns)
    if plain == "random":
        return _random(word, rows, columns)
    if plain == "xordiagonal":
        power_of_two("for an xor-diagonal the rows of a tile", rows)
        power_of_two("for an xor-diagonal the columns of a tile", columns)
    if plain in _FORMULAS:
        return _everywhere(word, rows, columns, _FORMULAS[plain])
    if match := re.fullmatch(r"stride[ :]?(\d{1,6})", plain):
        return _everywhere(word, rows, columns, partial(_strided, int(match[1])))
    if match := re.fullmatch(r"(any)?block[ :]?(\d{1,2})x(\d{1,2})", plain):
        return _blocks(word, rows, columns, int(match[2]), int(match[3]), anywhere=bool(match[1]))
    raise LayoutError(f"unknown pattern {word!r}; choose from {_KNOWN}")


def plain_name(word: str) -> str:
    """Return the canonical name of a pattern."""
    plain = word.strip().lower()
    return _OTHER_NAMES.get(plain, plain)


def split_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names, keeping parentheses together. Raises LayoutError for an empty list or name."""
    names, depth, begin, inside = [], 0, 0, False
    for place, character in enumerate(f"{text},"):
        if character not in "<>" or not inside:  # the characters of a shift are not brackets
            depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(character, 0)
            inside = depth > 0 and (inside or character in "([")
        if character == "," and depth <= 0:
            names.append(text[begin:place].strip())
            begin = place + 1
    if begin <= len(text) or not all(names):
        raise LayoutError(f"{text!r} is not a list; write names separated by commas, each with its parentheses closed")
    return tuple(names)


def _everywhere(word: str, rows: int, columns: int, formula: Formula) -> Pattern:
    at = np.stack(np.divmod(np.arange(rows * columns), columns), axis=1)
    return _at(word, rows, columns, at, formula)


def _at(word: str, rows: int, columns: int, at: Coordinates, formula: Formula) -> Pattern:
    t, r, c = name("t", LANES), name("r", rows), name("c", columns)
    values = {"t": np.arange(LANES)[None, :], "r": at[:, :1], "c": at[:, 1:]}
    row, column = formula(t, r, c, rows, columns)
    shape = (len(at), LANES)
    i = np.broadcast_to(np.asarray(Program(row % rows).evaluate(values), np.int64), shape)
    j = np.broadcast_to(np.asarray(Program(column % columns).evaluate(values), np.int64), shape)
    return Pattern(word, rows, columns, i, j, at)


def _strided(step: int, t: Expression, r: Expression, c: Expression, rows: int, columns: int) -> tuple[Expression, Expression]:
    k = r * columns + c + t * step
    return k // columns, k % columns


def _blocks(word: str, rows: int, columns: int, high: int, wide: int, *, anywhere: bool) -> Pattern:
    if high * wide != LANES:
        raise LayoutError(f"{word}: a block of {high}x{wide} has {plural(high * wide, 'element')}; it needs {LANES}, one per lane")
    if high > rows or wide > columns:
        raise LayoutError(f"{word}: a block of {high}x{wide} does not fit a tile of {rows}x{columns}")
    steps = (1, 1) if anywhere else (high, wide)
    if rows % steps[0] or columns % steps[1]:
        raise LayoutError(
            f"{word}: blocks of {high}x{wide} do not divide a tile of {rows}x{columns}; anyblock{high}x{wide} begins anywhere"
        )
    r, c = np.meshgrid(np.arange(0, rows, steps[0]), np.arange(0, columns, steps[1]), indexing="ij")
    at = np.stack([r.ravel(), c.ravel()], axis=1)
    return _at(word, rows, columns, at, lambda t, r, c, rows, columns: (r + t // wide, c + t % wide))


def _random(word: str, rows: int, columns: int) -> Pattern:
    words = random_words(rows * columns, RANDOM_OFFSETS * LANES)
    k = np.array(words, np.int64).reshape(RANDOM_OFFSETS, LANES)
    at = np.stack([np.arange(RANDOM_OFFSETS), np.zeros(RANDOM_OFFSETS, np.int64)], axis=1)
    return Pattern(word, rows, columns, k // columns, k % columns, at)


def _of_formula(word: str, rows: int, columns: int) -> Pattern:
    def formula(t: Expression, r: Expression, c: Expression, rows: int, columns: int) -> tuple[Expression, Expression]:
        names = {"t": t, "r": r, "c": c, "rows": number(rows), "columns": number(columns)}
        parts = read_formulas(word, names)
        if len(parts) == 1:
            return parts[0] // columns, parts[0] % columns
        if len(parts) != 2:
            raise LayoutError(f"formula {word!r} has {len(parts)} parts; give a row and a column, or only the row-major index")
        return parts[0], parts[1]

    return _everywhere(word, rows, columns, formula)
