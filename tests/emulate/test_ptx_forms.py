"""What forms of PTX that compilers seldom write leave in memory on the emulator: all in one kernel, each with its value by hand."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import MemlaneError, PtxTypeError, UnsupportedPtx
from memlane.ptx import parse, print_module
from tests.emulate.running import HEAD, emulator, program

BEFORE = """
.global .u32 table[4] = { // with a comment
  5, /* and another */ 6 + 1, (1 << 4), ~0 };
.extern .func elsewhere (.param .u32 a)
.global .u32 calls_of_counts;
.global .align 16 .u64 spare[2];
.func counts () { .reg .u32 n; atom.global.add.u32 n, [calls_of_counts], 1; ret; }
.func (.reg .u32 d) twice (.reg .u32 a) { .global .u32 calls = 40; .reg .u32 n; atom.global.add.u32 n, [calls], 1; add.u32 d, a, a; ret; }
"""
LAST = 31
"""The lane whose result stays."""
FORMS: list[tuple[str, int]] = [
    ("ld.global.u32 %r0, [table+2*2];", 7),
    ("ld.global.u32 %r0, table[2];", 16),
    ("ld.u32 %r0, [table+(8+4)];", 0xFFFFFFFF),
    ("mov.u32 %r1, 3; mov.u32 %r0, %r1+4;", 7),
    ("mov.u32 %r1, 3; add.u32 %r0, %r1+-1, %r1+0x10;", 21),
    ("mov.u32 %r0, %laneid+1;", LAST + 1),
    ("mov.u32 %r1, 7; @!%p0 mov.u32 %r1, %r1+1; mov.u32 %r0, %r1;", 8),
    ("mov.u32 %r0, -7/2;", 0xFFFFFFFD),
    ("mov.u32 %r0, WARP_SZ*2;", 64),
    ("{ .reg .s64 w; max.s64 w, WARP_SZ, -1; cvt.u32.s64 %r0, w; }", 32),
    ("{ .reg .b16 h; cvt.u16.u8 h, %laneid; cvt.u32.u16 %r0, h; }", LAST),
    ("ld.global.b16 %f0, [table]; mov.b32 %r0, %f0;", 5),
    (".shared .u32 s; st.shared.u32 [s], -1; mov.b32 %f0, 0x12345678; st.shared.b16 [s], %f0; ld.shared.u32 %r0, [s];", 0xFFFF5678),
    ("mov.f32 %f0, 1.5*-(2.0); mov.b32 %r0, %f0;", 0xC0400000),
    ("mov.f32 %f0, 1e300; mov.b32 %r0, %f0;", 0x7F800000),
    ("mov.f64 %fd0, 0f3f800000; mov.b64 {%r0, _}, %fd0;", 0x3F800000),
    (".reg .v2 .u32 v; ld.global.v2.u32 v, [table]; add.u32 %r0, v.x, v.y;", 12),
    (".reg .v4 .u32 v; ld.global.v4.u32 v, [table]; sub.u32 %r0, v.b, v.r;", 11),
    (".reg .v2 .u32 v; mov.v2.u32 v, {1, 2}; mov.v2.u32 v, {v.y, v.x}; shl.b32 %r0, v.x, v.y;", 4),
    (".reg .v2 .u32 v, w; mov.v2.u32 v, {1, 2}; mov.v2.u32 w, v; mov.v2.u32 {_, %r0}, w;", 2),
    (".reg .v2 .u32 v; mov.v2.u32 v, {1, 2}; @%p0 mov.u32 v.x, 9; mov.u32 %r0, v.x;", 1),
    (".reg .v2 .b16 v; mov.b32 v, 0x10002; mov.b16 v.x, v.y; mov.b32 %r0, v;", 0x10001),
    (".reg .v2 .u32 v<3>; mov.u32 v1.y, 8; { .reg .v2 .u32 v1; mov.u32 v1.y, 9; } mov.u32 %r0, v1.y;", 8),
    (".reg .v4 .u32 v; mov.v4.u32 v, %ntid; mad.lo.u32 %r0, v.w, 100, v.x;", 32),
    (".shared .u32 s[2]; st.u32 [s+4], 7; ld.shared.u32 %r0, [s+4];", 7),
    (".shared .u32 s[2]; st.shared.u32 s[1], 8; ld.u32 %r0, [s+4];", 8),
    (".shared .u32 s; st.u32 [s], 0; bar.sync 0; atom.add.u32 %r1, [s], 2; bar.sync 0; ld.volatile.u32 %r0, [s];", 64),
    (".local .u32 l[2]; st.u32 [l+4], %laneid+1; ld.local.u32 %r0, [l+4];", LAST + 1),
    (".global .u32 n = 5; atom.global.add.u32 %r1, [n], 1; bar.sync 0; ld.volatile.global.u32 %r0, [n];", 37),
    (".const .u32 c[2] = {5, 6}; ld.const.u32 %r0, [c+4];", 6),
    (".global .u32 n = 1; ld.global.u32 %r1, [n]; { .global .u32 n = 20; ld.global.u32 %r0, [n]; add.u32 %r0, %r0, %r1; }", 21),
    ("call (_), twice, (5); call (%r0), twice, (%laneid); ", 2 * LAST),
    ("p: .callprototype _ (); mov.b64 %rd1, counts; call %rd1, p; bar.sync 0; ld.volatile.global.u32 %r0, [calls_of_counts];", 32),
    ("mov.u32 %r0, %ntid.r; add.u32 %r0, %r0, %ntid.b;", 33),
    ("mov.u32 %r1, 1; t: .branchtargets L<2>; brx.idx %r1, t; L0: mov.u32 %r0, 10; bra M; L1: mov.u32 %r0, 11; M:", 11),
    ("mov.u32 %r1, 7; vmad.s32.s32.s32 %r0, -%r1, 5, 3;", 0xFFFFFFE0),
    ("mov.u32 %r1, 0x10005; vmad.u32.u32.u32 %r0, -%r1.h0, -%r1.b2, 3;", 8),
    ("mov.u32 %r1, 0x80000000; vmad.u32.u32.u32.sat %r0, 0, 0, -%r1;", 0x7FFFFFFF),
    ("mov.u32 %r1, 0x40000000; vmad.u32.u32.u32.sat %r0, -%r1, 4, 5;", 0x80000000),
    ("mov.u32 %r1, 300; vmad.u32.u32.u32.shr7 %r0, -%r1, 1, 0;", 0xFFFFFFFD),
    (
        ".shared .u32 s, t; mov.u64 %rd1, table; cp.async.ca.shared.global [s], [%rd1], 4, %p0; ld.shared.u32 %r0, [s];",
        5,
    ),
    (
        ".shared .u32 s; mov.u64 %rd1, table; cp.async.ca.shared.global [s], [%rd1], 4, !%p0; ld.shared.u32 %r0, [s];",
        0,
    ),
    ("{ .reg .b16 h; set.lt.f16.s32 h, -1, 1; cvt.u32.u16 %r0, h; }", 0x3C00),
    ("{ .reg .b16 h; mov.f32 %f0, 1.0; set.gtu.or.bf16.f32 h, %f0, 2.0, !%p0; cvt.u32.u16 %r0, h; }", 0x3F80),
    ("mov.u32 %r0, 0; %L: add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 5; @%p1 bra %L; bra.uni %M; mov.u32 %r0, 7; %M:", 5),
    ("mov.u32 %r0, %pm3; mov.u64 %rd1, %pm7_64; mov.u64 %rd2, %current_graph_exec; st.global.v2.u64 [spare], {%rd1, %rd2};", 0),
    (".reg .u32 x; mov.u32 x, 1; { mov.u32 %r0, x; .reg .u64 x; mov.u64 x, 5; cvt.u32.u64 %r1, x; } mad.lo.u32 %r0, %r1, %r0, x;", 6),
    (".reg .u32 x<4>; mov.u32 x1, 1; { mov.u32 %r0, x1; .reg .u32 x<3>; mov.u32 x1, 5; add.u32 %r0, %r0, x1; } add.u32 %r0, %r0, x1;", 7),
    ("{ ld.global.u32 %r0, [table]; .global .u32 table = 50; ld.global.u32 %r1, [table]; add.u32 %r0, %r0, %r1; }", 55),
    ("{ ld.global.u32 %r0, [table]; .local .u32 table; st.local.u32 [table], 2; ld.local.u32 %r1, [table]; add.u32 %r0, %r0, %r1; }", 7),
    (".shared .u32 s; st.shared .u32 [s], 3; ld.shared\n.u32 %r0, [s];", 3),
]


def text_of_all() -> str:
    stores = "\n".join(f"{{ {code.replace('%laneid)', '%r9)')} st.global.u32 [%out+{4 * n}], %r0; }}" for n, (code, _) in enumerate(FORMS))
    return program(f"mov.u32 %r9, %laneid;\nsetp.ne.u32 %p0, %r9, %r9;\n{stores}\nret;", before=BEFORE)


@pytest.mark.parametrize("printed", [False, True], ids=["as written", "as printed"])
def test_values(printed: bool) -> None:
    module = parse(text_of_all())
    target = emulator()
    out = target.zeros(len(FORMS), np.uint32)
    target.load(parse(print_module(module)) if printed else module)["k"][1, 32](out)
    wrong = [(code, hex(found), hex(value)) for (code, value), found in zip(FORMS, out.numpy().tolist(), strict=True) if found != value]
    assert wrong == []


def test_a_variable_of_a_function_is_one_for_all_calls() -> None:
    module = parse(program("call (%r0), twice, (1); call (%r0), twice, (1); ret;", before=BEFORE))
    target = emulator()
    loaded = target.load(module)
    loaded["k"][1, 32](target.zeros(1, np.uint32))
    address, nbytes = target.symbol(loaded, "calls")
    value = np.zeros(nbytes // 4, np.uint32)
    target.read(address, value)
    assert value.tolist() == [40 + 2 * 32]


@pytest.mark.parametrize(
    ("body", "before", "kind", "message"),
    [
        (
            "tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [picture, {%r0}];",
            ".global .texref picture;",
            UnsupportedPtx,
            "`picture` is a reference (`.texref`), which is not bound to an image here: pass a texture object instead, as a parameter of "
            "type `.u64`",
        ),
        (
            "{ .param .b32 a; st.param.b32 [a], 1; call far, (a); }",
            ".extern .func far (.param .b32 a);",
            UnsupportedPtx,
            "model far, a function without a body: link the file that defines it: memlane.link(...), or --link FILE on the command line",
        ),
        ("cvt.s32.f32 %r0, %f0;", "", PtxTypeError, "cvt.s32.f32 needs a rounding to integers: write `.rzi`"),
        ("vadd.u32.u32.u32 %r0, %r1.b4, %r2;", "", PtxTypeError, "`%r1.b4`: vadd knows no part `.b4` there"),
        (
            "vadd.u32.u32.u32 %r0.b1, %r1, %r2;",
            "",
            PtxTypeError,
            "writes a part of its destination only where it merges that with a fourth",
        ),
        ("vadd4.u32.u32.u32 %r0.b00, %r1, %r2, %r3;", "", PtxTypeError, "`%r0.b00`: vadd4 knows no part `.b00` there"),
    ],
)
def test_refused(body: str, before: str, kind: type[MemlaneError], message: str) -> None:
    target = emulator()
    with pytest.raises(kind) as caught:
        target.load(parse(program(f"{body}\nret;", before=before)))["k"][1, 32](target.zeros(1, np.uint32))
    assert message in str(caught.value)


def test_a_parameter_that_is_a_texture_reference_is_refused() -> None:
    with pytest.raises(UnsupportedPtx, match=r"`t` is a reference \(`\.texref`\), which is not bound to an image here"):
        emulator().load(parse(f"{HEAD}.visible .entry k(.param .texref t) {{ ret; }}"))
