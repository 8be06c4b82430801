"""The assembler takes what the passes write."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane import chip
from memlane.compile import assemble
from memlane.errors import MissingDependency
from memlane.instrument import SCHEMES, Sampling, TraceOptions, count, trace
from memlane.ptx import Module, verify
from memlane.sass import disassemble
from tests.instrument.kernels import EXAMPLES, example, kernel


def assembled(module: Module) -> int:
    try:
        return len(assemble(module).data)
    except MissingDependency as absent:
        pytest.skip(str(absent))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_traced_examples_assemble(path: Path, scheme: str) -> None:
    assert assembled(trace(example(path), TraceOptions(scheme)).module) > 1000


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem != "reduction"], ids=lambda path: path.stem)
def test_counting_examples_assemble(path: Path) -> None:
    assert assembled(count(example(path), chip.load("h200")).module) > 1000


ODD = """
    .reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<9>; .reg .f32 %f<5>; .reg .b64 %rd<4>; .reg .f64 %d<2>; .reg .b128 %q<2>;
    ld.param.u64 %rd1, [p];
    ld.global.u8 %r1, [%rd1];
    ld.global.u16 %h1, [%rd1];
    ld.global.b128 %q1, [%rd1];
    ld.global.nc.f64 %d1, [%rd1+8];
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
    ld.const.u32 %r2, [table+4];
    tex.1d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [texture, {%r1}];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 atom.global.cas.b32 %r7, [%rd1], %r1, %r2;
    { .reg .b64 address; .reg .b32 value; add.u64 address, %rd1, 4; ld.b32 value, [address]; @!%p1 st.global.b32 [address+4], value; }
    st.global.u8 [%rd1], %h1;
    st.global.b128 [%rd1], %q1;
    st.shared.f64 [words], %d1;
    red.shared.add.u32 [words+16], %r7;
    st.global.v2.f32 [%rd1], {%f3, %f4};
    st.global.u32 [%rd1+32], %r5;
    .reg .v2 .u32 %pair; ld.global.v2.u32 %pair, [%rd1]; st.global .u32 [%rd1+2*2], %pair.y; st.global.v2.u32 [%rd1], %pair;
    ld.u32 %r8, [words+4]; st.global.u32 [%rd1], %r8+1;
    { .global .u32 table = 5; atom.global.add.u32 %r7, [table], 1; }
"""


@pytest.mark.parametrize("scheme", [*SCHEMES, "count"])
def test_every_kind_of_operand_assembles(scheme: str) -> None:
    variables = ".const .b32 table[4]; .shared .align 16 .b8 words[64]; .global .texref texture;"
    module = kernel(ODD, before=variables, head=".version 8.4\n.target sm_90\n.address_size 64")
    passed = count(module, chip.load("h200")).module if scheme == "count" else trace(module, TraceOptions(scheme)).module
    verify(passed)
    assert assembled(passed) > 1000


@pytest.mark.parametrize("whole_blocks", [False, True])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_warps_that_are_not_traced_read_nothing_of_the_trace(path: Path, whole_blocks: bool) -> None:
    """Constants of a module are in a bank of their own, which a kernel without any does not wait for. The decision is made by few
    instructions, and the original code follows it: no jump leads there."""
    options = TraceOptions(sampling=Sampling(every=32, whole_blocks=whole_blocks), tagged=True)
    try:
        program = disassemble(assemble(trace(example(path), options).module).data)
    except MissingDependency as absent:
        pytest.skip(str(absent))
    for function in program.functions.values():
        code = function.instructions
        decision = next(index for index, one in enumerate(code) if one.opcode == "BRA")
        ends = next(index for index, one in enumerate(code) if index > decision and one.opcode == "EXIT" and one.guard is None)
        assert decision < (18 if whole_blocks else 32)
        assert not [one.text for one in code[:ends] if "c[0x3]" in one.text]
        assert any("c[0x3]" in one.text for one in code[ends:])
