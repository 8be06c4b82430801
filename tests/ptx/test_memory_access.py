"""What an instruction does to memory, and to registers."""

from __future__ import annotations

import pytest

from memlane import ptx
from memlane.ptx import Address, Register, Sink, memory_access, memory_accesses, overwrites, past_tense, registers_read, registers_written
from tests.ptx.modules import CASES, first

LOADS_AND_STORES = [
    # text, kind, space, type, vector, bytes, read-only, has a result
    ("ld.global.f32 %f1, [%rd1+4];", "load", "global", "f32", 1, 4, False, True),
    ("ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", "load", "global", "f32", 4, 16, True, True),
    ("ld.v2.u64 {%rd2, _}, [%rd1];", "load", "generic", "u64", 2, 16, False, True),
    ("ld.const.u8 %r1, [%rd1];", "load", "const", "u8", 1, 1, True, True),
    ("ldu.global.u32 %r1, [%rd1];", "load", "global", "u32", 1, 4, True, True),
    ("ld.param.u64 %rd1, [a];", "load", "param", "u64", 1, 8, False, True),
    ("ld.shared::cta.u16 %h1, [%r1];", "load", "shared", "u16", 1, 2, False, True),
    ("ld.volatile.local.s32 %r1, [%rd1];", "load", "local", "s32", 1, 4, False, True),
    ("ld.acquire.gpu.global.u32 %r1, [%rd1];", "load", "global", "u32", 1, 4, False, True),
    ("st.shared.b32 [%r1], %r2;", "store", "shared", "b32", 1, 4, False, False),
    ("st.v2.f64 [%rd1], {%fd1, 0d0000000000000000};", "store", "generic", "f64", 2, 16, False, False),
    ("st.release.sys.global.u64 [%rd1], 1;", "store", "global", "u64", 1, 8, False, False),
    ("atom.global.add.u32 %r1, [%rd1], %r2;", "atomic", "global", "u32", 1, 4, False, True),
    ("atom.shared.cas.b64 %rd1, [%r1], %rd2, %rd3;", "atomic", "shared", "b64", 1, 8, False, True),
    ("atom.add.noftz.f16x2 _, [%rd1], %r2;", "atomic", "generic", "f16x2", 1, 4, False, False),
    ("atom.global.add.v2.f32 {%f1, %f2}, [%rd1], {%f3, %f4};", "atomic", "global", "f32", 2, 8, False, True),
    ("red.global.max.s64 [%rd1], %rd2;", "reduction", "global", "s64", 1, 8, False, False),
    ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];", "load", "tex", "f32", 4, 16, True, True),
    ("suld.b.1d.v2.b32.trap {%r1, %r2}, [%rd1, {%r3}];", "load", "surf", "b32", 2, 8, False, True),
    ("sust.b.1d.b32.trap [%rd1, {%r3}], {%r1};", "store", "surf", "b32", 1, 4, False, False),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", "load", "shared", "b32", 4, 16, False, True),
    ("prefetch.global.L2 [%rd1];", "prefetch", "global", "", 1, None, False, False),
]


@pytest.mark.parametrize(("text", "kind", "space", "scalar", "vector", "nbytes", "read_only", "has_result"), LOADS_AND_STORES)
def test_memory_access(
    text: str, kind: str, space: str, scalar: str, vector: int, nbytes: int | None, read_only: bool, has_result: bool
) -> None:
    access = memory_access(first(text))
    assert access is not None
    assert (access.kind, access.space, access.type, access.vector, access.nbytes) == (kind, space, scalar, vector, nbytes)
    assert access.read_only == read_only
    assert any(isinstance(one, Register) for one in access.results) == has_result
    assert not access.asynchronous


KINDS = {
    "load": [
        "ld.const.u8 %r1, [%rd1];",
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];",
        "suld.b.1d.b32.trap %r1, [%rd1, {%r3}];",
    ],
    "store": [
        "st.shared.b32 [%r1], %r2;",
        "sust.b.1d.b32.trap [%rd1, {%r3}], {%r1};",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};",
    ],
    "atomic": ["atom.add.noftz.f16x2 _, [%rd1], %r2;"],
    "reduction": ["red.global.max.s64 [%rd1], %rd2;", "sured.b.add.1d.u32.trap [%rd1, {%r3}], %r1;"],
    "prefetch": ["prefetch.global.L2 [%rd1];"],
    "query": ["txq.width.b32 %r1, [%rd1];", "suq.width.b32 %r1, [%rd1];"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_happens_to_the_memory_is_said_alike_for_all_instructions(kind: str) -> None:
    accesses = [memory_access(first(text)) for text in KINDS[kind]]
    assert [one and one.kind for one in accesses] == [kind] * len(accesses)


def test_a_copy_loads_its_source_and_stores_to_its_destination() -> None:
    accesses = memory_accesses(first("cp.async.ca.shared.global [%r1], [%rd1], 4;"))
    assert {one.space: one.kind for one in accesses} == {"shared": "store", "global": "load"}


def test_results_values_and_address_are_the_operands() -> None:
    access = memory_access(first("atom.shared.cas.b32 %r1, [%r2+8], %r3, 7;"))
    assert access is not None
    assert access.address == Address(Register("%r2"), 8)
    assert access.results == (Register("%r1"),)
    assert access.values == (Register("%r3"), ptx.Immediate(7))
    load = memory_access(first("ld.v2.u32 {%r1, _}, [%rd1];"))
    assert load is not None
    assert load.results == (Register("%r1"), Sink())


def test_an_asynchronous_copy_loads_and_stores() -> None:
    copy = first("cp.async.cg.shared.global [%r1], [%rd1], 16;")
    stored, loaded = memory_accesses(copy)
    assert (stored.kind, stored.space, stored.nbytes) == ("store", "shared", 16)
    assert (loaded.kind, loaded.space, loaded.nbytes) == ("load", "global", 16)
    assert stored.asynchronous
    assert loaded.asynchronous
    assert memory_access(copy) == loaded


@pytest.mark.parametrize(
    "text", ["add.s32 %r1, %r2, %r3;", "mov.u64 %rd1, a;", "bar.sync 0;", "membar.gl;", "mbarrier.inval.shared.b64 [%r1];", "ret;"]
)
def test_other_instructions_access_no_memory(text: str) -> None:
    assert memory_access(first(text)) is None
    assert memory_accesses(first(text)) == ()


@pytest.mark.parametrize(
    ("text", "written", "read", "whole"),
    [
        ("add.s32 %r1, %r2, %r3;", {"%r1"}, {"%r2", "%r3"}, {"%r1"}),
        ("@%p1 add.s32 %r1, %r1, 1;", {"%r1"}, {"%p1", "%r1"}, set()),
        ("setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;", {"%p1", "%p2"}, {"%r1", "%r2", "%p3"}, {"%p1", "%p2"}),
        ("ld.global.v2.f32 {%f1, _}, [%rd1];", {"%f1"}, {"%rd1"}, {"%f1"}),
        ("st.global.v2.f32 [%rd1], {%f1, %f2};", set(), {"%rd1", "%f1", "%f2"}, set()),
        ("mov.b64 {%r1, %r2}, %rd1;", {"%r1", "%r2"}, {"%rd1"}, {"%r1", "%r2"}),
        ("mov.f32 %v.y, %w.x;", {"%v"}, {"%w"}, set()),
        ("call (%r1), f, (%r2, %r3);", {"%r1"}, {"%r2", "%r3"}, {"%r1"}),
        (
            "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];",
            {"%f1", "%f2", "%f3", "%f4"},
            {"%rd1", "%r1"},
            {"%f1", "%f2", "%f3", "%f4"},
        ),
        ("bfi.b32 %r1, %r2, %r3, %r4, %r5;", {"%r1"}, {"%r2", "%r3", "%r4", "%r5"}, {"%r1"}),
        ("bra a;", set(), set(), set()),
    ],
)
def test_registers(text: str, written: set[str], read: set[str], whole: set[str]) -> None:
    instruction = first(text)
    assert set(registers_written(instruction)) == written
    assert set(registers_read(instruction)) == read
    assert set(overwrites(instruction)) == whole


def test_an_accumulator_is_read_and_written() -> None:
    text = next(path for path in CASES if path.stem == "matrix").read_text()
    body = ptx.parse(text).kernels["kernel"].body
    assert body is not None
    multiply = next(instruction for instruction in body.instructions() if instruction.opcode == "wgmma" and instruction.operands)
    assert {"%f1", "%f2", "%f3", "%f4"} <= set(registers_read(multiply)) & set(registers_written(multiply))


def test_rename_keeps_components_offsets_and_guards() -> None:
    instruction = first("@!%p1 st.global.v2.f32 [%rd1+4], {%v.x, %f1};")
    renamed = ptx.rename_instruction(instruction, lambda name: name + "_")
    assert ptx.instruction_text(renamed) == "@!%p1_ st.global.v2.f32 [%rd1_+4], {%v_.x, %f1_};"


@pytest.mark.parametrize(
    ("text", "space", "word"),
    [
        ("ld.global.u32 %r1, [%rd1];", "global", "read"),
        ("st.shared.u32 [%r1], %r2;", "shared", "wrote"),
        ("atom.global.add.u32 %r1, [%rd1], %r2;", "global", "updated"),
        ("red.shared::cluster.add.u32 [%r1], %r2;", "shared", "updated"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r5];", "shared", "read"),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};", "shared", "wrote"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];", "shared", "read"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd1], {%r1, %r2, %r3, %r4};", "global", "wrote"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", "shared", "wrote"),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", "global", "read"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;", "global", "wrote"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;", "shared", "read"),
        ("mbarrier.init.shared.b64 [%r1], 1;", "shared", "accessed"),
    ],
)
def test_what_an_instruction_did_in_a_word(text: str, space: str, word: str) -> None:
    assert past_tense(first(text), space) == word
