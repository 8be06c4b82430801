"""Layouts as values: what they compute, by a second definition of each family; inverses, composition, text; and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.errors import LayoutError
from memlane.layout import (
    BitLinear,
    ColumnMajor,
    Composed,
    Cost,
    DiagonalStrip,
    Gather,
    Layout,
    Morton,
    OfVectors,
    Padded,
    RandomPermuteShift,
    RandomShift,
    RowMajor,
    ShiftTable,
    Skewed,
    Strided,
    Swizzle,
    Tiled,
    XorSwizzle,
    read_spec,
)
from tests.layout.families import FAMILIES, Known

CLASSES = (
    BitLinear, ColumnMajor, DiagonalStrip, Gather, Morton, OfVectors, Padded, RandomPermuteShift, RandomShift, RowMajor, ShiftTable, Skewed,
    Strided, Swizzle, Tiled, XorSwizzle,
)  # fmt: skip
SEEDS = st.integers(0, 1 << 30)
each_family = pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES)


@each_family
@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_offsets_are_those_of_the_second_definition(make: Callable[[Random], Known], seed: int) -> None:
    known = make(Random(seed))
    layout, table = known.layout, known.table
    assert (layout.table == table).all()
    assert 0 <= table.min() <= table.max() < layout.size
    i, j = Random(seed).randrange(layout.rows), Random(seed).randrange(layout.columns)
    assert layout(i, j) == layout(i * layout.columns + j) == table[i, j]
    assert isinstance(layout(i, j), int)
    assert (layout(np.arange(layout.rows * layout.columns, dtype=np.uint16)) == table.ravel()).all()
    assert (layout(np.arange(layout.rows), j) == table[:, j]).all()
    assert layout.python_function()(i, j) == layout.python_function(by_index=True)(i * layout.columns + j) == table[i, j]


@each_family
@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_bijective_and_inverse(make: Callable[[Random], Known], seed: int) -> None:
    known = make(Random(seed))
    layout, flat = known.layout, known.table.ravel().tolist()
    assert layout.is_injective == (len(set(flat)) == len(flat))
    assert layout.is_bijective == (sorted(flat) == list(range(layout.size)))
    if not layout.is_injective:
        with pytest.raises(LayoutError, match=r"has no inverse: \(\d+, \d+\) and \(\d+, \d+\) lie at the same offset"):
            layout.inverse  # noqa: B018
        return
    inverse = layout.inverse
    assert [inverse(offset) for offset in flat] == list(range(len(flat)))
    assert (inverse.inverse(np.arange(len(flat))) == flat).all()
    assert inverse.is_bijective or not layout.is_bijective
    holes = sorted(set(range(layout.size)) - set(flat))
    if holes:
        with pytest.raises(LayoutError, match=f"^there is no element at offset {holes[0]} of .*"):
            inverse(holes[0])
    else:
        assert ((layout @ inverse).table.ravel() == np.arange(layout.size)).all()
        assert (layout.inverse.table.ravel() == np.argsort(flat)).all()


@each_family
@settings(max_examples=6, deadline=None)
@given(seed=SEEDS)
def test_a_layout_is_a_value(make: Callable[[Random], Known], seed: int) -> None:
    one, other = make(Random(seed)).layout, make(Random(seed)).layout
    assert one == other
    assert hash(one) == hash(other)
    assert eval(repr(one), {kind.__name__: kind for kind in (*CLASSES, Composed)}) == one
    assert len(str(one)) < 200 + len(str(getattr(one, "of", ""))) + len(str(getattr(one, "inner", "")))


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(1, 40), seed=st.integers(0, 1 << 64))
def test_shifts_of_rap_are_permutations(rows: int, columns: int, seed: int) -> None:
    shifts = RandomPermuteShift(rows * columns, columns, seed).shifts
    for group in range(rows):
        assert sorted(shifts[group * columns : (group + 1) * columns]) == list(range(columns))


def test_shifts_are_the_same_everywhere() -> None:
    """The first word that SplitMix64 gives for the seed 1234567 is published with its code, as those behind it."""
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert RandomShift(5, 1 << 40, 1234567).shifts == tuple(word % (1 << 40) for word in words)
    assert RandomPermuteShift(8, 8, 7).shifts == RandomPermuteShift(8, 8, 7).shifts != RandomPermuteShift(8, 8, 8).shifts


def test_shifts_of_ras_are_uniform() -> None:
    counts = np.bincount(RandomShift(32_000, 32, 1).shifts, minlength=32)
    assert ((counts - 1000) ** 2 / 1000).sum() < 62.5  # 31 degrees of freedom: a chance of 1 in 1500


def test_costs_are_what_a_kernel_computes() -> None:
    for layout, operations in (
        (RowMajor(32, 32), 2),
        (Padded(32, 32), 2),
        (XorSwizzle(32, 32), 3),
        (Swizzle(32, 32, 5, 0, 5), 4),  # row-major, then k ^ k >> 5
        (Skewed(32, 32), 4),
        (Morton(1, 32), 0),
    ):
        assert layout.cost == Cost(0, operations), layout
    assert RandomShift(32, 32).cost == Cost(1, 4)
    assert str(RandomShift(32, 32).cost) == "4 operations, 1 look-up"
    assert Cost(1, 0) > Cost(0, 99)


def test_the_source_is_what_a_person_would_write() -> None:
    assert XorSwizzle(32, 32).cuda_source("place") == (
        "__host__ __device__ inline int place(int i, int j)\n{\n    return (i << 5) + (j ^ i);\n}\n"
    )
    assert "long long big(long long i, long long j)" in RowMajor(1 << 20, 1 << 20).cuda_source("big")
    assert ShiftTable(2, 4, (1, 3)).python_source("f") == "def f(i, j):\n    return (i << 2) + ((j + f_table0[i]) & 3)\n"


def test_a_picture_has_the_bank_of_each_element() -> None:
    assert Swizzle(4, 8, 1, 1, 2).picture(element_bytes=4, banks=8).splitlines() == [
        "  | 0 1 2 3 4 5 6 7",
        "--+----------------",
        "0 | 0 1 2 3 4 5 6 7",
        "1 | 2 3 0 1 6 7 4 5",
        "2 | 0 1 2 3 4 5 6 7",
        "3 | 2 3 0 1 6 7 4 5",
    ]
    assert RowMajor(1, 4).picture(element_bytes=8).splitlines()[-1] == "0 | 0 2 4 6"
    assert RowMajor(100, 4).picture().splitlines()[-1] == "(of 100 rows and 4 columns)"


def test_text_of_layouts() -> None:
    assert str(Padded(32, 32)) == "Padded(32x32, pad=1)"
    assert str(Swizzle(32, 32, 3, 2, 3)) == "Swizzle<3, 2, 3> of 32x32"
    assert str(BitLinear.of_rows(32, 32, [19, 10, 13, 23, 8])) == "linear(19, 10, 13, 23, 8) of 32x32"
    assert str(Gather(10, 10, range(100))) == "Gather(10x10, indices=(0, 1, 2, 3, ... 100 numbers))"
    assert str(Skewed(2, 2) @ ColumnMajor(2, 2).inverse) == "Skewed(2x2, step=1) @ inverse of ColumnMajor(2x2)"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: RowMajor(0, 4), "rows of RowMajor must be at least 1, got 0"),
        (lambda: RowMajor(4, -1), "columns of RowMajor must be at least 1, got -1"),
        (lambda: RowMajor(4, 2.5), "columns of RowMajor must be an integer, got 2.5"),  # type: ignore[arg-type]
        (lambda: RowMajor(4, 4)(4, 0), "row 4 is outside 0..3 of RowMajor(4x4)"),
        (lambda: RowMajor(4, 4)(np.array([0, 1]), np.array([1, -2])), "column -2 is outside 0..3 of RowMajor(4x4)"),
        (lambda: RowMajor(4, 4)(16), "index 16 is outside 0..15 of RowMajor(4x4)"),
        (lambda: RowMajor(4, 4)(0.5, 1), "a row of RowMajor(4x4) must be an integer or an array of integers, got 0.5"),  # type: ignore[call-overload]
        (lambda: RowMajor(4, 4)(np.zeros(3)), "an index of RowMajor(4x4) must be an integer or an array of integers"),
        (lambda: RowMajor(1 << 13, 1 << 13).table, "has 67,108,864 elements; a table of its offsets may have at most 16,777,216"),
        (lambda: RowMajor(1 << 40, 1 << 40)(1, 1), "do not fit into 64 bits"),
        (lambda: Strided(4, 4, -1, 1), "the row stride must be at least 0, got -1"),
        (lambda: Padded(4, 4, -1), "the padding must be at least 0, got -1"),
        (lambda: Tiled(8, 8, 3, 4), "blocks of 3 rows do not divide a tile of 8 rows"),
        (lambda: Tiled(8, 8, 4, 0), "the columns of a block must be at least 1, got 0"),
        (lambda: Morton(8, 12), "the columns of a Morton order must be a power of two, got 12"),
        (lambda: XorSwizzle(8, 12), "the columns of an XOR swizzle must be a power of two, got 12"),
        (lambda: Swizzle(8, 8, 3, 0, 2), "Swizzle<3, 0, 2>: the shift must be an integer of magnitude 3 or more"),
        (lambda: Swizzle(3, 3, 1, 0, 1), "Swizzle<1, 0, 1> needs a tile with a multiple of 2 elements, got 3x3"),
        (lambda: ShiftTable(3, 4, (1, 2)), "2 shifts for 3 rows; give one for each"),
        (lambda: ShiftTable(2, 4, (1, 4)), "the shift of row 1 is 4; it must be in 0..3"),
        (lambda: RandomShift(2, 4, -1), "the seed must be at least 0, got -1"),
        (lambda: BitLinear(4, 4, (1, 2, 4)), "a bit-linear layout of 4x4 needs 4 images, one for each bit, got 3"),
        (lambda: BitLinear(4, 4, (1, 2, 4, 16)), "the image 16 of a bit must be in 0..15"),
        (lambda: BitLinear.of_rows(4, 4, (1, 2, 3)), "got 3 images for the 2 bits of a row number below 4"),
        (lambda: BitLinear.of_rows(4, 4, (1, 4)), "the image 4 of a bit of the row must be in 0..3"),
        (lambda: BitLinear.of_rows(6, 4, (1,)), "the rows of a bit-linear layout must be a power of two, got 6"),
        (lambda: Gather(2, 2, (0, 1, 1, 3)), "the indices of a gather must be a permutation, but 1 occurs twice"),
        (lambda: Gather(2, 2, (0, 1, 4, 3)), "index 4 of a gather is outside 0..3"),
        (lambda: Gather(2, 2, (0, 1, 2)), "a gather of 2x2 needs 4 indices, got 3"),
        (lambda: Gather(2, 2, np.zeros(4)), "the indices of a gather must be integers, got an array of float64"),
        (lambda: RowMajor(2, 2) @ RowMajor(3, 2), "RowMajor(3x2) has offsets up to 5, but RowMajor(2x2) takes indices up to 3"),
        (lambda: OfVectors(4, 4, RowMajor(4, 4), 2), "vectors of 2 in the layout RowMajor(4x4) do not form a tile of 4x4"),
        (lambda: Strided(2, 2, 1, 1).inverse, "Strided(2x2, row_stride=1, column_stride=1) has no inverse: (0, 1) and (1, 0) lie at"),
        (lambda: DiagonalStrip(2, 2).cuda_source("no name"), "'no name' is not a name for a function"),
        (lambda: read_spec("rip"), "unknown layout 'rip'; choose from row-major, "),
        (lambda: read_spec("pad(1, 2)"), "'pad(1, 2)': pad takes 0 or 1 numbers in parentheses, got 2"),
        (lambda: read_spec("swizzle"), "'swizzle': swizzle takes 3 numbers in parentheses, got 0"),
        (lambda: read_spec("linear()"), "'linear()': linear takes 1 number in parentheses, got 0"),
        (lambda: read_spec("pad(one)"), "'pad(one)': the numbers of a layout are integers with commas between them"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(act: Callable[[], object], message: str) -> None:
    with pytest.raises(LayoutError) as raised:
        act()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("row-major", RowMajor(32, 64)),
        ("pad", Padded(32, 64, 1)),
        ("pad(4)", Padded(32, 64, 4)),
        ("Swizzle<3, 2, 3>", Swizzle(32, 64, 3, 2, 3)),
        ("swizzle(2,0,-3)", Swizzle(32, 64, 2, 0, -3)),
        ("linear[19,10]", BitLinear.of_rows(32, 64, [19, 10])),
        ("rap(7)", RandomPermuteShift(32, 64, 7)),
        ("ras", RandomShift(32, 64, 5)),
        ("Tiled(8, 4)", Tiled(32, 64, 8, 4)),
    ],
)
def test_layouts_by_name(text: str, layout: Layout) -> None:
    assert read_spec(text).of(32, 64, seed=5) == layout
    assert read_spec(text).random == (text == "ras")
