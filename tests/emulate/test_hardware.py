"""What an H200 gave where the manual leaves a choice, or where it is easily read otherwise: one case by hand for each."""

from __future__ import annotations

import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.ptx import parse
from tests.emulate.elementwise import apply
from tests.emulate.running import HEAD, emulator

M0, INF, NAN = 1 << 31, 0x7F800000, 0x7FFFFFFF
LEAST, BELOW_ONE, ABOVE_ONE = 0x00800000, 0x3F7FFFFF, 0x3F800001
DNAN = 0x7FF8 << 48


@pytest.mark.parametrize(
    ("instruction", "operands", "expected"),
    [
        # Zeros are normal; only subnormal numbers, infinities and what is no number are not.
        ("testp.normal.f32 pd, wa", (0,), 1),
        ("testp.normal.f32 pd, wa", (M0,), 1),
        ("testp.normal.f32 pd, wa", (1,), 0),
        ("testp.normal.f32 pd, wa", (INF,), 0),
        ("testp.normal.f64 pd, la", (1 << 63,), 1),
        ("testp.normal.f64 pd, la", (1,), 0),
        # -0 >= 0 selects a; no number selects b. As an integer, -0 is negative.
        ("slct.s32.f32 wd, wa, wb, wc", (5, 6, M0), 5),
        ("slct.s32.f32 wd, wa, wb, wc", (5, 6, NAN), 6),
        ("slct.s32.f32 wd, wa, wb, wc", (5, 6, M0 | 1), 6),
        ("slct.ftz.s32.f32 wd, wa, wb, wc", (5, 6, M0 | 1), 5),
        ("slct.f32.s32 wd, wa, wb, wc", (5, 6, M0), 6),
        ("slct.s32.s32 wd, wa, wb, wc", (5, 6, M0), 6),
        # 2^-126 (1 - 2^-24) lies below the smallest normal number, to which it is rounded.
        ("mul.ftz.f32 wd, wa, wb", (LEAST, BELOW_ONE), 0),
        ("mul.ftz.f32 wd, wa, wb", (LEAST | M0, BELOW_ONE), M0),
        ("mul.f32 wd, wa, wb", (LEAST, BELOW_ONE), LEAST),
        ("mul.rm.ftz.f32 wd, wa, wb", (LEAST | M0, BELOW_ONE), M0),
        ("mul.ftz.f32 wd, wa, wb", (LEAST, 0x3F800000), LEAST),
        ("div.rp.ftz.f32 wd, wa, wb", (LEAST, ABOVE_ONE), 0),
        ("div.rp.f32 wd, wa, wb", (LEAST, ABOVE_ONE), LEAST),
        ("fma.rn.ftz.f32 wd, wa, wb, wc", (LEAST, LEAST, 0x80800000), 0x80800000),
        ("fma.rn.ftz.f32 wd, wa, wb, wc", (LEAST, 0x80800000, LEAST), LEAST),
        ("fma.rn.ftz.f32 wd, wa, wb, wc", (LEAST, BELOW_ONE, LEAST), LEAST + 0x00800000),
        ("mul.ftz.f16 hd, ha, hb", (0x0400, 0x3BFF), 0),
        ("mul.f16 hd, ha, hb", (0x0400, 0x3BFF), 0x0400),
        ("mul.ftz.f16 hd, ha, hb", (0x8400, 0x3BFF), 0x8000),
        ("mul.ftz.f16x2 wd, wa, wb", (0x04003C00, 0x3BFF4000), 0x00004000),
        # From f64 the upper bits of the payload and the sign stay, and the result is quiet.
        ("cvt.rn.f32.f64 wd, la", (DNAN,), 0x7FC00000),
        ("cvt.rz.f32.f64 wd, la", (DNAN | 1 << 63,), 0xFFC00000),
        ("cvt.rm.ftz.f32.f64 wd, la", (0x7FF0000000000001,), 0x7FC00000),
        ("cvt.rn.f32.f64 wd, la", ((1 << 63) - 1,), NAN),
        ("cvt.rn.f16.f64 hd, la", (DNAN,), 0x7E00),
        ("cvt.rp.f16.f64 hd, la", (0x7FF4 << 48,), 0x7F00),
        ("cvt.rz.bf16.f64 hd, la", (DNAN,), 0x7FC0),
        ("cvt.rn.f16.f32 hd, wa", (0x7FC00000,), 0x7FFF),
        # From bf16 all bits stay, but not with .ftz; between f32, .ftz makes no number the canonical one.
        ("cvt.f32.bf16 wd, ha", (0x7F81,), 0x7F810000),
        ("cvt.ftz.f32.bf16 wd, ha", (0x7F81,), NAN),
        ("cvt.ftz.f32.f32 wd, wa", (0x7FC00000,), NAN),
        ("cvt.f32.f32 wd, wa", (0x7FC00000,), 0x7FC00000),
        # Ties away from zero to tf32 cut no number short, and .satfinite takes the next lower one, as it does of infinity.
        ("cvt.rna.tf32.f32 wd, wa", (0x7FC00000,), 0x7FC00000),
        ("cvt.rna.tf32.f32 wd, wa", (NAN,), 0x7FFFE000),
        ("cvt.rna.satfinite.tf32.f32 wd, wa", (0x7FC00000,), 0x7FBFE000),
        ("cvt.rna.tf32.f32 wd, wa", (0x7F800001,), 0x7F800000),
        ("cvt.rna.satfinite.tf32.f32 wd, wa", (0x7F800001,), 0x7F7FE000),
        ("cvt.rna.satfinite.tf32.f32 wd, wa", (INF,), 0x7F7FE000),
        ("cvt.rn.tf32.f32 wd, wa", (0x7FC00000,), 0x7FFFE000),
        # Toward f16 subnormal f32 are not flushed, toward bf16 they are.
        ("cvt.rp.ftz.f16.f32 hd, wa", (1,), 1),
        ("cvt.rm.ftz.f16.f32 hd, wa", (M0 | 1,), 0x8001),
        ("cvt.rp.ftz.sat.f16.f32 hd, wa", (1,), 1),
        ("cvt.rp.ftz.bf16.f32 hd, wa", (1,), 0),
        # Divisors beyond 2^126 give 0, or no number of an infinity.
        ("div.approx.f32 wd, wa, wb", (0x3F800000, 0x7F000000), 0),
        ("div.approx.f32 wd, wa, wb", (0x3F800000, 0xFF000000), M0),
        ("div.approx.ftz.f32 wd, wa, wb", (INF, 0x7F7FFFFF), NAN),
        ("div.approx.f32 wd, wa, wb", (0x7E800000, 0x7E800000), 0x3F800000),
        # Only the upper word is read and written, and what is subnormal is zero.
        ("rcp.approx.ftz.f64 ld, la", (0x000FFFFFFFFFFFFF,), 0x7FF0 << 48),
        ("rcp.approx.ftz.f64 ld, la", (1 << 63 | 1,), 0xFFF0 << 48),
        ("rcp.approx.ftz.f64 ld, la", (0x40000000FFFFFFFF,), 0x3FE0 << 48),
        ("rcp.approx.ftz.f64 ld, la", (0x7FF0000000000001,), 0),
        ("rcp.approx.ftz.f64 ld, la", (0x4008 << 48,), 0x3FD5555500000000),
        ("rsqrt.approx.ftz.f64 ld, la", (1,), 0x7FF0 << 48),
        ("rsqrt.approx.ftz.f64 ld, la", (1 << 63 | 1,), 0xFFF0 << 48),
        ("rsqrt.approx.ftz.f64 ld, la", (0x40100000FFFFFFFF,), 0x3FE0 << 48),
    ],
)
def test_results_as_the_hardware_has_them(instruction: str, operands: tuple[int, ...], expected: int) -> None:
    assert [hex(found) for found in apply(instruction, *operands).tolist()] == [hex(expected)]


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
