"""The rules that a module keeps: what each of them refuses, where it points, and what it lets pass as the assembler does."""

from __future__ import annotations

import pytest

from memlane import ptx
from memlane.errors import PtxTypeError
from tests.ptx.modules import HEAD, module_text

EIGHT_HALVES = "{" + ", ".join(f"%h{number}" for number in range(8)) + "}"
EIGHT_WORDS = EIGHT_HALVES.replace("%h", "%r")

REFUSED = [
    ("@%r1 mov.u32 %r1, 0;", 2, "the guard `%r1` must be a predicate, but it is declared as `.b32`"),
    ("@%q1 mov.u32 %r1, 0;", 2, "the register `%q1` is not declared"),
    ("mov.u32 %r16, 1;", 9, "the register `%r16` is not declared"),
    ("mov.u64 %rd1, missing;", 15, "the name `missing` is not declared"),
    ("ld.shared.u32 %r1, [tile+4];", 21, "the name `tile` is not declared"),
    ("{ .reg .b32 t; mov.b32 t, 1; } mov.b32 %r1, t;", 45, "the name `t` is not declared"),
    ("bra nowhere;", 5, "the name `nowhere` is not declared"),
    ("bra a;", 5, "`a` is not a label"),
    ("L: brx.idx %r1, L;", 17, "`L` is not a list of branch targets"),
    ("{ inner: ret; } bra inner;", 21, "the name `inner` is not declared"),
    ("x: x:", 4, "`x` is declared twice in `k`"),
    (".shared .u32 s; .shared .u32 s;", 17, "`s` is declared twice in `k`"),
    ("vavrg4.u32.s32.s32.add a, %r1, %r2, %r3;", 24, "`vavrg4.u32.s32.s32.add` writes `a`, which is not a register: put a register there"),
    ("add.u32 7, %r1, %r2;", 9, "`add.u32` writes `7`, which is not a register"),
    ("cvt.u32.u64 %tid.x, %rd1;", 13, "`cvt.u32.u64` writes `%tid.x`, which is not a register"),
    ("ld.global.v2.u32 {%r1, 0}, [%rd1];", 24, "`ld.global.v2.u32` writes `0`, which is not a register"),
    ("atom.global.add.u32 a, [%rd1], 1;", 21, "`atom.global.add.u32` writes `a`, which is not a register"),
    ("shfl.sync.idx.b32 %r1|3, %r2, 0, 31, -1;", 23, "`shfl.sync.idx.b32` writes `3`, which is not a register"),
    ("setp.eq.s32 %p1|!%p2, %r1, 0;", 18, "`setp.eq.s32` writes `!%p2`: leave out the `!`"),
    ("ld.global.u32 %r1, [%f1];", 21, "`%f1` holds an address, but it is declared as `.f32`"),
    ("ld.global.u32 %r1, [%h1];", 21, "`%h1` holds an address, but it is declared as `.b16`"),
    ("ld.global.v2.u32 %r1, [%rd1];", 18, "`ld.global.v2.u32` needs a vector of 2, but `%r1` has 1"),
    ("st.v4.u32 [%rd1], {%r1, %r2};", 19, "`st.v4.u32` needs a vector of 4, but `{%r1, %r2}` has 2"),
    ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];", 42, "needs a vector of 2"),
    ("mov.b64 %rd1, {%r1, %r2, %r3};", 1, "`{%r1, %r2, %r3}` has 96 bits, but `mov.b64` needs 64"),
    ("add.u32 %r1, %f1, 3;", 14, "`%f1` is declared as `.f32`, but `add.u32` needs `.u32` there"),
    ("add.s64 %rd1, %rd2, %r3;", 21, "`%r3` is declared as `.b32`, but `add.s64` needs `.s64` there"),
    ("mul.wide.u32 %r1, %r2, 5;", 14, "`%r1` is declared as `.b32`, but `mul.wide.u32` needs `.u64` there"),
    ("ld.global.u64 %r1, [%rd1];", 15, "needs `.u64` there"),
    ("ld.global.u32 %f1, [%rd1];", 15, "needs `.u32` there"),
    ("ld.global.f32 %fd1, [%rd1];", 15, "needs `.f32` there"),
    ("and.b32 %p1, %p2, %p3;", 9, "`%p1` is declared as `.pred`, but `and.b32` needs `.b32` there"),
    ("selp.b32 %r1, %r2, %r3, %r4;", 25, "needs `.pred` there"),
    ("setp.eq.s32 %r1, %r2, 0;", 13, "needs `.pred` there"),
    ("shfl.sync.idx.b32 %r1|%r2, %r3, 0, 31, -1;", 23, "`%r2` is declared as `.b32`"),
    ("mov.u32 %r1, 0f3F800000;", 14, "`mov.u32` needs an integer there, not `0f3F800000`"),
    ("add.f32 %f1, %f2, 1;", 19, "`add.f32` needs a floating-point literal there, not `1`"),
    ("mov.u32 %r1, %clock64;", 14, "`%clock64` is `.u64`, but `mov.u32` needs `.u32` there"),
    ("add.s32 %r1, !%p1, 2;", 15, "`%p1` is declared as `.pred`"),
    (f"ld.global.v8.b16 {EIGHT_HALVES}, [%rd1];", 11, "`ld.global.v8.b16`: a vector of 8 has elements of 32 bits, not `.b16`"),
    (f"@%p1 st.v8.u8 [%rd1], {EIGHT_HALVES};", 9, "`st.v8.u8`: a vector of 8 has elements of 32 bits, not `.u8`"),
    ("ld.shared.v4.f64 {%fd1, %fd2, %fd3, %fd4}, [%rd1];", 11, "`ld.shared.v4.f64` moves 256 bits, which needs `.target sm_100` or later"),
    ("ld.global.nc.v4.u64 {%rd2, %rd3, %rd4, %rd5}, [%rd1];", 14, "moves 256 bits, which needs `.target sm_100`"),
    ("{ .reg .b128 q<3>; st.global.v2.b128 [%rd1], {q1, q2}; }", 30, "`st.global.v2.b128` moves 256 bits: an access moves at most 128"),
]


@pytest.mark.parametrize(("body", "column", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused(body: str, column: int, message: str) -> None:
    module = ptx.parse(module_text(body), "k.ptx")
    with pytest.raises(PtxTypeError) as caught:
        ptx.verify(module)
    assert message in str(caught.value)
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (6, column)


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u8 %r1, [%rd1]; ld.global.u32 %rd1, [%rd1]; ld.global.f32 %r1, [%rd1]; st.global.u8 [%rd1], %r1;",
        "cvt.u32.u16 %r1, %r2; cvt.u64.u32 %rd1, %tid.x; cvt.f32.f16 %f1, %h1;",
        "mov.f32 %f1, %r1; mov.b32 %r1, %f1; mov.b32 %r1, 0f3F800000; mov.u16 %h1, %tid.x; mov.u32 %r1, a;",
        "add.f16 %h1, %h2, %h3; fma.rn.f16x2 %r1, %r2, %r3, %r4; selp.b32 %f1, %f2, %f3, %p1; setp.eq.b32 %p1, %f1, %f2;",
        "mov.b32 %r1, {%h1, %h2}; mov.b64 {%r1, _}, %rd1; atom.add.f32 %f1, [%rd1], %f2; atom.add.u32 _, [%rd1], 1;",
        "ld.shared.u32 %r1, [%r2]; st.global.v2.u32 [%rd1], {1, %r2}; shfl.sync.bfly.b32 %f1|%p1, %f2, 1, 31, -1;",
        "bra later; { bra later; } later: ret;",
    ],
)
def test_let_pass(body: str) -> None:
    ptx.verify(ptx.parse(module_text(body)))


def test_accesses_of_256_bits_belong_to_newer_targets_and_to_global_memory() -> None:
    newer = (
        f".target sm_103a\n.entry k(.param .u64 a) {{ .reg .b32 %r<16>; .reg .b64 %rd<16>; ld.{{}}.v8.b32 {EIGHT_WORDS}, [%rd1]; ret; }}"
    )
    head = ".version 9.0\n.address_size 64\n"
    text = head.replace("\n", "\n" + newer.partition("\n")[0] + "\n", 1) + newer.partition("\n")[2]
    ptx.verify(ptx.parse(text.replace("{}", "global")))
    with pytest.raises(PtxTypeError, match=r"`ld\.local\.v8\.b32` moves 256 bits, which only `\.global` memory allows"):
        ptx.verify(ptx.parse(text.replace("{}", "local")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".global .u32 x; .global .f32 x;", "`x` is declared twice"),
        (".global .u32 x; .func x() { ret; }", "`x` is declared twice"),
        (".func f() { ret; } .func f() { ret; }", "the function `f` is defined twice"),
        (".entry k(.param .u32 a, .param .u32 a) { ret; }", "the parameter `a` of `k` is declared twice"),
        (".entry k() { .reg .b32 r; .reg .f32 r; }", "`r` is declared twice in `k`"),
        (".entry k() { call f; }", "the name `f` is not declared"),
    ],
)
def test_refused_in_a_module(text: str, message: str) -> None:
    with pytest.raises(PtxTypeError, match=message):
        ptx.verify(ptx.parse(HEAD + text))


@pytest.mark.parametrize(
    "text",
    [
        ".extern .global .u32 x; .global .u32 x;",
        ".func f(); .func f() { ret; } .entry k() { call f; }",
        ".func g(); .func f() { ret; } .alias g, f; .entry k() { call g; }",
        ".func (.reg .u32 r) f(.reg .u32 x) { mov.u32 r, x; ret; }",
        ".global .u32 x; .entry k() { .reg .u64 x; mov.u64 x, 1; }",
    ],
)
def test_let_pass_in_a_module(text: str) -> None:
    ptx.verify(ptx.parse(HEAD + text))
