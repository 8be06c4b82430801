"""CUDA C++ as people have it, through the compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memlane.compile import CompiledPtx, cuda, cuda_to_ptx, toolkit
from memlane.errors import CompileError, MissingDependency
from memlane.launch import find_kernel
from memlane.packages import install_command

PROGRAMS = Path(__file__).parent / "programs"


def lines_of(compiled: CompiledPtx, opcode: str) -> set[str]:
    """The source lines, stripped, to which the line table assigns the instructions that begin with `opcode`."""
    (text, *_), found, line = compiled.sources.values(), set(), 0
    for row in compiled.text.splitlines():
        if location := re.match(r"\s*\.loc\s+1 (\d+)", row):
            line = int(location[1])
        elif row.strip().startswith(opcode):
            found.add(text.splitlines()[line - 1].strip())
    return found


def test_an_application_compiles_with_everything_it_launches() -> None:
    compiled = cuda_to_ptx(PROGRAMS / "application.cu")
    assert sorted(compiled.kernels.values()) == [
        "particles",
        "void reduce<double, 16>(double const*, double*, int)",
        "void reduce<float, 128>(float const*, float*, int)",
        "void reduce<float, 256>(float const*, float*, int)",
        "void reduce<int, 64>(int const*, int*, int)",
        "void reduce<int, 8>(int const*, int*, int)",
    ]
    assert {"reduce<float, 256>", "reduce<double, square(4)>", "reduce<int, (2 * 32)>"} <= set(compiled.instantiated)
    assert any("// the store of particles" in line for line in lines_of(compiled, "st.global"))
    notes = "\n".join(compiled.notes)
    assert "header helper_cuda.h was not found and was left out" in notes
    assert "typedef std::vector<float> FloatVector;" in notes


def test_all_shapes_of_declarations_compile_with_headers_of_the_author() -> None:
    compiled = cuda_to_ptx(PROGRAMS / "shapes.cu")
    assert sorted(compiled.kernels.values()) == [
        "half_kernel(__half*)",
        "neg_kernel(float*, int)",
        "outer::inner::(anonymous namespace)::hidden(float*)",
        "outer::inner::stat(lib::Vec2<float>*)",
        "square_kernel(float*, int)",
        "uses_stack(int*)",
        "void apply<Functor>(float*, Functor)",
    ]
    assert compiled.notes == ()
    assert [Path(name).name for name in compiled.sources] == ["shapes.cu", "library.cuh", "detail.h"]
    assert set(re.findall(r'\.file\s+\d+ "([^"]*)"', compiled.text)) >= set(compiled.sources)


def test_cub_and_cuda_std_work_in_kernels_and_are_ignored_in_host_code() -> None:
    compiled = cuda_to_ptx(PROGRAMS / "cccl.cu")
    assert [kernel.split("(")[0] for kernel in compiled.kernels.values()] == ["sum", "cplx"]


@pytest.mark.parametrize(
    ("headers", "expression"),
    [
        ("cstdint", "uint32_t(*p) + std::uint64_t(2) + UINT32_MAX"),
        ("climits cfloat", "INT_MAX + FLT_MAX + DBL_EPSILON"),
        ("cmath", "std::sqrt(*p) + std::fabs(*p) + M_PI + (std::isnan(*p) ? INFINITY : NAN)"),
        ("algorithm", "std::min(*p, 2.0f) + std::max(1, 2)"),
        ("limits", "std::numeric_limits<float>::max()"),
        ("type_traits", "std::is_same<float, std::remove_const_t<const float>>::value"),
        ("stddef.h stdlib.h", "offsetof(float4, z) + EXIT_FAILURE"),
        ("cstdio iostream vector string map chrono thread unistd.h sys/time.h", "*p + 1"),
        ("cstring", "(std::memcpy(p, p + 4, 8), 1)"),
    ],
)
def test_standard_headers_resolve(headers: str, expression: str) -> None:
    includes = "".join(f"#include <{header}>\n" for header in headers.split())
    assert cuda_to_ptx(f"{includes}__global__ void k(float* p) {{ *p = {expression}; }}").log == ""


def test_printf_and_assert_work_in_kernels() -> None:
    text = cuda_to_ptx('#include <cassert>\n#include <cstdio>\n__global__ void k(int* p) { assert(*p); std::printf("%d", *p); }').text
    assert "__assertfail" in text
    assert "vprintf" in text


def test_options_reach_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "width.h").write_text("#define WIDTH 3\nvoid host_function();\n")
    source = "#include <width.h>\ntemplate <int N> __global__ void k(int* p) { *p = N * WIDTH * FACTOR; if constexpr (N > 1) *p += 1; }"
    compiled = cuda_to_ptx(
        source, name="k.cu", arch="sm_80", std="c++20", include=[tmp_path], define=["FACTOR=5"], instantiate=["k<7>"], lineinfo=False
    )
    assert ".target sm_80" in compiled.text
    assert ".loc" not in compiled.text
    assert re.search(r"mov\.u32\s+%r\d+, 106;", compiled.text)
    assert list(compiled.instantiated) == ["k<7>"]


def test_fma_can_be_forbidden() -> None:
    source = "__global__ void k(float* p) { p[0] = p[1] * p[2] + p[3]; }"
    assert "fma.rn.f32" in cuda_to_ptx(source).text
    assert "fma.rn.f32" not in cuda_to_ptx(source, options=["--fmad=false"]).text


def test_a_module_knows_its_sources_names_and_lines() -> None:
    path = PROGRAMS / "application.cu"
    module = cuda(path)
    assert "particles" in [kernel.title for kernel in module.kernels.values()]
    assert next(iter(module.sources.values())) == path.read_text()
    name = module.files[1]
    assert module.sources[name] == path.read_text()
    body = module.kernels["particles"].body
    assert body is not None
    stores = [i for i in body.instructions() if i.name.startswith("st.global")]
    assert stores
    for store in stores:
        assert store.location is not None
        assert "// the store of particles" in path.read_text().splitlines()[store.location.line - 1]


def test_a_kernel_answers_to_the_instantiation_that_was_asked_for() -> None:
    source = "enum How { SUM, MAX };\ntemplate <class T, How H> __global__ void fold(T* p) { *p = H == SUM ? 1 : 2; }"
    module = cuda(source, instantiate=["fold<float, SUM>", "fold<float, MAX>"])
    first, second = (find_kernel(module, f"fold<float,{how}>") for how in ("SUM", "MAX"))
    assert (first.title, second.title) == ("void fold<float, (How)0>(float*)", "void fold<float, (How)1>(float*)")


def test_what_was_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "memlane.compile")
    cuda("#include <nowhere.h>\ntypedef std::deque<int> D;\n__global__ void k(int* p) { *p = 1; }", name="left.cu")
    assert [message.splitlines()[0] for message in caplog.messages] == [
        "header nowhere.h was not found and was left out",
        "left out because it does not compile for the device: left.cu(2): error: qualified name is not allowed",
    ]


def test_integer_types_need_no_header() -> None:
    compiled = cuda_to_ptx("__global__ void k(int64_t* p, uint n, ushort m) { *p = (uint8_t)n + m; }", name="types.cu")
    assert list(compiled.kernels.values()) == ["k(long*, unsigned int, unsigned short)"]
    assert "ld.param.b8" in cuda_to_ptx("__global__ void k(int* p, uint n) { *p = n; }", define=["uint=char"]).text.replace("s8", "b8")
    own = "typedef unsigned int uint;\nnamespace mine { using uint64_t = unsigned char; }\n"
    assert "st.global.b8" in cuda_to_ptx(f"{own}__global__ void k(mine::uint64_t* p, uint n) {{ *p = n; }}").text.replace("u8", "b8")


def test_limits_of_numbers_come_with_any_missing_header() -> None:
    kernel = "__global__ void k(float* p, int* q) { *p = FLT_MAX; *q = INT_MAX; }"
    text = cuda_to_ptx(f"#include <frame/tensor.h>\n{kernel}").text
    assert "2139095039" in text  # the bits of the largest float
    assert "2147483647" in text
    assert 'identifier "FLT_MAX" is undefined' in refusal(kernel).log


def test_a_device_function_that_needs_a_missing_header_goes_if_no_kernel_calls_it() -> None:
    source = """#include <frame/tensor.h>
__device__ frame::Half half_of(frame::Half x) { return x; }
__device__ float twice(float x) { return x + x; }
struct Sum {
    __device__ static frame::Half start() { return frame::Half(); }
    __device__ static int one() { return 1; }
};
__global__ void k(float* p) { *p = twice(*p) + Sum::one(); }
"""
    compiled = cuda_to_ptx(source, name="part.cu")
    assert list(compiled.kernels.values()) == ["k(float*)"]
    assert compiled.notes[0] == "header frame/tensor.h was not found and was left out"
    assert {note.partition(": error")[0] for note in compiled.notes[1:]} == {
        f"left out because it does not compile for the device: part.cu({line})" for line in (2, 5)
    }
    error = refusal(f"{source}__global__ void h(float* p) {{ *p = half_of(*p); }}")
    assert 'identifier "half_of" is undefined' in error.log
    assert "Before that, these declarations were left out because they did not compile:\nbad.cu(2): error: name followed by" in error.log
    assert error.log.endswith("Header not found: frame/tensor.h; name its directory with -I DIR (include=[DIR] in Python)")
    assert "bad.cu(1): error" in refusal("__device__ Half f(Half x) { return x; }\n__global__ void k(int* p) { *p = 1; }").log


def test_the_same_source_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "__global__ void only_once(int* p) { *p = 1; }"
    first = cuda_to_ptx(source)
    monkeypatch.setattr(toolkit, "nvrtc_bindings", lambda: pytest.fail("compiled again"))
    assert cuda_to_ptx(source).text == first.text


# -- what goes wrong


def refusal(source: str, **options: object) -> CompileError:
    with pytest.raises(CompileError) as caught:
        cuda_to_ptx(source, name="bad.cu", **options)  # type: ignore[arg-type]
    return caught.value


def test_errors_carry_the_log_with_the_lines_of_the_file() -> None:
    error = refusal("#include <cstdio>\nint main() {\n}\n__global__ void k(int* p) {\n  *p = 1\n}\n")
    assert str(error).startswith("bad.cu does not compile\nbad.cu(6): error: expected a")
    assert error.log.startswith("bad.cu(6)")


def test_an_error_in_a_declaration_that_was_given_up_is_still_told() -> None:
    error = refusal("struct P { int x };\n__global__ void k(P* p) { p->x = 1; }")
    assert "Before that, these declarations were left out because they did not compile:" in error.log
    assert 'bad.cu(1): error: expected a ";"' in error.log


def test_a_missing_system_header_is_named_when_something_fails() -> None:
    error = refusal("#include <magic.h>\n__global__ void k(float* p) { *p = magic(*p); }")
    assert 'identifier "magic" is undefined' in error.log
    assert error.log.endswith("Header not found: magic.h; name its directory with -I DIR (include=[DIR] in Python)")


def test_a_missing_header_of_the_author_is_an_error_even_where_all_else_compiles(tmp_path: Path) -> None:
    source = '// width\n#include "config.h"\n#ifndef WIDE\n#define WIDE 1\n#endif\n__global__ void k(int* p) { *p = WIDE; }'
    told = ': the header "config.h" was not found; name its directory with -I DIR (include=[DIR] in Python)'
    assert str(refusal(source)) == f"bad.cu:2{told}"
    assert str(refusal(source + "\n#include <config.h>")) == f"bad.cu:2{told}"
    (tmp_path / "outer.h").write_text('\n\n#include "config.h"\n')
    error = refusal('#include "outer.h"\n__global__ void k(int* p) { *p = 1; }', include=[tmp_path])
    assert str(error) == f"{tmp_path / 'outer.h'}:3{told}"
    (tmp_path / "config.h").write_text("#define WIDE 4\n")
    assert "mov.u32" in cuda_to_ptx(source, include=[tmp_path]).text


def test_a_missing_header_that_no_conditional_asks_for_is_none() -> None:
    source = '#ifdef ELSEWHERE\n#include "elsewhere.h"\n#endif\n#if __has_include("maybe.h")\n#include "maybe.h"\n#endif\n'
    assert cuda_to_ptx(f"{source}__global__ void k(int* p) {{ *p = 1; }}").notes == ()


def test_a_directory_of_headers_that_does_not_exist(tmp_path: Path) -> None:
    error = refusal("__global__ void k(int* p) { *p = 1; }", include=[tmp_path, tmp_path / "nowhere"])
    assert str(error) == f"there is no directory {tmp_path / 'nowhere'} to search for headers; correct -I (include=... in Python)"


def test_a_program_without_kernels_names_its_templates() -> None:
    source = "template <int N> __global__ void t(int* p) { *p = N; }\ntemplate <typename T> void go() { t<sizeof(T)><<<1, 1>>>(0); }"
    assert str(refusal(source)) == (
        "bad.cu has no kernel, only templates of kernels: t; ask for one with instantiate=('t<...>',) or --instantiate 't<...>'"
    )
    assert str(refusal("int main() { }")) == "bad.cu has no kernel; name a file that defines a `__global__` function"
    assert str(refusal(f"#include <magic.h>\n{source}")).endswith(
        "'t<...>'\nHeader not found: magic.h; name its directory with -I DIR (include=[DIR] in Python)"
    )


def test_an_instantiation_that_is_impossible_is_named() -> None:
    error = refusal("template <int N> __global__ void t(int* p) { *p = N; }", instantiate=["t<1>", "t<float>", "u<2>"])
    assert error.message == "bad.cu cannot instantiate t<float>, u<2>"


def test_unknown_architectures_options_and_files_are_refused(tmp_path: Path) -> None:
    assert str(refusal("__global__ void k() { }", arch="90")) == "no architecture '90'; write it like sm_90"
    assert "invalid value for --gpu-architecture" in str(refusal("__global__ void k() { }", arch="sm_20"))
    assert "unrecognized option --nonsense" in str(refusal("__global__ void k() { }", options=["--nonsense"]))
    with pytest.raises(CompileError, match=r"cannot read .*absent\.cu: No such file or directory"):
        cuda_to_ptx(tmp_path / "absent.cu")


def test_without_the_wheels_the_command_that_installs_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(MissingDependency) as caught:
        cuda_to_ptx("__global__ void never_seen_before() { }")
    assert str(caught.value) == f"compiling CUDA C++ needs packages that are not installed; install them with: {install_command('cuda')}"


def test_without_header_wheels_a_toolkit_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for header in ("cuda_runtime.h", "cccl/cuda/std/cstdint"):
        (tmp_path / "include" / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "include" / header).touch()
    monkeypatch.setattr(toolkit, "_from_wheel", lambda wheel, landmark: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    found = toolkit.include_directories.__wrapped__()
    assert found == (tmp_path / "include", tmp_path / "include" / "cccl")
    monkeypatch.delenv("CUDA_PATH")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    with pytest.raises(MissingDependency, match="compiling CUDA"):
        toolkit.include_directories.__wrapped__()


def test_places_in_the_ptx_do_not_pass_for_places_in_the_program() -> None:
    module = cuda("__global__ void k(int* p) { p[0] = 1; }", name="odd.cu")
    (kernel,) = module.kernels.values()
    assert module.name == "odd.cu"
    assert str(kernel.span).startswith("odd.cu (PTX):")


def test_many_declarations_that_are_left_out_are_one_note(tmp_path: Path) -> None:
    header = tmp_path / "gl.h"
    header.write_text("".join(f"GLenum call{n}(GLenum mode);\ntypedef GLenum (*CALL{n})(int);\n" for n in range(9)))
    source = '#include "gl.h"\ntypedef std::deque<int> D;\n'
    compiled = cuda_to_ptx(f"{source}__global__ void k(int* p) {{ *p = 1; }}", name="many.cu", include=[tmp_path])
    assert [note.partition(": error")[0] for note in compiled.notes] == [
        f"left out because they do not compile for the device: 10 declarations of {header}, many.cu, the first of them {header}(2)"
    ]
    log = refusal(f"{source}__global__ void k(int* p) {{ *p = n; }}", include=[tmp_path]).log
    assert "left out because they did not compile:\n10 declarations of " in log
    assert log.count("CALL") == 1


def test_many_templates_without_a_launch_are_one_note() -> None:
    templates = "".join(f"template <class T> __global__ void k{n}(T* p) {{ *p = {n}; }}\n" for n in range(8))
    assert cuda_to_ptx(f"{templates}__global__ void plain(int* p) {{ *p = 1; }}").notes == (
        "no host code launches 8 kernel templates: k0, k1, k2, k3, k4, k5 and 2 more; ask for one with --instantiate 'k0<...>'",
    )
    assert str(refusal(templates)) == (
        "bad.cu has no kernel, only templates of kernels: k0, k1, k2, k3, k4, k5 and 2 more; ask for one with "
        "instantiate=('k0<...>',) or --instantiate 'k0<...>'"
    )
