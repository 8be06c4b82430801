"""Layouts of arrays: each family against a second definition by NumPy, on every road."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import memlane as ml
from memlane.errors import LayoutError
from memlane.layout import (
    ArrayLayout,
    Blocked,
    DiagonalStrip,
    Fields,
    OfTile,
    PaddedRows,
    Permuted,
    RandomPermuteShift,
    Selection,
    array_layout,
    column_major,
    row_major,
    sources,
)
from memlane.layout.array_spec import words_of_structure


def permuted(shape: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    """Where each element lies, by NumPy's own transposition."""
    stored = np.arange(np.prod(shape)).reshape([shape[axis] for axis in order])
    return stored.transpose(np.argsort(order))


def blocked(shape: tuple[int, ...], block: tuple[int, ...]) -> np.ndarray:
    counts = [-(-n // b) for n, b in zip(shape, block, strict=True)]
    stored = np.arange(np.prod(counts) * np.prod(block)).reshape([*counts, *block])
    axes = [axis for pair in zip(range(len(shape)), range(len(shape), 2 * len(shape)), strict=True) for axis in pair]
    whole = stored.transpose(axes).reshape([c * b for c, b in zip(counts, block, strict=True)])
    return whole[tuple(slice(n) for n in shape)]


def fields(count: int, widths: tuple[int, ...]) -> np.ndarray:
    parts, first = [], 0
    for width in widths:
        parts.append(first + np.arange(count * width).reshape(count, width))
        first += count * width
    return np.concatenate(parts, axis=1)


def diagonals(rows: int, columns: int) -> np.ndarray:
    places = sorted((i + j, i, j) for i in range(rows) for j in range(columns))
    table = np.empty((rows, columns), int)
    for offset, (_, i, j) in enumerate(places):
        table[i, j] = offset
    return table


SHAPES = [(7,), (5, 9), (2, 3, 4), (3, 1, 5, 2)]
CASES = [
    *((Permuted(shape, order), permuted(shape, order)) for shape in SHAPES for order in permutations(range(len(shape)))),
    *((Blocked(shape, (2, 3, 1, 4)[: len(shape)]), blocked(shape, (2, 3, 1, 4)[: len(shape)])) for shape in SHAPES),
    (PaddedRows((3, 4, 5), 2), np.arange(3 * 4 * 7).reshape(3, 4, 7)[..., :5]),
    (Fields((6, 4), (2, 1, 1)), fields(6, (2, 1, 1))),
    (Fields((5, 6), (2, 2, 2)), fields(5, (2, 2, 2))),
    (OfTile((5, 7), DiagonalStrip(5, 7)), diagonals(5, 7)),
    (OfTile((4, 8), RandomPermuteShift(4, 8, 3)), RandomPermuteShift(4, 8, 3).table),
    (PaddedRows((9, 5), 3) @ column_major((5, 9)), np.arange(9 * 8).reshape(9, 8)[:, :5].T),
]


@pytest.mark.parametrize(("layout", "expected"), CASES, ids=lambda one: str(one) if isinstance(one, ArrayLayout) else "")
def test_a_layout_is_what_numpy_says_and_so_is_its_inverse(layout: ArrayLayout, expected: np.ndarray) -> None:
    assert np.array_equal(layout.table, expected)
    last = tuple(n - 1 for n in layout.shape)
    assert layout(*last) == expected[last]
    index = np.indices(layout.shape)
    assert np.array_equal(layout.inverse(expected), index)
    assert layout.inverse(int(expected[last])) == last
    free = sorted(set(range(layout.size)) - set(expected.ravel().tolist()))
    for hole in free[:3]:
        with pytest.raises(LayoutError, match=f"there is no element at offset {hole} of .*"):
            layout.inverse(hole)
    assert np.prod(layout.storage_shape) == layout.size


def test_generated_functions_of_several_arrays_agree_with_the_table() -> None:
    layouts = {f"place{number}": layout for number, (layout, _) in enumerate(CASES) if len(layout.shape) == 3}
    calls = "".join(f"    if (which == {number}) out[t] = {name}(i, j, k);\n" for number, name in enumerate(layouts))
    shape = {layout.shape for layout in layouts.values()}
    code = sources(layouts) + (
        'extern "C" __global__ void look(long long* out, int which, int a, int b, int c) {\n    int t = threadIdx.x;\n'
        "    int i = t / (b * c), j = t / c % b, k = t % c;\n    if (t >= a * b * c) return;\n" + calls + "}\n"
    )
    assert len(shape) > 1
    target = ml.target("emulator:h200")
    look = target.load(ml.cuda(code))["look"]
    for number, layout in enumerate(layouts.values()):
        out = target.zeros(layout.count, "i8")
        look[1, 96](out, number, *layout.shape)
        assert np.array_equal(out.numpy().reshape(layout.shape), layout.table)


def test_offsets_beyond_32_bits_are_computed_in_64() -> None:
    large, small = column_major((1 << 17, 1 << 17)), column_major((1 << 10, 1 << 10))
    assert large(1, 3) == 3 * (1 << 17) + 1
    assert large.inverse(large((1 << 17) - 1, 70000)) == ((1 << 17) - 1, 70000)
    assert "long long place" in large.cuda_source("place")
    assert "inline int place" in small.cuda_source("place")
    assert "to(tl.int64)" in large.triton_source("place")
    assert "int64" not in small.triton_source("place")


def test_the_function_for_numba_agrees() -> None:
    layout = Fields((6, 4), (2, 1, 1))
    scope: dict[str, Any] = {"np": np}
    exec(layout.numba_source("place").replace("@cuda.jit(device=True)\n", ""), scope)  # what a user pastes, as plain Python
    assert [[scope["place"](i, j) for j in range(4)] for i in range(6)] == layout.table.tolist()


def test_a_table_has_no_form_for_triton() -> None:
    with pytest.raises(LayoutError, match="looks up a table, which a Triton kernel has to load itself"):
        Fields((6, 4), (2, 1, 1)).triton_source("place")


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("row-major", (2, 3), row_major((2, 3))),
        ("column-major", (2, 3, 4), column_major((2, 3, 4))),
        ("permuted(2, 0, 1)", (2, 3, 4), Permuted((2, 3, 4), (2, 0, 1))),
        ("pad(3)", (2, 3), PaddedRows((2, 3), 3)),
        ("tiled(8, 4)", (20, 20), Blocked((20, 20), (8, 4))),
        ("diagonal", (4, 5), OfTile((4, 5), DiagonalStrip(4, 5))),
        ("soa", (100, 3), column_major((100, 3))),
    ],
)
def test_layouts_have_names(text: str, shape: tuple[int, ...], expected: ArrayLayout) -> None:
    assert array_layout(text, shape) == expected


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: array_layout("spiral", (2, 2)), "unknown array layout 'spiral'; choose from row-major, column-major"),
        (lambda: array_layout("pad(1, 2)", (2, 2)), "pad takes 1 number for an array of 2 dimensions, got 2"),
        (lambda: array_layout("diagonal", (2, 2, 2)), "the diagonal strip is for arrays of 2 dimensions, not 3"),
        (lambda: array_layout(column_major((2, 3)), (3, 2)), r"is a layout for an array of shape \(2, 3\), not \(3, 2\)"),
        (lambda: array_layout("row-major", (2, 2, 2, 2, 2)), "for arrays of 1 to 4 dimensions, not 5"),
        (lambda: Permuted((2, 3), (0, 0)), r"names each of 0..1 once, not \(0, 0\)"),
        (lambda: Blocked((2, 3), (2,)), "the block has 1 axis, but the array has 2"),
        (lambda: Fields((2, 3), (2, 2)), r"need an array of shape \(structures, 4\), not \(2, 3\)"),
        (lambda: row_major((2, 3)) @ row_major((3, 3)), "has offsets up to 8, but .* has 6 elements"),
        (lambda: row_major((2, 3))(1), "takes 2 coordinates, got 1"),
        (lambda: row_major((2, 3))(1, 3), "coordinate 1 of .* is 3, outside 0..2"),
        (lambda: Selection(np.array([0.5]), 3), "integers of 32 or 64 bits, not an array of float64"),
        (lambda: Selection(np.array([0, 7, 9]), 3).check(), "index 7 at position 1 of the gather is outside 0..2"),
        (lambda: Selection(np.array([0, 1, 0]), 2).inverse, "has no inverse: row 0 goes to positions 0 and 2"),
        (lambda: Selection(np.array([0, 1]), 3).inverse, "has no inverse: row 2 goes to no position"),
        (lambda: words_of_structure("f4"), "have no fields to store"),
    ],
)
def test_wrong_layouts_say_so(make: object, sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        make()  # type: ignore[operator]


def test_a_permuting_gather_has_an_inverse() -> None:
    order = np.random.default_rng(1).permutation(50)
    assert np.array_equal(order[Selection(order, 50).inverse.indices], np.arange(50))


def test_words_of_a_structure() -> None:
    assert words_of_structure([("x", "f4"), ("y", "f4"), ("z", "f4")]) == (np.dtype("V4"), (1, 1, 1))
    assert words_of_structure(np.dtype([("m", "f8"), ("k", "i4"), ("c", "u1")], align=True)) == (np.dtype("V1"), (8, 4, 1, 3))
    assert words_of_structure([("r", "f4", 3), ("q", "f8", 2)]) == (np.dtype("V4"), (3, 4))
