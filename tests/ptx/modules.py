"""Modules and functions that several tests of the package start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memlane import ptx

ROOT = Path(__file__).parents[2]
CASES = sorted((ROOT / "tests" / "cases" / "ptx").glob("*.ptx"))
EXAMPLES = sorted((ROOT / "examples" / "ptx").glob("*.ptx"))

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def kernel(body: str, params: str = ".param .u64 a") -> ptx.Function:
    """The kernel `k` with this body; the registers of every type stand ready as `%p %h %r %rd %f %fd`, sixteen of each."""
    return ptx.parse(module_text(body, params), "k.ptx").kernels["k"]


def module_text(body: str, params: str = ".param .u64 a") -> str:
    """The text of a module with the kernel `k`; the first line of `body` is line 6 of it."""
    registers = ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %fd<16>;"
    return f"{HEAD}.entry k({params}) {{\n{registers}\n{body}\n}}\n"


def first(body: str) -> ptx.Instruction:
    """The first instruction of a body."""
    return next(instructions(body))


def instructions(body: str) -> Iterator[ptx.Instruction]:
    """The instructions of a body."""
    function = kernel(body)
    assert function.body is not None
    return function.body.instructions()
