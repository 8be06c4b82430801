"""What the parser makes of the text."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane import ptx
from memlane.ptx import Address, Immediate, Pair, Register, Sink, Special, Symbol, TextureAddress, Vector
from tests.ptx.modules import CASES, EXAMPLES, HEAD, first, kernel, module_text

AWKWARD = ptx.parse(next(path for path in CASES if path.stem == "awkward").read_text(), "awkward.ptx")


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("mov.u32 %r1, %tid.x;", Special("%tid.x")),
        ("mov.u32 %r1, WARP_SZ;", Special("WARP_SZ")),
        ("mov.u32 %r1, -0x10;", Immediate(-16)),
        ("mov.u32 %r1, 017;", Immediate(15)),
        ("mov.u32 %r1, 0b101;", Immediate(5)),
        ("mov.u32 %r1, 4294967295U;", Immediate(0xFFFFFFFF)),
        ("mov.f32 %f1, 0fBF800000;", Immediate(0xBF800000, "f32")),
        ("mov.f64 %fd1, 1.5;", Immediate(0x3FF8000000000000, "f64")),
        ("mov.f64 %fd1, -1e3;", Immediate(0xC08F400000000000, "f64")),
        ("mov.u64 %rd1, a;", Symbol("a")),
        ("mov.u64 %rd1, a+8;", Symbol("a", 8)),
        ("mov.b64 %rd1, {%r1, %r2};", Vector((Register("%r1"), Register("%r2")))),
        ("ld.u32 %r1, [%rd1+-4];", Address(Register("%rd1"), -4)),
        ("ld.u32 %r1, [%rd1-4];", Address(Register("%rd1"), -4)),
        ("ld.u32 %r1, [a];", Address(Symbol("a"))),
        ("ld.u32 %r1, [64];", Address(Immediate(64))),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];", TextureAddress((Register("%rd1"), Vector((Register("%r1"),))))),
        ("vote.sync.ballot.b32 %r1, !%p1, -1;", Register("%p1", negated=True)),
    ],
)
def test_operands(text: str, operand: ptx.Operand) -> None:
    assert first(text).operands[1] == operand


def test_destinations() -> None:
    assert first("atom.add.u32 _, [%rd1], 1;").operands[0] == Sink()
    assert first("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;").operands[0] == Pair(Register("%r1"), Register("%p1"))


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_integers_keep_their_value(value: int) -> None:
    for text in (str(value), hex(value)):
        (statement,) = ptx.statements(f"mov.b64 %rd1, {text};")
        assert isinstance(statement, ptx.Instruction)
        assert statement.operands[1] == Immediate(value)


@given(st.floats(width=32, allow_nan=False))
def test_float_bits_keep_their_value(value: float) -> None:
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    (statement,) = ptx.statements(f"mov.f32 %f1, 0f{bits:08x};")
    assert isinstance(statement, ptx.Instruction)
    assert statement.operands[1] == Immediate(bits, "f32")


def test_an_instruction_names_its_slots_and_operands() -> None:
    load = first("@!%p1 ld.global.nc.v2.f32 {%f1, %f2}, [%rd1+8];")
    assert (load.opcode, load.modifiers) == ("ld", ("global", "nc", "v2", "f32"))
    assert load.name == "ld.global.nc.v2.f32"
    assert load.guard == ptx.Guard("%p1", negated=True)
    assert (load.slot("type"), load.slot("vec"), load.slot("cop")) == ("f32", "v2", None)
    assert load.has("nc")
    assert load.operand("a") == Address(Register("%rd1"), 8)
    assert load.form.manual == "data-movement-and-conversion-instructions-ld-global-nc"
    assert load.span is not None
    assert (load.span.line, load.span.column) == (6, 1)
    assert load.span.text == "@!%p1 ld.global.nc.v2.f32 {%f1, %f2}, [%rd1+8];"


def test_module_header_and_files() -> None:
    assert AWKWARD.version == (8, 4)
    assert AWKWARD.target == ("sm_90", "debug")
    assert AWKWARD.address_size == 64
    assert AWKWARD.files == {1: "src/kernel.cu", 2: "with \\\\ backslash.h"}


def test_names_of_files_beyond_ascii_are_octal_digits_of_their_bytes() -> None:
    text = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "m\\303\\244\\303\\237ig \\342\\206\\222.cu"\n.file 2 "a\\377\\101.cu"\n'
    assert ptx.parse(text).files == {1: "mäßig →.cu", 2: "a\\377\\101.cu"}  # the second is no UTF-8, and 101 is none of the escaped


def test_functions() -> None:
    declared = [item for item in AWKWARD.items if isinstance(item, ptx.Function) and item.body is None]
    assert [function.name for function in declared] == ["vprintf", "plus", "other_adder"]
    assert declared[0].linkage == ("extern",)
    assert [result.name for result in declared[0].results] == ["r"]
    entry = AWKWARD.kernels["kernel"]
    assert entry.linkage == ("visible",)
    assert entry.attributes == (".maxntid 256, 1, 1", ".minnctapersm 2", '.pragma "nounroll";')
    assert [param.name for param in entry.params] == ["kernel_param_0", "kernel_param_1", "kernel_param_2"]
    assert entry.params[0].attributes == ".ptr .global .align 16"
    assert (entry.params[1].nbytes, entry.params[1].alignment) == (16, 8)
    assert AWKWARD.functions["stops"].attributes == (".noreturn",)
    assert not AWKWARD.functions["adder"].is_entry


def test_variables() -> None:
    variables = AWKWARD.variables
    assert variables["counts"].shape == (2, 3)
    assert variables["counts"].nbytes == 24
    assert variables["counts"].initial == "{{1, 2, 3}, {0x4, 05, 0b110}}"
    assert variables["pointers"].initial == "{generic(counts), counts+8}"
    assert variables["managed"].attributes == ".attribute(.managed)"
    assert variables["table"].align == variables["second"].align == 16
    assert variables["second"].initial == "{2.0}"
    assert (variables["vectors"].vector, variables["vectors"].nbytes) == (4, 32)
    assert variables["dynamic"].shape == (0,)
    assert variables["dynamic"].linkage == ("extern",)
    assert variables["picture"].type == "texref"


def test_locations_know_where_they_were_inlined() -> None:
    at = {instruction.name: instruction.location for instruction in _instructions(AWKWARD, "kernel")}
    outer = ptx.Location(1, 10, 3)
    middle = ptx.Location(2, 11, 5, outer)
    assert at["cvta.local.u64"] == outer
    assert at["mov.b64"] == ptx.Location(2, 12, 7, middle)


def test_a_location_does_not_reach_into_the_next_function() -> None:
    text = HEAD + ".entry one() {\n.loc 1 5 1\nret;\n}\n.entry two() {\nret;\n}\n"
    module = ptx.parse(text)
    assert _instructions(module, "one")[0].location == ptx.Location(1, 5, 1)
    assert _instructions(module, "two")[0].location is None


def test_names_without_percent_are_registers_where_they_are_declared() -> None:
    function = kernel("{ .reg .b32 a; mov.b32 a, 1; }\nmov.u64 %rd1, a;\n{ .reg .b32 t<2>; mov.b32 t1, t2; }", ".param .u64 a")
    assert function.body is not None
    inner, outer, ranged = function.body.instructions()
    assert inner.operands[0] == Register("a")
    assert outer.operands[1] == Symbol("a")
    assert ranged.operands == (Register("t1"), Symbol("t2"))


def test_components_of_vector_registers() -> None:
    move = next(instruction for instruction in _instructions(AWKWARD, "kernel") if instruction.name == "mov.f32")
    assert move.operands[1] == Register("%v.x")


def test_twenty_thousand_lines_in_less_than_two_seconds() -> None:
    """Of the processor: others may have it meanwhile."""
    text = next(path for path in EXAMPLES if path.stem == "stencil").read_text()
    head, mark, body = text.partition(".address_size 64")
    copies = 20_000 // body.count("\n") + 1
    large = head + mark + "".join(body.replace("_Z", f"_Z{number}_") for number in range(copies))
    assert large.count("\n") >= 20_000
    start = time.process_time()
    module = ptx.parse(large)
    assert time.process_time() - start < 2.0
    assert len(module.kernels) >= copies


def test_statements_are_read_without_a_module_and_remembered() -> None:
    probe = "mov.u64 %t0, %clock64; @%p1 st.global.v2.u64 [%t1+16], {%t0, %t2}; DONE:"
    clock, store, label = ptx.statements(probe)
    assert isinstance(clock, ptx.Instruction)
    assert clock.operands == (Register("%t0"), Special("%clock64"))
    assert isinstance(store, ptx.Instruction)
    assert store.guard == ptx.Guard("%p1")
    assert label == ptx.Label("DONE")
    assert ptx.statements(probe)[0] is clock


def test_one_instruction_takes_guard_and_location() -> None:
    place = ptx.Location(1, 2, 3)
    made = ptx.instruction("mov.u32 %t, %smid;", ptx.Guard("%p"), place)
    assert (made.guard, made.location) == (ptx.Guard("%p"), place)
    assert ptx.instruction("@!%q exit;", ptx.Guard("%p")).guard == ptx.Guard("%q", negated=True)
    with pytest.raises(ValueError, match="one instruction"):
        ptx.instruction("ret; ret;")


@pytest.mark.parametrize(
    "text",
    [
        "mov.u64 %t, %clock64;",
        "mov.u64 %t, %globaltimer;",
        "mov.u32 %t, %smid;",
        "mov.u64 %t, %gridid;",
        "mov.u32 %t, %lanemask_eq;",
        "activemask.b32 %t;",
        "lop3.b32 %d, %a, %b, %c, 0xC0;",
        "setp.ne.u64 %p, %a, %b;",
        "atom.global.add.u64 %d, [%a], 1;",
        "red.global.add.u64 [%a], 1;",
        "red.shared.max.u32 [%a], %b;",
        "st.global.v4.u32 [%a], {%b, %c, %d, %e};",
        "ld.global.u64 %d, [slot];",
        "ld.volatile.global.u64 %d, [%a];",
        "match.any.sync.b64 %d, %a, -1;",
        "redux.sync.or.b32 %d, %a, -1;",
        "vote.sync.ballot.b32 %d, %p, -1;",
        "popc.b32 %d, %a;",
        "shfl.sync.idx.b32 %d, %a, 0, 31, -1;",
        "membar.cta;",
        "fence.acq_rel.gpu;",
        "fence.sc.cta;",
        "isspacep.shared %p, %a;",
        "cvta.to.shared.u64 %d, %a;",
        "nanosleep.u32 100;",
    ],
)
def test_what_the_instrumenter_inserts_is_known(text: str) -> None:
    (statement,) = ptx.statements(text)
    assert ptx.print_statements((statement,), "") == text


def test_a_module_text_has_the_lines_that_tests_count_on() -> None:
    assert module_text("ret;").splitlines()[5] == "ret;"


def _instructions(module: ptx.Module, name: str) -> list[ptx.Instruction]:
    body = module.functions[name].body
    assert body is not None
    return list(body.instructions())
