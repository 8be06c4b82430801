"""Stages of shared memory on a device: the size of a launch reaches its kernel, and the records are the same either way."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from memlane.driver import Device
from memlane.measure import trace
from memlane.ptx import parse
from memlane.record import Trace

pytestmark = pytest.mark.gpu

SIZES = """
.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 4 .b8 own[];
.visible .entry sizes(.param .u64 p)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<8>;
    .reg .pred %q;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %dynamic_smem_size;
    mov.u32 %r2, own;
    mov.u32 %r3, %tid.x;
    shl.b32 %r4, %r3, 2;
    add.u32 %r4, %r4, %r2;
    st.shared.u32 [%r4], %r1;
    ld.shared.u32 %r5, [%r4];
    setp.lt.u32 %q, %r3, 40;
    @%q ld.shared.u32 %r6, [%r4];
    @!%q mov.u32 %r6, 0;
    bar.sync 0;
    st.global.u32 [%rd1], %r5;
    st.global.u32 [%rd1+4], %r2;
    ret;
}
"""


@pytest.mark.parametrize("size", [384, 388, 392, 396, 400, 1000, 4104, 50008])
def test_a_kernel_reads_the_size_that_its_launch_asked_for(gpu: Device, size: int) -> None:
    out = gpu.zeros(8, np.uint32)
    gpu.load(parse(SIZES, "sizes.ptx"))["sizes"][1, 96, None, size](out)
    assert int(out.numpy()[0]) == size


def rows(made: Trace) -> Counter[tuple[object, ...]]:
    names = ("site", "block", "warp", "active_mask", "execution")
    return Counter(zip(*(made.table[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("every", [1, 5])
def test_the_same_records_through_stages(gpu: Device, every: int) -> None:
    out, loaded = gpu.zeros(8, np.uint32), gpu.load(parse(SIZES, "sizes.ptx"))
    made = {}
    for staging in ("global", "shared"):
        made[staging] = trace(loaded["sizes"][700, 96, None, 400], out, staging=staging, every=every)
        assert made[staging].lost == 0
        assert (made[staging].table["end"].to_numpy() > made[staging].table["start"].to_numpy()).all()
    own = int(out.numpy()[1])
    loaded["sizes"][1, 96, None, 400](out)
    assert int(out.numpy()[1]) == own
    found = made["shared"].launches[0].staging
    assert found is not None
    assert found.memory == "shared"
    assert rows(made["global"]) == rows(made["shared"])
    if every == 1:
        assert made["shared"].table.num_rows == 700 * (3 * 4 + 2)
