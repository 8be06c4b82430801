"""Which accesses depend on the order in which threads run."""

from __future__ import annotations

import pytest

from memlane.ptx import order_dependent_accesses, parse

HEAD = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 slot, .param .u64 out)
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [slot];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
"""
TICKET = """
    atom.global.add.u32 %r2, [%rd1], 1;
    mad.wide.u32 %rd3, %r2, 4, %rd2;
    st.global.u32 [%rd3], %r1;
    st.global.u32 [%rd2], %r2;
"""
"""The address of the first store is the ticket that was drawn; the second stores it at a fixed place."""
SPIN = """
AGAIN:
    ld.volatile.global.u32 %r2, [%rd1];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra AGAIN;
    st.global.u32 [%rd2], %r1;
"""
LAST_BLOCK = """
    atom.global.inc.u32 %r2, [%rd1], 63;
    setp.ne.u32 %p1, %r2, 63;
    @%p1 bra DONE;
    mov.u32 %r3, 0;
    ld.global.u32 %r4, [%rd2];
DONE:
    st.global.u32 [%rd2+8], %r1;
"""
CHOSEN = """
    atom.global.add.u32 %r2, [%rd1], 1;
    setp.eq.u32 %p1, %r2, 0;
    mov.u32 %r3, 1;
    @%p1 bra ON;
    mov.u32 %r3, 2;
ON:
    mad.wide.u32 %rd3, %r3, 4, %rd2;
    st.global.u32 [%rd3], %r1;
"""
"""What a branch decides is an address after the lanes have met again."""
SUM = """
    red.global.add.u32 [%rd1], %r1;
    ld.global.u32 %r2, [%rd1];
    mad.wide.u32 %rd3, %r1, 4, %rd2;
    st.global.u32 [%rd3], %r2;
"""
GUARDED = """
    atom.shared.exch.b32 %r2, [0], %r1;
    setp.eq.u32 %p1, %r2, 7;
    @%p1 st.global.u32 [%rd2], %r1;
    @%p1 ret;
    ld.global.u32 %r4, [%rd2+4];
"""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (TICKET, ["st.global.u32 [%rd3], %r1;"]),
        (SPIN, ["ld.volatile.global.u32 %r2, [%rd1];"]),
        (LAST_BLOCK, ["ld.global.u32 %r4, [%rd2];"]),
        (CHOSEN, ["st.global.u32 [%rd3], %r1;"]),
        (SUM, []),
        (GUARDED, ["@%p1 st.global.u32 [%rd2], %r1;", "ld.global.u32 %r4, [%rd2+4];"]),
    ],
    ids=["ticket", "spin", "last block", "chosen", "sum", "guarded"],
)
def test_what_follows_from_an_atomic_or_a_volatile_load(body: str, wanted: list[str]) -> None:
    text = f"{HEAD}{body}    ret;\n}}\n"
    kernel = parse(text, "k.ptx").kernels["k"]
    lines = text.splitlines()
    found = [one.span for index, one in enumerate(kernel.instructions()) if index in order_dependent_accesses(kernel)]
    assert [lines[span.line - 1].strip() for span in found if span is not None] == wanted
