"""Copies of strided elements as copies of rows, on plain bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.launch.bound_steps import BoundCopy, End


def copy_of(destination: Any, source: Any) -> BoundCopy:
    """Between two arrays of NumPy of one shape, wherever they lie."""
    ends = [End(one.__array_interface__["data"][0], one.strides) for one in (destination, source)]
    return BoundCopy(*ends, destination.shape, destination.itemsize)


def done_by_rows(copy: BoundCopy, memory: np.ndarray[Any, Any]) -> int:
    """Do the copy on the bytes of one block of memory, as a driver would; how many copies of rows it took."""
    base = memory.__array_interface__["data"][0]
    found = list(copy.rows())
    for rows in found:
        assert rows.destination_pitch >= rows.width <= rows.source_pitch
        for row in range(rows.height):
            to, of = rows.destination - base + row * rows.destination_pitch, rows.source - base + row * rows.source_pitch
            assert min(to, of) >= 0
            memory[to : to + rows.width] = memory[of : of + rows.width]
    return len(found)


@st.composite
def parts(draw: st.DrawFn, shape: tuple[int, ...], array: Any) -> Any:
    """A part of an array with a given shape: axes in any order, steps forwards or backwards."""
    order = draw(st.permutations(range(3)))
    cut = []
    for axis in range(3):
        extent = shape[order.index(axis)]
        step = draw(st.sampled_from([1, 2]))
        start = draw(st.integers(0, array.shape[axis] - (extent - 1) * step - 1))
        part = slice(start, start + (extent - 1) * step + 1, step)
        cut.append(part)
    found = array[tuple(cut)].transpose(order)
    flips = tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in range(3))
    return found[flips]


@given(st.data())
def test_rows_copy_what_numpy_copies(data: st.DataObject) -> None:
    memory = np.arange(2 * 7 * 7 * 7 * 2, dtype=np.int64).astype(np.uint8)
    first, second = memory.view("u2").reshape(2, 7, 7, 7)
    shape = data.draw(st.tuples(*[st.integers(1, 4)] * 3))
    to, of = data.draw(parts(shape, first)), data.draw(parts(shape, second))
    expected = memory.copy()
    place = np.lib.stride_tricks.as_strided  # the same part of another block
    offset = to.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    place(expected[offset : offset + 2].view("u2"), to.shape, to.strides)[...] = of
    done_by_rows(copy_of(to, of), memory)
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize(
    ("to", "of", "copies"),
    [
        (np.s_[:], np.s_[:], 1),
        (np.s_[:, ::2], np.s_[:, ::2], 1),  # one element a row, a pitch of two
        (np.s_[2:4, 1:5], np.s_[1:3, 0:4], 1),
        (np.s_[::-1], np.s_[::-1], 1),
        (np.s_[::-1], np.s_[:], 6),
        (np.s_[0:0], np.s_[0:0], 0),
        (np.s_[:3, :, None], np.s_[3:, :, None], 1),
    ],
)
def test_as_few_copies_are_made_as_the_strides_allow(to: Any, of: Any, copies: int) -> None:
    memory = np.zeros(2 * 36 * 4, np.uint8)
    first, second = memory.view("f4").reshape(2, 6, 6)
    assert done_by_rows(copy_of(first[to], second[of]), memory) == copies
