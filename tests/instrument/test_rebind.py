"""A twin that uses the variables of the original: the references, and that assembler and emulator take them."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.chip import load
from memlane.compile import assemble
from memlane.emulate import Emulator
from memlane.errors import MissingDependency
from memlane.instrument import copied_variables, rebind, shared_variables, trace
from memlane.ptx import Module, parse, print_module

PTX = """\
.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 result) handler(.param .b32 value);
.visible .global .align 8 .u32 total[4] = {1, 2, 3, 4};
.global .u64 where = total+8;
.global .u64 anywhere = generic(total)+4;
.global .u64 handlers[1] = {handler};
.const .u32 scale = 3;
.const .u64 pointer = generic(total)+12;
.extern .shared .b8 dynamic[];
.global .texref texture;

.func (.param .b32 result) handler(.param .b32 value)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [value];
    ld.global.u32 %r2, [total+12];
    add.u32 %r1, %r1, %r2;
    st.param.b32 [result], %r1;
    ret;
}

.visible .entry use(.param .u64 out)
{
    .reg .b64 %rd<9>;
    .reg .b32 %r<12>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [total+4];
    mov.u64 %rd2, total+8;
    ld.global.u32 %r2, [%rd2];
    cvta.global.u64 %rd3, total;
    ld.u32 %r3, [%rd3];
    ld.global.u64 %rd4, [where];
    ld.global.u32 %r4, [%rd4];
    ld.const.u64 %rd5, [pointer];
    ld.u32 %r5, [%rd5];
    red.global.add.u32 [total], 10;
    ld.const.u32 %r6, [scale];
    {
        .reg .b64 total;
        mov.u64 total, 7;
        cvt.u32.u64 %r7, total;
    }
    { .param .b32 given; .param .b32 back;
      st.param.b32 [given], %r7;
      call (back), handler, (given);
      ld.param.b32 %r8, [back]; }
    st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};
    ret;
}
"""
ADDRESSES = {"total": 0x7F1234567890, "where": 0x7F12345678A0, "anywhere": 0x7F12345678A8}


@pytest.fixture(scope="module")
def module() -> Module:
    return parse(PTX, "use.ptx")


def test_shared_are_variables_in_global_memory_copied_those_in_constant_memory(module: Module) -> None:
    assert shared_variables(module) == ("total", "where", "anywhere"), "no table of functions and no texture"
    assert copied_variables(module) == ("scale", "pointer")


def test_no_reference_and_no_declaration_is_left(module: Module) -> None:
    rebound = rebind(module, ADDRESSES)
    assert not set(ADDRESSES) & set(rebound.module.variables)
    assert {"handlers", "texture", "scale", "dynamic"} <= set(rebound.module.variables)
    assert rebound.module.variables["pointer"].initial == str(ADDRESSES["total"] + 12)
    assert rebound.preceding == {"handler": 1, "use": 2}
    text = print_module(rebound.module)
    assert f"mov.u64 %rd2, {ADDRESSES['total'] + 8};" in text
    assert "cvt.u32.u64 %r7, total;" in text, "a register of that name is another thing"
    assert parse(text) == rebound.module


@pytest.mark.parametrize("traced", [False, True])
def test_it_assembles(module: Module, traced: bool) -> None:
    rebound = rebind(trace(module).module if traced else module, ADDRESSES).module
    try:
        assert set(assemble(rebound).kernels) == {"use"}
    except MissingDependency as absent:
        pytest.skip(str(absent))


def test_debug_sections_name_addresses(module: Module) -> None:
    debug = parse(PTX + "\n.section .debug_info\n{\n.b8 3\n.b64 total\n.b64 total_of_others\n}\n")
    text = print_module(rebind(debug, ADDRESSES).module)
    assert f".b64 {ADDRESSES['total']}\n.b64 total_of_others" in text


def test_it_runs_on_the_variables_of_the_original(module: Module) -> None:
    target = Emulator(load("h200"))
    original = target.load(module)
    twin = target.load(rebind(module, {name: target.symbol(original, name)[0] for name in shared_variables(module)}).module)
    out = target.zeros(8, np.uint32)
    for loaded, first in ((original, 1), (twin, 11), (original, 21)):
        loaded["use"][1, 1](out)
        assert out.numpy().tolist() == [2, 3, first, 3, 4, 3, 7, 11]
