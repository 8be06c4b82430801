"""Accesses that a warp executes at most once between two barriers."""

from __future__ import annotations

import pytest

from memlane.instrument import site_table
from tests.instrument.kernels import kernel

LOOP = """
    .reg .u32 %i, %n; .reg .f32 %f; .reg .u64 %a; .reg .pred %q, %r;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mov.u32 %n, 8; setp.lt.u32 %r, %i, 4;
    st.global.u32 [%a], %i;
again:
    FIRST
    ld.global.f32 %f, [%a+8];
    SECOND
    sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0;
    @%q bra again;
    st.global.f32 [%a+4], %f; ret;
"""


@pytest.mark.parametrize(
    ("first", "second", "once"),
    [
        ("bar.sync 0;", "", True),
        ("", "barrier.sync.aligned 0;", True),
        ("", "", False),
        ("", "bar.warp.sync -1;", False),
        ("", "bar.arrive 1, 64;", False),
        ("@%r bra skip; bar.sync 0; skip:", "", False),  # a way around the barrier
        ("inner: add.u32 %i, %i, 1; setp.lt.u32 %r, %i, 9; @%r bra inner;", "bar.sync 0;", True),  # the loop inside is another one
    ],
)
def test_every_way_back_passes_a_barrier(first: str, second: str, once: bool) -> None:
    sites = site_table(kernel(LOOP.replace("FIRST", first).replace("SECOND", second))).sites
    assert [one.once_between_barriers for one in sites] == [True, once, True]
