"""PTX to cubin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from memlane.compile import assemble, cuda, cuda_to_ptx, toolkit
from memlane.compile.cubin import kernel_usage
from memlane.errors import CompileError, MissingDependency, PtxTypeError
from memlane.ptx import parse

SOURCE = """
__global__ void plain(float* p) { p[0] = p[1] * p[2] + p[3]; }
__global__ void shared(float* p) { __shared__ float s[300]; s[threadIdx.x] = p[threadIdx.x]; __syncthreads(); *p = s[*(int*)p]; }
__global__ void local(int* p) { int a[64]; for (int i = 0; i < 64; ++i) a[i] = p[i]; for (int i = 0; i < 64; ++i) p[i] = a[p[i] & 63]; }
__device__ __noinline__ int helper(int* p) { return *p + 1; }
__global__ void calls(int* p) { *p = helper(p); }
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_what_the_elf_file_says_is_what_the_assembler_reports(arch: str) -> None:
    cubin = assemble(cuda_to_ptx(SOURCE, arch=arch).text, arch=arch)
    reported = {}
    for block in cubin.log.split("Compiling entry function ")[1:]:
        used = re.search(r"Used (\d+) registers", block)
        memory = re.search(r"(\d+) bytes smem", block.split("\n", 4)[3])
        stack = re.search(r"(\d+) bytes stack frame", block)
        assert used
        assert stack
        reported[block.split("'")[1]] = (int(used[1]), int(memory[1]) if memory else 0, int(stack[1]))
    assert {name: (u.registers, u.shared_bytes, u.local_bytes) for name, u in cubin.kernels.items()} == reported
    assert {re.sub(r"_Z\d+|P.$", "", name) for name in reported} == {"plain", "shared", "local", "calls"}


def test_what_the_system_reserves_is_none_of_the_kernels() -> None:
    """Also in cubins that have no symbol for its size."""
    cubin = assemble(cuda_to_ptx(SOURCE).text).data
    size = b".nv.reservedSmem.cap"
    assert cubin.count(size) == 1
    assert kernel_usage(cubin.replace(size, size[:-3] + b"xyz")) == kernel_usage(cubin)
    assert {usage.shared_bytes for usage in kernel_usage(cubin).values()} == {0, 1200}


def disassembled(cubin: bytes, path: Path) -> str:
    path.write_bytes(cubin)
    tool = toolkit.include_directories()[0].parent / "bin" / "nvdisasm"
    return subprocess.run([tool, "-g", path], check=True, capture_output=True, text=True).stdout


def test_fused_multiplication_and_addition_can_be_forbidden_and_lines_stay(tmp_path: Path) -> None:
    # Unsuffixed mul and add: what the assembler may fuse.
    ptx = (
        cuda_to_ptx(SOURCE, name="fused.cu", options=["--fmad=false"])
        .text.replace("mul.rn.f32", "mul.f32")
        .replace("add.rn.f32", "add.f32")
    )
    fused = disassembled(assemble(ptx).data, tmp_path / "fused")
    apart = disassembled(assemble(ptx, fmad=False).data, tmp_path / "apart")
    assert "FFMA" in fused
    assert "FFMA" not in apart
    assert "FMUL" in apart
    assert re.search(r'File "[^"]*fused\.cu", line 2', apart)


def test_a_module_assembles_like_its_text() -> None:
    assert assemble(cuda(SOURCE)).kernels == assemble(cuda_to_ptx(SOURCE).text).kernels


def test_an_error_names_line_and_text() -> None:
    ptx = cuda_to_ptx("__global__ void k(int* p) { *p += 1; }").text.replace("add.s32", "addd.s32")
    number = next(i for i, line in enumerate(ptx.splitlines(), 1) if "addd" in line)
    with pytest.raises(CompileError) as caught:
        assemble(ptx)
    assert str(caught.value).startswith(
        "<ptx> does not assemble for sm_90\n<ptx>:" + f"{number}: error : Not a name of any known instruction: 'addd'"
    )
    assert "    addd.s32" in caught.value.log


def test_ptx_that_is_too_new_or_for_another_gpu_is_told_so() -> None:
    ptx = cuda_to_ptx("__global__ void k(int* p) { *p += 1; }").text
    with pytest.raises(
        CompileError, match=r"<ptx> is PTX of version 9\.9, and the assembler knows versions up to 9\.\d; install a newer one"
    ):
        assemble(ptx.replace(".version 9.0", ".version 9.9"))
    with pytest.raises(CompileError, match=r"<ptx> is for sm_90 and cannot be assembled for sm_80"):
        assemble(ptx, arch="sm_80")


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("sm_20", "the assembler does not know sm_20"),
        ("sm_130", "the assembler does not know sm_130"),
        ("sm_1", "no architecture 'sm_1'; write it like sm_90"),
        ("90", "no architecture '90'; write it like sm_90"),
    ],
)
def test_other_architectures_are_refused(arch: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        assemble(".version 8.0\n.target sm_50\n.address_size 64\n", arch=arch)
    assert str(caught.value) == message


def test_unknown_options_are_refused() -> None:
    with pytest.raises(CompileError, match=r"the assembler refuses -arch=sm_90 .*--nonsense"):
        assemble(".version 8.0\n.target sm_50\n.address_size 64\n", options=["--nonsense"])


def test_what_is_no_cubin_is_refused() -> None:
    for data in (b"", b"\x7fELF\x02", b"PK\x03\x04" * 40):
        with pytest.raises(CompileError, match="the assembler made no readable cubin"):
            kernel_usage(data)


def test_without_the_wheels_the_command_that_installs_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingDependency, match=r"assembling PTX needs packages .* pip install 'memlane\[cuda\]'"):
        assemble(".version 9.0\n.target sm_90\n.address_size 64\n// never seen before\n")


def test_a_module_that_would_bring_the_assembler_down_is_refused_with_its_place() -> None:
    halves = ", ".join(f"h{number}" for number in range(8))
    body = f".reg .b16 {halves}; .reg .b64 a;\n    ld.param.u64 a, [p];\n    ld.global.v8.b16 {{{halves}}}, [a];\n    ret;"
    text = f".version 9.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) {{\n    {body}\n}}\n"
    with pytest.raises(PtxTypeError, match=r"a vector of 8 has elements of 32 bits, not `\.b16`") as caught:
        assemble(parse(text, "eight.ptx"))
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (7, 15)
