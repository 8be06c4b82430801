"""Libraries of headers that know NVRTC are left to the compiler, as CUTLASS and CuTe must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.compile import cuda, nvrtc
from memlane.compile.frontend import cuda_to_ptx
from memlane.errors import CompileError

CONFIG = """#pragma once
#if defined(__CUDACC_RTC__)
#define MINI_HERE 1
#else
#error the host's part of the library
#endif
#define MINI_DEVICE __forceinline__ __device__
#define MINI_FN MINI_DEVICE
"""
TENSOR = """#pragma once
#include "config.hpp"
#include <mini/detail/more.hpp>
namespace mini {
template <int... N> struct Shape {};
enum { FP_NAN =
#define FP_NAN 0
  FP_NAN };
template <class T> struct Tensor { T* data; MINI_DEVICE T& operator()(int i) const { return data[i]; } };
}
"""
MORE = "#pragma once\n#define MORE_FN MINI_FN\n"
PROGRAM = """#include <mini/tensor.hpp>
#include <vector>
MORE_FN float twice(float x) { return 2 * x; }
template <class Tile, class A, class B, class C, class D, class E, class F, class G, class H, class I, class J, class K, class L>
__global__ void scale(Tile, mini::Tensor<A> x, B, C, D, E, F, G, H, I, J, K, L last) { x(threadIdx.x) = twice(x(threadIdx.x)) + last; }
template <class T> void run(T* data, int n) {
  std::vector<int> sizes(n);
  auto tile = mini::Shape<4, 8>{};
  scale<<<1, 32>>>(tile, mini::Tensor<T>{data}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11L);
}
int main() { run((float*)nullptr, 1); }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "include/mini/detail").mkdir(parents=True)
    for name, text in (("config.hpp", CONFIG), ("tensor.hpp", TENSOR), ("detail/more.hpp", MORE)):
        (tmp_path / "include/mini" / name).write_text(text)
    return tmp_path / "include"


def test_a_library_that_knows_nvrtc_is_compiled_as_it_is(library: Path) -> None:
    """Its macros still say what is for the device, and findings may quote its lines."""
    compiled = cuda_to_ptx(PROGRAM, include=[library])
    begun = f"void scale<mini::Shape<4, 8>, float, {'int, ' * 10}long>(mini::Shape<4, 8>, mini::Tensor<float>, int"
    assert [name.startswith(begun) for name in compiled.kernels.values()] == [True]
    assert compiled.notes == ()
    assert compiled.sources[f"{library}/mini/tensor.hpp"] == TENSOR
    assert list(cuda(PROGRAM, include=[library]).kernels) == list(compiled.kernels)


def test_the_bodies_of_kernels_are_not_compiled_to_find_launches(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    compile_request = nvrtc.compile_request

    def seen(request: nvrtc.Request) -> nvrtc.Answer:
        asked.append(request.text)
        return compile_request(request)

    monkeypatch.setattr(nvrtc, "compile_request", seen)
    cuda_to_ptx(PROGRAM, include=[library])
    reading_the_host = [text for text in asked if "int main()" in text]
    assert reading_the_host
    assert not any("twice(x(" in text for text in reading_the_host)
    assert "twice(x(" in asked[-1]


def test_a_library_that_the_compiler_refuses_is_read_after_all(library: Path) -> None:
    """A folder of the author's own, of which one header asks for NVRTC, and the others are for nvcc."""
    (library / "mini/tensor.hpp").write_text(
        TENSOR.replace("namespace mini {", "#include <vector>\nnamespace mini {\nstd::vector<int> sizes();", 1)
    )
    assert len(cuda_to_ptx(PROGRAM, include=[library]).kernels) == 1


def test_an_error_of_the_program_is_told_with_its_line(library: Path) -> None:
    with pytest.raises(CompileError, match=r'<cuda>\(3\): error: identifier "y" is undefined'):
        cuda_to_ptx(PROGRAM.replace("return 2 * x", "return 2 * y"), include=[library])
