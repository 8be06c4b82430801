"""Patterns: which elements the lanes touch, at which offsets."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import LayoutError
from memlane.layout import pattern, split_names

T = np.arange(32)


@pytest.mark.parametrize(
    ("word", "rows", "columns", "i", "j"),
    [
        ("row", 8, 64, 0 * T + 5, (T + 40) % 64),
        ("contiguous", 8, 64, 0 * T + 5, (T + 40) % 64),
        ("column", 32, 64, (T + 5) % 32, 0 * T + 40),
        ("stride", 32, 64, (T + 5) % 32, 0 * T + 40),
        ("diagonal", 32, 64, (T + 5) % 32, (T + 40) % 64),
        ("antidiagonal", 32, 64, (T + 5) % 32, (40 - T) % 64),
        ("anti-diagonal", 24, 48, (T + 5) % 24, (40 - T) % 48),
        ("xordiagonal", 32, 64, T ^ 5, T ^ 40),
        ("stride2", 32, 64, (5 * 64 + 40 + 2 * T) // 64, (40 + 2 * T) % 64),
        ("anyblock8x4", 32, 64, (5 + T // 4) % 32, 40 + T % 4),
        ("(2 * t + r, c ^ t)", 32, 64, (2 * T + 5) % 32, T ^ 40),
        ("(r * columns + c + 3 * t)", 32, 64, (5 * 64 + 40 + 3 * T) // 64, (40 + 3 * T) % 64),
    ],
)
def test_lanes_of_one_offset(word: str, rows: int, columns: int, i: np.ndarray, j: np.ndarray) -> None:
    found = pattern(word, rows, columns)
    assert found.offsets == rows * columns
    at = 5 * columns + 40
    assert found.at[at].tolist() == [5, 40]
    assert found.i[at].tolist() == i.tolist()
    assert found.j[at].tolist() == j.tolist()


def test_blocks_begin_where_a_tile_of_them_does() -> None:
    found = pattern("block8x4", 32, 32)
    assert found.at.tolist() == [[r, c] for r in range(0, 32, 8) for c in range(0, 32, 4)]
    cells = found.i * 32 + found.j
    assert sorted(cells.ravel().tolist()) == list(range(1024))
    assert (found.i[9], found.j[9]) == (pytest.approx(8 + T // 4), pytest.approx(4 + T % 4))


def test_random_lanes_are_uniform_and_always_the_same() -> None:
    found = pattern("random", 8, 8)
    counts = np.bincount((found.i * 8 + found.j).ravel(), minlength=64)
    mean = found.i.size / 64
    assert ((counts - mean) ** 2 / mean).sum() < 108  # 63 degrees of freedom: a chance of 1 in 2500
    again = pattern.__wrapped__("random", 8, 8)
    assert (again.i == found.i).all()


def test_lists_keep_what_is_in_parentheses_together() -> None:
    assert split_names("row, (t, 2 * t) ,pad(1),Swizzle<1, 2, 3>") == ("row", "(t, 2 * t)", "pad(1)", "Swizzle<1, 2, 3>")
    assert split_names("(r << 2, (t + 1) % 4)") == ("(r << 2, (t + 1) % 4)",)
    for wrong in ("", "row,,column", "row,", "(t, c"):
        with pytest.raises(LayoutError, match="is not a list; write names separated by commas"):
            split_names(wrong)


@pytest.mark.parametrize(
    ("word", "rows", "columns", "message"),
    [
        ("rows", 32, 32, "unknown pattern 'rows'; choose from contiguous (row), stride (column), strideN"),
        ("block8x8", 32, 32, "block8x8: a block of 8x8 has 64 elements; it needs 32, one per lane"),
        ("block16x2", 8, 32, "block16x2: a block of 16x2 does not fit a tile of 8x32"),
        ("block8x4", 12, 32, "block8x4: blocks of 8x4 do not divide a tile of 12x32; anyblock8x4 begins anywhere"),
        ("xordiagonal", 24, 32, "for an xor-diagonal the rows of a tile must be a power of two, got 24"),
        ("row", 0, 32, "the rows of a tile must be at least 1, got 0"),
        ("row", 1 << 12, 1 << 12, "a tile of 4096x4096 has 16,777,216 offsets; at most 65,536 can be examined"),
        ("(t, r, c)", 32, 32, "formula '(t, r, c)' has 3 parts; give a row and a column, or only the row-major index"),
        ("(lane, c)", 32, 32, "formula '(lane, c)': unknown name 'lane'; choose from t, r, c, rows, columns"),
    ],
)
def test_what_is_no_pattern_is_refused(word: str, rows: int, columns: int, message: str) -> None:
    with pytest.raises(LayoutError) as raised:
        pattern(word, rows, columns)
    assert message in str(raised.value)
