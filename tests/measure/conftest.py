"""A fresh emulator with the kernels that the tests of `measure` launch."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.launch import DeviceArray, LoadedModule
from memlane.ptx import Module, parse

PTX = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry add(.param .u64 data, .param .u32 value)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    ld.global.u32 %r3, [%rd2];
    add.u32 %r3, %r3, %r1;
    st.global.u32 [%rd2], %r3;
    ret;
}

.visible .entry sum(.param .u64 data, .param .u32 times)
{
    .reg .pred %p;
    .reg .b64 %rd<3>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [times];
    mov.u32 %r2, 0;
    mov.u32 %r4, 0;
AGAIN:
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    ld.global.u32 %r3, [%rd2];
    add.u32 %r4, %r4, %r3;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra AGAIN;
    st.global.u32 [%rd1], %r4;
    ret;
}

.visible .entry idle() { ret; }
"""


@pytest.fixture(scope="session")
def module() -> Module:
    return parse(PTX, "kernels.ptx")


@pytest.fixture
def target() -> Emulator:
    return Emulator(load("h200"))


@pytest.fixture
def kernels(target: Emulator, module: Module) -> LoadedModule:
    return target.load(module)


@pytest.fixture
def data(target: Emulator) -> DeviceArray:
    """0, 1, ..., 127."""
    return target.array(np.arange(128, dtype=np.uint32))
