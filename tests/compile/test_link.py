"""Programs of several files, linked: `extern __device__` across `.cu` files, PTX and assembled code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memlane as ml
from memlane.compile import assemble, cuda, cuda_to_ptx, link, toolkit
from memlane.errors import CompileError, LinkError, UnsupportedPtx
from memlane.launch.kernel import module_digest

MAIN = """#include "model.h"
static __device__ int offset = 100;
__global__ void apply(float* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = twice(scale(p[i])) + table[i % 4] + offset;
}
"""
HEADER = """#pragma once
extern __device__ float scale(float x);
extern __constant__ float factor;
extern __device__ int table[4];
__device__ inline float twice(float x) { return x * 2; }
"""
OTHER = """#include "model.h"
__device__ int table[4] = {1, 2, 3, 4};
__constant__ float factor = 3;
static __device__ int offset = 7;
__device__ __noinline__ float shifted(float x) { return x + offset; }
__device__ float scale(float x) { return twice(shifted(x)) * factor; }
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("main.cu", MAIN), ("model.h", HEADER), ("other.cu", OTHER)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected(x: np.ndarray) -> np.ndarray:
    return np.asarray(2 * (2 * (x + 7) * 3) + np.arange(x.size) % 4 + 1 + 100, "f4")


def applied(module: ml.Module) -> np.ndarray:
    target = ml.target("emulator:h200")
    array = target.array(np.arange(100, dtype="f4"))
    target.load(module)["apply"][2, 64](array, 100)
    return array.numpy()


def test_files_of_a_program(program: Path) -> None:
    module = link("main.cu", "other.cu")
    assert list(module.kernels) == ["_Z5applyPfi"]
    assert set(module.sources) == {"main.cu", "other.cu", "model.h"}
    np.testing.assert_array_equal(applied(module), expected(np.arange(100)))


def test_modules_and_ptx_in_any_order(program: Path) -> None:
    Path("other.ptx").write_text(cuda_to_ptx("other.cu", relocatable=True).text)
    module = link("other.ptx", cuda("main.cu", relocatable=True))
    np.testing.assert_array_equal(applied(module), expected(np.arange(100)))
    assemble(module)


def test_accesses_of_linked_functions_are_counted_at_their_lines(program: Path) -> None:
    target = ml.target("emulator:h200")
    array = target.array(np.zeros(128, "f4"))
    counts = ml.count(target.load(link("main.cu", "other.cu"))["apply"][2, 64], array, 128)
    places = {(one.site.file, one.site.line) for one in counts.sites}
    assert ("main.cu", 5) in places
    assert any(file == "other.cu" and OTHER.splitlines()[line - 1].count("offset") for file, line in places)


def relocatable_cubin(path: str) -> bytes:
    """What `nvcc -rdc=true -cubin` makes of a file."""
    nvrtc = toolkit.nvrtc_bindings()
    headers = [(Path("model.h").read_bytes(), b"model.h")]
    _, handle = nvrtc.nvrtcCreateProgram(Path(path).read_bytes(), path.encode(), 1, [headers[0][0]], [headers[0][1]])
    assert nvrtc.nvrtcCompileProgram(handle, 2, [b"-arch=sm_90", b"-rdc=true"])[0] == 0
    data = bytes(nvrtc.nvrtcGetCUBINSize(handle)[1])
    nvrtc.nvrtcGetCUBIN(handle, data)
    return data


def test_assembled_code_is_linked_for_a_gpu_and_refused_by_the_emulator(program: Path) -> None:
    Path("other.cubin").write_bytes(relocatable_cubin("other.cu"))
    module = link("main.cu", "other.cubin")
    linked, alone = assemble(module).data, assemble(link("main.cu", "other.cu")).data
    assert b"_Z7shiftedf" in linked
    assert b"_Z7shiftedf" in alone
    message = r"^other.cubin: assembled code runs only on a GPU, not on the emulator; link the .cu or .ptx file that it was made from$"
    with pytest.raises(UnsupportedPtx, match=message):
        ml.target("emulator:h200").load(module)
    again = link(module, ml.parse(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e () { ret; }", "e.ptx"))
    assert [name for name, _ in again.objects] == ["other.cubin"]
    assert module_digest(module) != module_digest(replace(module, objects=()))


def test_assembled_code_that_does_not_fit(program: Path) -> None:
    Path("unrelated.cubin").write_bytes(relocatable_cubin("main.cu"))
    with pytest.raises(
        LinkError, match=r"^`apply\(float\*, int\)` is defined in main.cu and again in unrelated.cubin; keep one definition$"
    ):
        link("main.cu", "unrelated.cubin")
    Path("other.cu").write_text("__device__ int nothing;")
    Path("other.cubin").write_bytes(relocatable_cubin("other.cu"))
    message = r"^`scale\(float\)`, which main.cu uses, is not defined in main.cu, other.cubin; link the file that defines it too$"
    with pytest.raises(LinkError, match=message):
        assemble(link("main.cu", "other.cubin"))
    with pytest.raises(LinkError, match=r"^other.cubin has no code for sm_100; make it with nvcc -arch=sm_100 -rdc=true$"):
        assemble(link("main.cu", "other.cubin"), arch="sm_100")


def test_what_cannot_be_linked_is_told(program: Path) -> None:
    with pytest.raises(
        LinkError, match=r"^`\w+(\(float\))?`, which `apply\(float\*, int\)` \(main.cu:5\) uses, is not defined in main.cu; link"
    ):
        link("main.cu")
    with pytest.raises(LinkError, match=r"is defined in other.cu and again in other.cu; keep one definition, or make it `static`$"):
        link("main.cu", "other.cu", "other.cu")
    with pytest.raises(LinkError, match=r"^cannot read absent.ptx: No such file or directory$"):
        link("main.cu", "absent.ptx")
    Path("notes.txt").write_text("no code")
    with pytest.raises(LinkError, match=r"^notes.txt is neither CUDA C\+\+ \(.cu\), nor PTX \(.ptx\), nor assembled code"):
        link("main.cu", "notes.txt")
    with pytest.raises(
        LinkError, match=r"^there is nothing to link that memlane can run: name at least one .cu or .ptx file, or a module$"
    ):
        link()
    Path("bytes.ptx").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LinkError, match=r"^bytes.ptx is not text, so it is not PTX$"):
        link("main.cu", "bytes.ptx")


def test_a_file_without_a_kernel_is_refused_where_it_is_not_linked(program: Path) -> None:
    with pytest.raises(CompileError, match=r"^other.cu has no kernel; name a file that defines one: main.cu$"):
        cuda("other.cu")
    assert not cuda("other.cu", relocatable=True).kernels


def test_what_a_kernel_alone_lacks_is_told(program: Path) -> None:
    target = ml.target("emulator:h200")
    kernel = target.load(cuda("main.cu"))["apply"]
    with pytest.raises(
        UnsupportedPtx, match=r"a function without a body: link the file that defines it: memlane.link\(...\), or --link FILE"
    ):
        kernel[1, 32](target.array(np.zeros(32, "f4")), 32)


def test_dynamic_parallelism_is_refused_by_name_where_it_is_linked() -> None:
    source = "__global__ void child(int* p) { *p = 1; }\n__global__ void parent(int* p) { child<<<1, 1>>>(p); }\n"
    message = (
        r"^`parent\(int\*\)` \(cdp.cu:2\) calls the CUDA runtime \(`\w+`\), but memlane does not run kernels that launch kernels or call"
    )
    with pytest.raises(LinkError, match=message):
        link(cuda(source, name="cdp.cu", relocatable=True))
    with pytest.raises(CompileError, match=r"\(dynamic parallelism\): launch the inner kernel from the host"):
        cuda("__global__ void k(int** p) { cudaMalloc(p, 4); }", relocatable=True)
