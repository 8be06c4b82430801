"""Kernels to instrument, written as PTX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memlane.ptx import Address, Instruction, Module, parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "ptx").glob("*.ptx"))

SCALE = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 out, .param .u64 in, .param .u64 table)
{
	.reg .f32 %f<4>;
	.reg .b64 %rd<4>;
	.loc 1 2 1
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [in];
	ld.param.u64 %rd3, [table];
	.loc 1 3 5
	ld.global.f32 %f1, [%rd2];
	ld.global.nc.f32 %f2, [%rd3+8];
	.loc 1 4 5
	mul.f32 %f3, %f1, %f2;
	st.global.f32 [%rd1], %f3;
	.loc 1 5 1
	ret;
}
.file 1 "scale.cu"
"""
"""One load from read-write memory, one from read-only memory, one store."""


def kernel(
    body: str, params: str = ".param .u64 p", before: str = "", head: str = ".version 8.0\n.target sm_90\n.address_size 64"
) -> Module:
    """A module with the kernel `k` of this body; `before` stands in front of it."""
    return parse(f"{head}\n{before}\n.visible .entry k({params})\n{{\n{body}\n}}\n", "k.ptx")


def example(path: Path) -> Module:
    """A module of `EXAMPLES`."""
    return parse(path.read_text(), path.name)


def instructions(module: Module, name: str = "k") -> list[Instruction]:
    """The instructions of a kernel."""
    body = module.functions[name].body
    assert body is not None
    return list(body.instructions())


def is_access(traced: Instruction, original: Instruction) -> bool:
    """Whether a traced access is the original one; one by a parameter has its address in a register of the probe."""
    addresses = [one for one in original.operands if isinstance(one, Address)]
    made = [one for one in traced.operands if isinstance(one, Address) and one.base != addresses[0].base]
    if made:
        assert [(repr(one.base), one.offset) for one in made] == [("Register(name='%ml_address', negated=False)", addresses[0].offset)]
        traced = replace(traced, operands=tuple(addresses[0] if one is made[0] else one for one in traced.operands))
    return traced == original
