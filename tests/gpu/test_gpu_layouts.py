"""Layouts on the device: their code gives the offsets of the second definition, and tiles laid out by them keep what was stored."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.driver import Device
from memlane.errors import MissingDependency
from memlane.launch import Target
from memlane.layout import BitLinear, Layout, Padded, RandomPermuteShift, RandomShift, RowMajor, Swizzle, XorSwizzle, count, pattern
from tests.layout.families import a_few
from tests.layout.roads import cuda_offsets, numba_offsets

pytestmark = pytest.mark.gpu

TILES = (
    RowMajor(32, 32), Padded(32, 32), XorSwizzle(32, 32), Swizzle(32, 32, 5, 0, 5), RandomShift(32, 32, 1), RandomPermuteShift(32, 32, 1),
    BitLinear.of_rows(32, 32, [19, 10, 13, 23, 8]), BitLinear.of_rows(32, 32, [9, 19, 6, 12, 24]),
)  # fmt: skip
TRANSPOSE = """
extern "C" __global__ void transpose(float* out, const float* in)
{{
    __shared__ float tile[{size}];
    tile[place(threadIdx.y, threadIdx.x)] = in[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[place(threadIdx.x, threadIdx.y)];
}}
"""


@pytest.mark.parametrize("by_index", [False, True])
def test_cuda_functions_give_the_same_offsets(gpu: Device, by_index: bool) -> None:
    known = a_few()
    found = cuda_offsets(gpu, [one.layout for one in known], by_index=by_index)
    assert [str(one.layout) for one, offsets in zip(known, found, strict=True) if not np.array_equal(one.table, offsets)] == []


@pytest.mark.numba
def test_numba_functions_give_the_same_offsets(gpu: Device) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    known = a_few()
    # One module each: Numba keeps tables in constant memory, where all of them together have no room.
    try:
        found = [offsets for one in known for offsets in numba_offsets(gpu, [one.layout])]
    except MissingDependency as missing:  # numba-cuda is there, beside a NumPy that it does not know
        pytest.skip(str(missing))
    assert [str(one.layout) for one, offsets in zip(known, found, strict=True) if not np.array_equal(one.table, offsets)] == []


@pytest.mark.parametrize("layout", TILES, ids=str)
def test_a_tile_of_shared_memory_is_transposed(gpu: Device, emulator: Target, layout: Layout) -> None:
    """On both the same numbers, and the wavefronts that the layout's arithmetic says."""
    source = layout.cuda_source("place") + TRANSPOSE.format(size=layout.size)
    given = np.random.default_rng(3).standard_normal((32, 32)).astype(np.float32)
    expected = [
        count(layout, pattern("column", 32, 32), gpu.chip, 4).mean,
        count(layout, pattern("row", 32, 32), gpu.chip, 4, "store").mean,
    ]
    for target in (gpu, emulator):
        out = target.empty((32, 32), "f4")
        kernel = target.load(ml.cuda(source))["transpose"][1, (32, 32)]
        counts = ml.count(kernel, out, target.array(given))
        assert np.array_equal(out.numpy(), given.T)
        found = {site.site.op.partition(".")[0]: site.wavefronts / site.requests for site in counts.sites if ".shared" in site.site.op}
        assert [found["ld"], found["st"]] == expected
