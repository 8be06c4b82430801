"""Atomics on vectors and on 16 bytes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess
from tests.emulate.checking import check, kinds
from tests.emulate.combined import COMBINED
from tests.emulate.running import emulator
from tests.emulate.wide_atomics import (
    BULK,
    BULK_BYTES,
    THREADS,
    VECTORS,
    as_float,
    bulk_program,
    numbers,
    run_bulk,
    run_vector,
    run_wide,
    vector_program,
    words_of,
)


@pytest.mark.parametrize("threads", [1, 2])
def test_each_element_of_a_vector_is_updated(threads: int) -> None:
    target = emulator(threads=threads)
    for names in VECTORS if threads == 1 else VECTORS[1:3]:
        operation, _, kind = words_of(names[0])
        before, values, after, old = (as_float(kind, one) for one in run_vector(target, *names))
        both = COMBINED[operation](COMBINED[operation](before, values[::2]), values[1::2])
        assert np.array_equal(after, both), names
        # the other thread of the pair may come first
        first, second = old == before, old == COMBINED[operation](before, values[1::2])
        assert (first | second).all(), names


@pytest.mark.parametrize("threads", [1, 2])
def test_sixteen_bytes_are_compared_and_exchanged_at_once(threads: int) -> None:
    before, given, after, old = run_wide(emulator(threads=threads))
    swapped = np.where((given[:, 0] == before).all(axis=1)[:, None], given[:, 1], before)
    assert np.array_equal(old[:, 0], before)
    assert np.array_equal(old[:, 1], swapped)
    assert np.array_equal(after, given[:, 0])


def test_a_vector_lies_at_a_multiple_of_its_bytes() -> None:
    target = emulator()
    array = target.zeros(4 * THREADS, np.float32)
    kernel = target.load(vector_program(*VECTORS[1]))["k"]
    from_four = type(array)(target, array.address + 4, (2,), array.dtype, array)
    with pytest.raises(BadAccess, match=r"updated 16 bytes at 0x[0-9a-f]+4 .* which is not a multiple of 16"):
        kernel[1, THREADS](from_four, array, target.zeros(4 * THREADS, np.float32))


def test_the_checker_takes_them_for_atomics() -> None:
    target = emulator()
    array, values = target.array(numbers("f32", 2 * THREADS, 1)), target.array(numbers("f32", 4 * THREADS, 2))
    kernel = target.load(vector_program(*VECTORS[1]))["k"]
    assert check(kernel[1, THREADS], array, values, target.zeros(4 * THREADS, np.float32)) == ()


@pytest.mark.parametrize("threads", [1, 3])
def test_bulk_reductions_update_each_element(threads: int) -> None:
    """In the order of the blocks, which matters to `inc` and `dec`: so these have one thread alone."""
    target = emulator(threads=threads)
    for operation, kind in BULK if threads == 1 else BULK[:3]:
        before, values, after = run_bulk(target, operation, kind)
        is_short = kind == "bf16"
        wanted = as_float(kind, before) if is_short else before
        for row in values:
            wanted = COMBINED[operation.removesuffix(".noftz")](wanted, as_float(kind, row) if is_short else row)
        assert np.array_equal(as_float(kind, after) if is_short else after, wanted), (operation, kind)


def test_the_checker_lets_blocks_reduce_into_the_same_place() -> None:
    target = emulator()
    array, values = target.zeros(BULK_BYTES, np.uint8), target.zeros(3 * BULK_BYTES, np.uint8)
    kernel = target.load(bulk_program("add", "u32"))["k"]
    assert check(kernel[3, BULK_BYTES // 4], array, values) == ()
    short = target.zeros(BULK_BYTES - 16, np.uint8)
    assert kinds(check(kernel[1, BULK_BYTES // 4], short, values)) == {("out of bounds", "global")}
