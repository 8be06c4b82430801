"""Accesses that a loop repeats at the same addresses."""

from __future__ import annotations

import pytest

from memlane.compile import cuda
from memlane.instrument import site_table
from tests.instrument.kernels import kernel

SOURCE = """
__global__ void k(int* out, const int* in, int n, int turns) {
    int sum = 0, t = threadIdx.x, kept = t;
    for (int turn = 0; turn < turns; turn++) {
        BODY
    }
    out[t] = sum;
}
"""
INNER = "for (int k = t; k < n; k += 32) sum += in[ADDRESS] ^ turn;"


@pytest.mark.parametrize(
    ("body", "repeats"),
    [
        (INNER.replace("ADDRESS", "k"), True),
        (INNER.replace("ADDRESS", "k * 3 + n"), True),
        (INNER.replace("ADDRESS", "turn * n + k"), False),
        (INNER.replace("ADDRESS", "k ^ turn"), False),
        ("for (int k = 0; k < n; k++) { sum += in[kept] ^ turn; kept += 32; }", False),  # counts on in the next turn
        (INNER.replace("ADDRESS", "in[k + n]"), False),  # the outer load; the one of the index repeats
        ("sum += in[turn];", False),  # no inner loop
    ],
)
def test_only_what_begins_anew_in_each_turn_repeats(body: str, repeats: bool) -> None:
    loads = [one for one in site_table(cuda(SOURCE.replace("BODY", body))).sites if one.kind == "load"]
    dependent = [one for one in loads if one.address_loads] or loads
    assert dependent
    assert {one.address_repeats for one in dependent} == {repeats}


def test_a_long_chain_of_operations_on_one_register_is_soon_looked_through() -> None:
    """Each reads what any of the others may have written: half a million ways from one to the next."""
    chain = "mad.lo.u32 %i, %i, %i, 7;" * 700
    found = site_table(
        kernel(f"""
        .reg .u32 %i, %v; .reg .u64 %a, %o; .reg .pred %q;
        mov.u32 %i, %tid.x;
        again: mul.wide.u32 %o, %i, 4; ld.param.u64 %a, [p]; add.u64 %a, %a, %o; ld.global.u32 %v, [%a]; {chain}
        setp.lt.u32 %q, %i, 5; @%q bra again; st.global.u32 [%a], %v; ret;""")
    )
    assert {one.address_repeats for one in found.sites if one.kind == "load"} == {False}


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
