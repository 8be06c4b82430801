"""The text of machine code's functions: what llvmlite would write, and names that no two values share."""

from __future__ import annotations

from collections import Counter

import llvmlite.ir as ir
import pytest

from memlane.chip import load
from memlane.emulate.code import text
from memlane.emulate.code.build import F32, I32, Emit
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.lower import kernel as kernels
from memlane.ptx import parse
from tests.emulate.running import program

BODY = """
    cvt.rn.f32.u32 %f1, %tid;
    setp.gt.f32 %p1, %f1, 0f40000000;
    @%p1 add.f32 %f1, %f1, %f1;
again:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, %tid;
    @%p2 bra again;
    shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
    atom.global.add.f32 %f2, [%out], %f1;
    st.global.f32 [%mine], %f2;
"""


def test_what_is_written_is_what_llvmlite_writes_but_for_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[type] = Counter()
    instruction_text = text.instruction_text

    def compared(one: ir.Instruction) -> str:
        found = instruction_text(one)
        assert found.split() == str(one).split()
        seen[type(one)] += 1
        return found

    def compiled() -> None:
        module = parse(program(BODY), "text.ptx")
        kernels.compile_kernel(module, module.kernels["k"], CompiledLayers(True, True, True, True), load("h200"))

    monkeypatch.setenv("MEMLANE_CACHE", "0")
    compiled()  # Once what all kernels share is there, each is as long in every process.
    monkeypatch.setattr(text, "instruction_text", compared)
    compiled()
    assert sum(seen.values()) > 300
    emit = Emit(text.CodeFunction(ir.Module(), ir.FunctionType(F32, [F32, I32]), "f").append_basic_block("entry"))
    less = emit.fcmp_ordered("<", *2 * emit.function.args[:1])
    sum_of_both = emit.fadd(*2 * emit.function.args[:1], flags=["contract"])
    emit.ret(emit.select(less, emit.extract_element(emit.splat(sum_of_both), emit.function.args[1]), sum_of_both))
    assert "fadd contract float" in str(emit.module)
    assert text._TABLE.keys() <= seen.keys()


def test_names_are_given_once() -> None:
    function = text.CodeFunction(ir.Module(), ir.FunctionType(I32, [I32]), "f")
    emit = Emit(function.append_basic_block("entry"))
    blocks = [emit.append_basic_block(name) for name in ("entry", "entry", "entry.1", 'a "quoted" one')]
    values = [emit.add(function.args[0], function.args[0]) for _ in range(3)]
    names = [one.name for one in (*function.args, emit.block, *blocks, *values)]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="two values of a function are called entry"):
        function.scope.register("entry")
    assert '"a \\22quoted\\22 one":' in str(emit.module)
