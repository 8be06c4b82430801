"""What an H200 gave where the manual leaves a choice, or where it is easily read otherwise. Single instructions of this kind stand in
`tests/cases/instructions/hardware.txt`."""

from __future__ import annotations

import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.ptx import parse
from tests.emulate.running import HEAD, emulator

NAN, LEAST = 0x7FFFFFFF, 0x00800000


@pytest.mark.parametrize(("space", "flushes"), [("global", True), ("shared", False)])
@pytest.mark.parametrize("generic", [False, True])
def test_sums_of_f32_are_flushed_in_global_memory_only(space: str, flushes: bool, generic: bool) -> None:
    named = "" if generic else f".{space}"
    turn = f"cvta.{space}.u64 at, at;" if generic else ""
    text = f"""{HEAD}
.global .align 4 .b8 g[16];
.visible .entry k(.param .u64 out) {{
    .reg .b64 at, to; .reg .b32 v;
    .shared .align 4 .b8 s[16];
    ld.param.u64 to, [out];
    mov.u64 at, {space[0]}; {turn}
    st{named}.b32 [at], 3; st{named}.b32 [at+4], 0x00800000; st{named}.b32 [at+8], 0x3f800000;
    red{named}.add.f32 [at], 0f00000004; red{named}.add.f32 [at+4], 0f80000001; red{named}.add.f32 [at+8], 0f7FC00000;
    ld{named}.b32 v, [at]; st.global.b32 [to], v;
    ld{named}.b32 v, [at+4]; st.global.b32 [to+4], v;
    ld{named}.b32 v, [at+8]; st.global.b32 [to+8], v;
    ret;
}}
"""
    target = emulator()
    out = target.zeros(3, "uint32")
    target.load(parse(text, "k.ptx"))["k"][1, 1](out)
    assert out.numpy().tolist() == ([0, LEAST, NAN] if flushes else [7, LEAST - 1, NAN])


def test_lanes_with_other_masks_vote_among_themselves() -> None:
    """As the tiles of cooperative groups do: one instruction, executed by all lanes at once, with a mask for each half of the warp."""
    source = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry halves(.param .u64 out)
{
    .reg .pred %p, %low, %all;
    .reg .b32 %t, %m, %b, %odd;
    .reg .b64 %o, %at;
    ld.param.u64 %o, [out];
    mov.u32 %t, %tid.x;
    setp.lt.u32 %low, %t, 16;
    selp.b32 %m, 0x0000ffff, 0xffff0000, %low;
    and.b32 %odd, %t, 1;
    setp.ne.u32 %p, %odd, 0;
    vote.sync.ballot.b32 %b, %p, %m;
    vote.sync.all.pred %all, %low, %m;
    @%all or.b32 %b, %b, 1;
    mul.wide.u32 %at, %t, 4;
    add.u64 %at, %at, %o;
    st.global.u32 [%at], %b;
    ret;
}
"""
    target = Emulator(load("h200"))
    out = target.zeros(32, "u4")
    target.load(parse(source))["halves"][1, 32](out)
    assert out.numpy().tolist() == [0xAAAB] * 16 + [0xAAAA0000] * 16
