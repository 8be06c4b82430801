"""Layouts as code: CUDA C++ and Numba, run on the emulator, against the second definition of each family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.layout import Morton, RandomPermuteShift, RowMajor, XorSwizzle
from memlane.layout.program import Placement
from tests.layout.families import Known, a_few
from tests.layout.roads import cuda_offsets, numba_offsets


@pytest.fixture(scope="module")
def known() -> list[Known]:
    return a_few()


def compare(known: Sequence[Known], found: Sequence[np.ndarray]) -> None:
    assert [str(one.layout) for one, offsets in zip(known, found, strict=True) if not np.array_equal(one.table, offsets)] == []


@settings(max_examples=2, deadline=None, phases=(Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 1 << 30))
def test_cuda_functions_give_the_same_offsets(seed: int) -> None:
    known = a_few([seed])
    compare(known, cuda_offsets(ml.target("emulator:h200"), [one.layout for one in known]))


def test_cuda_functions_of_the_index_do_too(known: list[Known]) -> None:
    compare(known, cuda_offsets(ml.target("emulator:h200"), [one.layout for one in known], by_index=True))


@pytest.mark.slow
@pytest.mark.numba
def test_numba_functions_give_the_same_offsets(known: list[Known]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    some = known[::3]
    assert {type(one.layout) for one in some} == {type(one.layout) for one in known}
    compare(some, numba_offsets(ml.target("emulator:h200"), [one.layout for one in some]))


@pytest.mark.parametrize("tables", ["constant", "argument"])
def test_tables_lie_where_they_are_wanted(tables: Placement) -> None:
    layout = RandomPermuteShift(32, 32, 3)
    (shifts,) = layout.lookup_tables()
    assert tuple(shifts) == layout.shifts
    place = "place(i, j, table)" if tables == "argument" else "place(i, j)"
    source = (
        layout.cuda_source("place", tables=tables) + 'extern "C" __global__ void fill(int* out, const int* shifts) {\n'
        "  int i = threadIdx.x, j = blockIdx.x;\n  __shared__ int table[32];\n  table[i] = shifts[i];\n  __syncthreads();\n"
        f"  out[i * 32 + j] = {place};\n}}\n"
    )
    target = ml.target("emulator:h200")
    out = target.empty((32, 32), "i4")
    target.load(ml.cuda(source))["fill"][32, 32](out, target.array(shifts.astype(np.int32)))
    assert (out.numpy() == layout.table).all()
    assert ("__constant__ int place_table0[32] = {" in source) == (tables == "constant")


@pytest.mark.numba
def test_a_kernel_of_numba_calls_a_layout() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from numba import cuda

    layout = XorSwizzle(32, 32) @ RandomPermuteShift(32, 32, 3)
    place = layout.numba()

    def fill(out):  # type: ignore[no-untyped-def]
        i, j = cuda.threadIdx.x, cuda.blockIdx.x
        out[place(i, j)] = i * 32 + j

    target = ml.target("emulator:h200")
    out = target.empty((1024,), "i4")
    target.load(ml.numba(fill, "void(int32[::1])"))["fill"][32, 32](out)
    assert (out.numpy() == layout.inverse(np.arange(1024))).all()


def test_wide_offsets_are_computed_in_64_bits() -> None:
    for layout, at in ((RowMajor(1 << 20, 1 << 20), (3 << 18, 5)), (Morton(1 << 18, 1 << 18), ((1 << 18) - 1, 1 << 17))):
        source = (
            layout.cuda_source("place")
            + f'extern "C" __global__ void one(long long* out) {{ out[threadIdx.x] = place({at[0]} + threadIdx.x, {at[1]}); }}'
        )
        target = ml.target("emulator:h200")
        out = target.empty((1,), "i8")
        target.load(ml.cuda(source))["one"][1, 1](out)
        assert out.numpy()[0] == layout(*at) > 1 << 31
