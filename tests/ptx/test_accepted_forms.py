"""Forms that the assembler takes and compilers seldom write: each is read, printed as the same module, and assembles as it was printed."""

from __future__ import annotations

import pytest

from memlane.compile import assemble
from memlane.errors import MemlaneError, PtxSyntaxError, PtxTypeError
from memlane.ptx import Function, Immediate, Register, Variable, parse, print_module, verify
from tests.ptx.modules import HEAD, instructions, kernel, module_text

OUTSIDE = (
    ".extern .func f(.param .u32 a)",
    ".extern .func f1",
    ".extern .func (.param .u32 r) f2(.param .u32 a)",
    ".extern .func f5(.param .u32 a) .noreturn",
    ".extern .func f3(.param .u32 a)\n.pragma \"nounroll\";",
    ".extern .global .u32 g1; .visible .global .u32 g1;",
    ".visible .global .u32 g2 = 5; .extern .global .u32 g2;",
    ".weak .global .align 0x10 .v4 .f32 g3 = {1.0, -(2.0), .5, 4.};",
    ".global .u32 g4 // one\n = /* two */ 5 // three\n ;",
    "# 7 \"a.cu\"\n.global .u32 g5;\n#line 8 \"a.cu\"",
    ".global .attribute( .managed ) .u32 g6;",
    ".func f8 () { ret; }",
    ".func (.reg .u32 d) f4 (.reg .u32 a) { add.u32 d, a, 1; ret; }",
)  # fmt: skip
INSIDE = (
    "st.global .u32 [%rd1], %r1;",
    "st\n.global /* c */ .u32 [%rd1] , %r1 ;",
    "st.global.u32 [%rd1+2*2], (5+1)*2;",
    "st.global.u32 [%rd1+-4+8], -(3);",
    "mov.u32 %r1, WARP_SZ*2;",
    "add.f32 %f1, %f2, -(1.5)*2.0;",
    "setp.eq.u32 %p1, %r1, ~0;",
    "st.global.u32 [%rd1], %r1+1;",
    "@%p1 add.u64 %rd2, %rd1+8, %rd3;",
    "mov.u32 %r1, %laneid+3;",
    "mov.u32 %r1, %gridid;",
    ".reg .v2 .u32 a; mov.v2.u32 a, {%r1, %r2}; mov.v2.u32 {%r2, %r1}, a; st.global.v2.u32 [%rd1], a;",
    ".reg .v4 .u32 b; mov.v4.u32 b, %tid; st.global.u32 [%rd1], b.w;",
    ".reg .v2 .b16 c; mov.b32 c, 0x10002; mov.b16 c.x, c.g; mov.b32 %r1, c;",
    ".reg .v2 .f32 d<4>; ld.global.v2.f32 d1, [%rd1]; add.f32 d2.x, d1.x, d1.y; st.global.f32 [%rd1], d2.x;",
    ".reg .align 8 .u32 e, e2<3>;",
    ".reg .u32 y<4>, y; mov.u32 y, 1; mov.u32 y1, y; .reg .u32 z<2>; bra z; z:",
    ".reg .u32;",
    ".shared .b32 s[4]; st.u32 [s+4], 7; ld.volatile.u32 %r1, [s]; atom.add.u32 %r2, [s+8], 1; ld.shared.u32 %r1, s[1+1];",
    ".shared .b64 bar; mbarrier.init.b64 [bar], 1;",
    ".local .b32 l[4]; st.u32 [l+4], 7; ld.u32 %r1, [l];",
    ".global .u32 h = 5; ld.global.u32 %r1, [h]; { .global .u32 h = 6; ld.global.u32 %r1, [h]; }",
    ".const .u32 i[2] = {5, 6}; ld.const.u32 %r1, [i+4];",
    "t: .branchtargets L<2>; brx.idx %r1, t; L0: L1:",
    "call (_), f4, (%r1);",
    "p: .callprototype _ (); mov.b64 %rd1, f8; call %rd1, p;",
    "mov.u32 %r1, %tid.r; mov.u32 %r1, %ctaid.a;",
    "call (%r1), f4, (5+1);",
    "vadd.u32.u32.u32 %r1.b2, %r2.b3, %r3.h1, %r4;",
    "vmad.s32.u32.s32.sat.shr7 %r1, -%r2.h1, %r3, %r4; vmad.u32.u32.u32 %r1, %r2, 5, -%r4;",
    ".shared .b64 t; cp.async.ca.shared.global [t], [%rd1], 8, %p1; cp.async.cg.shared.global [%r1], [%rd1], 16, !%p1;",
    "mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64 {%rd1, %rd2}, {%rd3}, {%rd4}, {%rd1, %rd2};",
    ".reg .b16 n; set.lt.f16.s32 n, %r1, %r2; set.gtu.and.bf16.f32 n, %f1, %f2, !%p1; prefetch.L2::evict_last [%rd1];",
    "vset4.u32.u32.lt %r1.b32, %r2.b6543, %r3.b0000, %r4;",
)


def text_of_all() -> str:
    bodies = "\n".join(f"{{ {body} }}" for body in INSIDE)
    registers = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;"
    return f"{HEAD}{chr(10).join(OUTSIDE)}\n.visible .entry k(.param .u64 o) .maxntid /* c */ 0x40 {{\n{registers}\n{bodies}\nret;\n}}\n"


def test_they_are_printed_as_the_same_module() -> None:
    module = parse(text_of_all())
    verify(module)
    printed = print_module(module)
    assert parse(printed) == module
    assert print_module(parse(printed)) == printed


def test_they_assemble_as_written_and_as_printed() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    for text in (text_of_all(), print_module(parse(text_of_all()))):
        assert assemble(text, arch="sm_90").data


def test_a_function_keeps_its_attribute() -> None:
    module = parse(f"{HEAD}.func .attribute(.unified(1, 2)) (.param .u32 r) f (.param .u32 a) .noreturn {{ trap; }}")
    assert module.functions["f"].attributes == (".attribute(.unified(1,2))", ".noreturn")
    assert ".func .attribute(.unified(1,2)) (.param .u32 r) f(" in print_module(module)
    assert parse(print_module(module)) == module


def test_a_prototype_ends_where_the_next_declaration_begins() -> None:
    module = parse(f"{HEAD}.extern .func f (.param .u32 a)\n.global .u32 g = 5;\n.extern .func h .noreturn\n.visible .func i() {{ ret; }}")
    assert [type(item) for item in module.items] == [Function, Variable, Function, Function]
    assert (module.variables["g"].initial, module.items[2].attributes) == ("5", (".noreturn",))  # type: ignore[union-attr]


@pytest.mark.parametrize("head", [".visible .func f (.param .u32 a)", ".func f ()", ".visible .entry f (.param .u32 a)"])
def test_other_prototypes_end_with_a_semicolon(head: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"expected `;` or a body in braces after the head of `f`, found `\.global`"):
        parse(f"{HEAD}{head}\n.global .u32 g = 5;")


def test_a_register_with_a_constant_becomes_an_addition() -> None:
    moved, added, stored = instructions("mov.u32 %r1, 3;\nst.global.u32 [%rd1], %r1 + (2*2);")
    assert (moved.name, added.name, added.operands[1:]) == ("mov.u32", "add.s32", (Register("%r1"), Immediate(4)))
    assert stored.operands[1] == added.operands[0]


def test_the_register_of_a_sum_is_new() -> None:
    names = [one.operands[0].name for one in instructions(".reg .u32 %sum0;\nmov.u32 %sum0, %r1+1;\nmov.u32 %r2, %r1+2;")]  # type: ignore[union-attr]
    assert names == ["%sum1", "%sum0", "%sum2", "%r2"]


def test_an_access_without_a_space_takes_that_of_its_variable() -> None:
    body = "ld.volatile.u32 %r1, [s];\natom.relaxed.gpu.add.u32 %r1, [s], 1;\nst.u32 [l], 1;\nld.u32 %r1, [%rd1];"
    names = [one.name for one in instructions(f".shared .b32 s[4]; .local .b32 l;\n{body}")]
    assert names == ["ld.volatile.shared.u32", "atom.relaxed.gpu.shared.add.u32", "st.local.u32", "ld.u32"]


def test_variables_of_functions_stand_in_front_of_them() -> None:
    function = "{ .global .u32 g = 1; .global .u64 p = g; ld.global.u32 %r1, [g]; { .reg .b64 g; ld.global.u32 %r1, [g]; } }"
    module = parse(f"{HEAD}.global .u32 g = 9;\n.func f() {{ .reg .b32 %r1; {function} {function} }}")
    assert {name: one.initial for name, one in module.variables.items()} == {
        "g": "9", "g__1": "1", "p__1": "g__1", "g__2": "1", "p__2": "g__2",
    }  # fmt: skip
    bases = [one.operands[1].base.name for one in module.functions["f"].instructions()]  # type: ignore[union-attr]
    assert bases == ["g__1", "g", "g__2", "g"]


def test_mad_without_a_rounding_rounds_to_nearest_in_old_modules() -> None:
    body = ".entry k() { .reg .f32 %f<4>; mad.ftz.f32 %f0, %f1, %f2, %f3; ret; }"
    for version in ("2.0", "3.1"):
        module = parse(f".version {version}\n.target sm_20\n{body}")
        assert next(module.kernels["k"].instructions()).name == "mad.rn.ftz.f32"
    for version, target in (("1.4", "sm_13"), ("3.2", "sm_20"), ("9.0", "sm_90")):
        with pytest.raises(MemlaneError, match=r"this form of `mad` is not supported: `mad\.ftz\.f32`"):
            parse(f".version {version}\n.target {target}\n{body}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u32 %r1, %rd1.x;", "the register `%rd1` is a `.b64`: it has no element `.x`"),
        ("add.u32 %r1.b0, %r2, %r3;", "the register `%r1` is a `.b32`: it has no element `.b0`"),
        (".reg .v2 .u32 v; mov.u32 %r1, v.z;", "the register `v` is a vector of 2: it has no element `.z`"),
        (".reg .v2 .u32 v; mov.v2.u32 {v.x, v.q}, {%r1, %r2};", "the register `v` is a vector of 2: it has no element `.q`"),
        (".reg .v4 .u64 v;", "a vector register has 2 or 4 elements, at most 128 bits, and cannot be a predicate"),
        (".reg .v2 .pred v;", "a vector register has 2 or 4 elements, at most 128 bits, and cannot be a predicate"),
        ("mov.f32 %f1, %f2+1;", "a constant can be added only to integer registers of 16, 32 or 64 bits, but `%f2` is declared as `.f32`"),
        ("mov.b64 %rd1, {%r1+1, %r2};", "a register plus a constant cannot be part of another operand"),
        ("ld.global.u32 %r1, a[1];", "`a` is not an array: an index needs one"),
        (".shared .u32 s[4]; ld.shared.u32 %r1, s[%r2];", "an index in a register is not supported: compute the address of `s`"),
        ("add.s32 %r1, %r2, -%r3;", "only `vmad` takes a minus sign before a register: negate the register first"),
        ("vmad.s32.s32.s32 %r1, %r2, -sh, %r4;", "expected a register after `-`"),
        ("t: .branchtargets;", "expected a label, found `;`"),
    ],
)
def test_refused(body: str, message: str) -> None:
    with pytest.raises(MemlaneError) as caught:
        kernel(body)
    assert message in str(caught.value)
    assert str(caught.value).startswith("k.ptx:6:")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (".reg .v2 .u32 v;\nmov.u32 %r1, v;", "`{v.x, v.y}` has 64 bits, but `mov.u32` needs 32"),
        ("mov.v2.u32 {%r1, %r2}, %r3;", "`mov.v2.u32` needs a vector of 2, but `%r3` has 1"),
        ("st.global.u32 [%rd1], {%r1, %r2};", "`st.global.u32` needs one value there, not `{%r1, %r2}`"),
        ("mov.u32 %r1, !%r2;", "`!` negates a predicate, but `%r2` is declared as `.b32`"),
        ("mov.b32 %r1, 1.0;", "`1.0` has 64 bits, but `mov.b32` needs 32"),
    ],
)
def test_refused_by_the_verifier(body: str, message: str) -> None:
    with pytest.raises(PtxTypeError) as caught:
        verify(parse(module_text(body)))
    assert message in str(caught.value)


def test_the_definition_of_a_variable_counts_not_its_declaration() -> None:
    module = parse(f"{HEAD}.visible .global .u32 g = 5;\n.extern .global .u32 g;")
    verify(module)
    assert module.variables["g"].initial == "5"
