"""Where dynamic shared memory begins in a cubin."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.compile import assemble
from memlane.compile.cubin import KernelUsage
from memlane.compile.placement import check_dynamic_shared
from memlane.errors import CompileError
from memlane.ptx import Module, parse
from tests.emulate.running import emulator


def module(alignment: int) -> Module:
    """A kernel with a static barrier in front of dynamic memory, and one with the barrier alone."""
    return parse(
        f""".version 8.0
.target sm_90
.address_size 64
.extern .shared .align {alignment} .b8 tile[];
.visible .entry both(.param .u64 out) {{
    .reg .b32 a, b; .reg .b64 o; .shared .align 8 .b64 full;
    ld.param.u64 o, [out]; mov.u32 a, tile; mov.u32 b, full; st.global.u32 [o], a; st.global.u32 [o+4], b; ret;
}}
.visible .entry barrier(.param .u64 out) {{
    .reg .b32 b; .reg .b64 o; .shared .align 8 .b64 full;
    ld.param.u64 o, [out]; mov.u32 b, full; st.global.u32 [o], b; ret;
}}""",
        "k.ptx",
    )


@pytest.mark.parametrize("alignment", [16, 128, 1024])
def test_the_assembler_here_obeys(alignment: int) -> None:
    """The section of the kernel ends where its dynamic part begins."""
    kernels = assemble(module(alignment)).kernels
    assert kernels["both"].shared_bytes == alignment
    assert kernels["barrier"].shared_bytes == 8


@pytest.mark.parametrize("alignment", [4, 16, 128, 1024])
def test_the_emulator_puts_it_there_too(alignment: int) -> None:
    target, cubin = emulator(), assemble(module(alignment)).kernels
    kernels = target.load(module(alignment))
    out = target.zeros(2, np.uint32)
    kernels["both"][1, 1, target.default_stream, 64](out)
    assert out.numpy().tolist() == [cubin["both"].shared_bytes, 0]
    for name, usage in cubin.items():
        assert target.max_shared_bytes(kernels[name]) == target.chip.launch_limits.max_shared_bytes - usage.shared_bytes


def test_another_that_does_not_is_refused() -> None:
    usage = {name: KernelUsage(registers=8, shared_bytes=nbytes, local_bytes=0) for name, nbytes in (("both", 16), ("barrier", 8))}
    check_dynamic_shared(module(16), usage)
    told = r"dynamic shared memory tile of kernel both 16 bytes behind a multiple of the 128 .*: install .* --upgrade nvidia-nvjitlink"
    with pytest.raises(CompileError, match=told):
        check_dynamic_shared(module(128), usage)
