"""Running PTX on the emulator from tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.launch import LoadedModule
from memlane.ptx import Module, parse

EXAMPLES = Path(__file__).parents[2] / "examples" / "ptx"
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
LOCK = """
TRY:
    atom.global.cas.b32 %r1, [%out], 0, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra TRY;
    ld.volatile.global.u32 %r2, [%out+4];
    add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%out+4], %r2;
    membar.gl;
    atom.global.exch.b32 %r1, [%out], 0;
    ret;
"""
"""A body for `program` in which each lane counts itself in the second word of `%out`, under a lock in the first."""


def emulator(**options: int) -> Emulator:
    """A fresh emulated H200."""
    return Emulator(load("h200"), **options)


@cache
def example_module(name: str) -> Module:
    path = EXAMPLES / f"{name}.ptx"
    return parse(path.read_text(), path.name)


def example(target: Emulator, name: str) -> LoadedModule:
    """The kernels of an example."""
    return target.load(example_module(name))


def program(body: str, *, params: str = ".param .u64 out", before: str = "", registers: str = "") -> str:
    """A module with one kernel `k`. `%out` holds the first parameter, `%tid` the thread, and `%mine` the address of its own 8 bytes."""
    return f"""{HEAD}{before}
.visible .entry k({params}) {{
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<64>;
    .reg .f32 %f<32>;
    .reg .f64 %fd<32>;
    .reg .b32 %tid;
    .reg .b64 %out, %mine;
    {registers}
    ld.param.u64 %out, [out];
    mov.u32 %tid, %tid.x;
    mad.wide.u32 %mine, %tid, 8, %out;
    {body}
}}
"""


def run(
    body: str, *, threads: int = 32, blocks: int = 1, dtype: npt.DTypeLike = np.uint32, before: str = "", shared: int = 0, **options: int
):
    """Run a kernel of one output array of 8 bytes a thread, and give what it left there, as `dtype`, the first element of each 8 bytes."""
    target = emulator(**options)
    out = target.zeros(threads * blocks, np.uint64)
    target.load(parse(program(body, before=before), "test.ptx"))["k"][blocks, threads, target.default_stream, shared](out)
    words = out.numpy().view(np.dtype(dtype))
    return words.reshape(threads * blocks, -1)[:, 0]
