"""What nvcc takes and NVRTC alone does not: the front end makes up the difference, or says what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memlane.compile import CompiledPtx, cuda_to_ptx, toolkit
from memlane.errors import CompileError

MACROS = Path(__file__).parent / "nvcc_macros.txt"
"""`nvcc -arch=sm_90 -std=c++17 -E -Xcompiler -dM` of an empty file, nvcc 13.0.88 with GCC 12.2 and glibc 2.36 on x86-64, without the
macros of glibc's own headers that begin with an underscore."""
NOT_OURS = re.compile(
    r"""
    # what names GCC, on which CUDA's headers would take NVRTC for it
    __GNU[CG]|__GXX|__GCC|__VERSION__|__ATOMIC|__HAVE_|__NO_INLINE__|__DEPRECATED|__OPTIMIZE|__STRICT_ANSI__|_GNU_SOURCE|_STDC_PREDEF_H
    # types that device code lacks
    | __(FLT\d|DEC|LDBL|FLOAT(80|128)|SIZEOF_(FLOAT|LONG_DOUBLE|INT128))|M_\w+(f\d+x?|l)\Z|(HUGE_VAL_F|SNAN)\d*|__CHAR(16|32)_TYPE
    # the CPU and its linker
    | __(SSE|MMX|FXSR|SEG|pi[ce]|PI[CE]|k8|amd64|x86_64\Z|ELF|code_model|REGISTER|USER_LABEL|BIGGEST)
    # the standards that the library of the host keeps, and extensions of GCC
    | __STDC(_|PP)|__FLT_EVAL_METHOD_TS|__FINITE|__cpp_(runtime|digit|template_auto|rvalue_reference\Z)
    # what NVRTC has in another way
    | __CUDA
    """,
    re.VERBOSE,
)


def kernels(source: str, **options: object) -> CompiledPtx:
    return cuda_to_ptx(source, name="like.cu", **options)  # type: ignore[arg-type]


def refusal(source: str) -> str:
    with pytest.raises(CompileError) as caught:
        kernels(source)
    return str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "INFINITY",
        "NAN",
        "M_PI",
        "HUGE_VALF",
        "INT_MAX",
        "CHAR_BIT",
        "ULLONG_MAX",
        "RAND_MAX",
        "EXIT_FAILURE",
        "offsetof(float4, z)",
        "FP_NAN",
    ],
)
def test_macros_of_the_c_library_need_no_header(expression: str) -> None:
    assert kernels(f"__global__ void k(float* p) {{ *p = {expression}; }}").log == ""


def test_they_stand_beside_headers_that_define_them_too() -> None:
    headers = "".join(
        f"#include <{name}>\n" for name in ("cuda/std/cmath", "cuda/std/climits", "cuda/std/cstddef", "cmath", "climits", "cfloat")
    )
    source = "__global__ void k(float* p) { *p = INFINITY + INT_MAX + offsetof(float4, z) + FLT_MAX; }"
    assert kernels(headers + source).log == ""


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "h.h").write_bytes(b"\xef\xbb\xbf#define ONE 1\n")
    path = tmp_path / "bom.cu"
    path.write_bytes(b'\xef\xbb\xbf#include "h.h"\n__global__ void k(int* p) { *p = ONE; }\n')
    compiled = cuda_to_ptx(path)
    assert list(compiled.kernels.values()) == ["k(int*)"]
    assert all(text.startswith("#") for text in compiled.sources.values())


def test_headers_inside_a_function_and_a_class(tmp_path: Path) -> None:
    (tmp_path / "body.h").write_text("int x = *p;\nfor (int i = 0; i < 3; i++) { x += 41; }\n*p = x;\n")
    (tmp_path / "fields.h").write_text("float a;\nint b[4];\n__host__ __device__ int first() const { return b[0]; }\n")
    source = 'struct P {\n#include "fields.h"\n};\n__global__ void k(int* p, P q) {\n#include "body.h"\n  *p += q.first();\n}\n'
    assert "123" in kernels(source, include=[tmp_path]).text


def test_integers_of_64_bits_are_long_as_on_linux() -> None:
    source = "#include <cstdint>\ntemplate <class T> __global__ void k(T* p) { *p = 1; }\nvoid f() { k<std::uint64_t><<<1, 1>>>(0); }\n"
    compiled = kernels(f"#include <cuda_pipeline.h>\n#include <cuda_awbarrier.h>\n{source}__global__ void i(int64_t* p) {{ *p = 1; }}")
    assert set(compiled.kernels) == {"_Z1kImEvPT_", "_Z1iPl"}


@pytest.mark.parametrize(
    "body",
    [
        "std::aligned_storage<8, 8>::type s; std::aligned_storage_t<4, 4> t; *(int*)&s = *p; *p = *(int*)&s + (int)sizeof(t);",
        "auto t = std::make_tuple(1, 2); auto [a, b] = t; *p = a + b + (int)std::tuple_size<decltype(t)>::value;",
        "using T = std::tuple<int, float>; std::tuple_element<0, T>::type x = 3; *p = x + (int)std::tuple_size_v<T>;",
        "register int r = 3; *p = r;",
        "struct I : std::iterator<std::random_access_iterator_tag, int> { }; *p = (int)sizeof(I::value_type) + *std::next(p, 2);",
        "int a[3] = {1, 2, 3}; *p = (int)std::size(a) + *std::begin(std::as_const(a)) + std::gcd(4, 6);",
        "S s = {.a = 1, .b = 2}; *p = s.a + s.b;",
        "__const__ int c = 3; __signed__ char d = 2; *p = c + d;",
    ],
)
def test_language_and_library(body: str) -> None:
    source = (
        f"#include <iterator>\n#include <tuple>\n#include <type_traits>\nstruct S {{ int a, b; }};\n__global__ void k(int* p) {{ {body} }}"
    )
    assert list(kernels(source).kernels.values()) == ["k(int*)"]


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("consteval int three() { return 3; } __device__ int f() { return three(); }", ""),
        ("template <class T> concept Small = sizeof(T) < 8; template <Small T> __device__ T f(T x) { return x; }", ""),
        ("template <std::integral T> __device__ T f(T x) { return x; }", ""),
        ("template <class T> requires (sizeof(T) < 8) __device__ T f(T x) { return x; }", ""),
        ("template <int N> __global__ void t() { }", "consteval int three() {\n  return 3;\n}\nvoid run() {\n  t<three()><<<1, 1>>>();\n}"),
    ],
)
def test_a_program_in_cxx20_is_compiled_as_such(line: str, host: str) -> None:
    compiled = cuda_to_ptx(f"#include <concepts>\n{line}\n__global__ void k(int* p) {{ *p = 1; }}\n{host}", name="like.cu")
    assert sorted(compiled.kernels.values()) == ["k(int*)", *(["void t<3>()"] if host else [])]
    where = 4 if host else 2
    assert compiled.notes == (f"like.cu:{where} is C++20, so the program was compiled with --std c++20 and not c++17",)


def test_constant_functions_for_the_host_are_constants_of_device_code() -> None:
    source = """struct S {
  int n;
  __host__ S(int n) : n(n) { }
  __host__ constexpr static int four() { return 4; }
  __host__ __device__ int get() const { return n; }
};
template <int N> __host__ [[nodiscard]] inline constexpr int twice() { return 2 * N; }
__global__ void k(int* p, S s) { __shared__ int a[twice<3>() + S::four()]; a[0] = s.get(); *p = a[0]; }"""
    compiled = cuda_to_ptx(source, name="like.cu")
    assert [*compiled.kernels.values()] == ["k(int*, S)"]
    assert compiled.notes == ()


def test_a_program_that_needs_no_later_standard_keeps_its_own() -> None:
    told = refusal("__global__ void k(int* requires) { *requires = wrong; } // requires more")
    assert 'identifier "wrong" is undefined' in told
    assert "c++20" not in told


@pytest.mark.parametrize("launch", ["k<1>", "go<1>"])
def test_a_constant_may_be_made_of_others(launch: str) -> None:
    source = f"""const float scale = 2.5f;
static const double inverse = 1.0 / scale;
const float host = getenv("A")[0];
template <int N> __global__ void k(float* p) {{ *p *= scale * inverse; }}
template <int N> void go(float* p) {{ k<N><<<1, 1>>>(p); }}
int main() {{ {"go<1>(nullptr)" if launch == "go<1>" else "k<1><<<1, 1>>>(nullptr)"}; }}"""
    assert list(kernels(source).kernels.values()) == ["void k<1>(float*)"]


def test_host_headers_of_cuda_do_not_disturb() -> None:
    source = "#include <cuda_gl_interop.h>\n#include <cuda_egl_interop.h>\nGLuint buffer;\n__global__ void k(int* p) { *p = 1; }"
    assert list(kernels(source).kernels.values()) == ["k(int*)"]


def test_host_headers_of_cuda_that_its_wheels_lack_are_not_missing() -> None:
    source = "#include <cuda_profiler_api.h>\n#include <nvrtc.h>\n#include <cuda_gl_interop.h>\n__global__ void k(int* p) { *p = 1; }"
    assert cuda_to_ptx(source).notes == ()


def test_iterators_and_random_numbers_of_thrust_in_device_code() -> None:
    source = """#include <thrust/device_vector.h>
#include <thrust/random.h>
__global__ void k(float* p) {
  thrust::default_random_engine engine(3);
  thrust::uniform_real_distribution<float> uniform(0, 1);
  thrust::reverse_iterator<float*> last(p + 3);
  *p = thrust::make_counting_iterator(3)[2] + *last + uniform(engine);
}"""
    assert list(kernels(source).kernels.values()) == ["k(float*)"]
    for_the_host = "#include <thrust/random.h>\n__global__ void k(float* p) { *p = 1; }\nthrust::minstd_rand engine;"
    assert list(kernels(for_the_host).kernels.values()) == ["k(float*)"]


def test_thrust_for_the_host_stands_beside_thrust_in_device_code() -> None:
    source = """#include <thrust/device_vector.h>
#include <thrust/sort.h>
struct Sum { __device__ float operator()(thrust::tuple<int, float> t) const { return thrust::get<0>(t) + thrust::get<1>(t); } };
__global__ void k(float* p) { *p = Sum()(thrust::make_tuple(1, *p)) + thrust::plus<float>()(1, 2); }
int main() { thrust::device_vector<int> v(3); thrust::sort(v.begin(), v.end()); }"""
    assert list(kernels(source).kernels.values()) == ["k(float*)"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "\n*p = ({ if (*p) return; 3; });",
            "Line 2 of like.cu: NVRTC, with which memlane compiles, refuses statement expressions `({ ...; value; })` with a jump in them, "
            "which nvcc takes from GCC: write `[&] { ...; return value; }()`.",
        ),
        (
            "*p = ((const int[]){1, 2})[*p];",
            "refuses compound literals `(type[]){...}` of arrays, which nvcc takes from GCC: declare a variable.",
        ),
        ("*p = *p ?: 3;", "refuses `a ?: b`, which nvcc takes from GCC: write `a ? a : b`."),
        (
            "switch (*p) { case 1 ... 3: *p = 2; }",
            "refuses ranges `case 1 ... 3:`, which nvcc takes from GCC: write `case 1: case 2: case 3:`.",
        ),
        (
            "int a[2] = {[0] = 1, [1] = 2}; *p = a[*p];",
            "refuses array designators `{[1] = x}`, which nvcc takes from GCC: write all values",
        ),
        ("S s = {a: 1}; *p = s.a;", "refuses initialisers `{name: x}`, which nvcc takes from GCC: write `{.name = x}`."),
    ],
)
def test_what_stays_refused_says_what_to_write(body: str, told: str) -> None:
    assert told in refusal(f"struct S {{ int a; }}; __global__ void k(int* p) {{ {body} }}")


def test_texture_references_are_refused_by_name() -> None:
    text = refusal("texture<float, 1> values;\n__global__ void k(float* p) { *p = tex1Dfetch(values, 3); }")
    told = "like.cu:1: `values` is a texture or surface reference, which CUDA 12 has ended, for nvcc too: pass a cudaTextureObject_t or"
    assert told in text


def test_a_piece_of_another_file_names_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("piece.cu").write_text("__global__ void k(real* p) { *p = 1; }\n")
    Path("main.cu").write_text('typedef float real;\n#include "piece.cu"\n')
    with pytest.raises(CompileError) as caught:
        cuda_to_ptx("piece.cu")
    assert str(caught.value).endswith(
        "\npiece.cu is included by main.cu, beside it or above it; name that file, where what it needs comes before it."
    )
    assert list(cuda_to_ptx("main.cu").kernels.values()) == ["k(float*)"]


def test_a_file_without_a_kernel_names_those_that_have_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("host.cu").write_text("int main() { }\n")
    with pytest.raises(CompileError, match=r"^host.cu has no kernel; name a file that defines a `__global__` function$"):
        cuda_to_ptx("host.cu")
    Path("declared.cuh").write_text("// of __global__ functions\n__global__ void k(int* p);\nstruct S { };\n")
    Path("kernels.cu").write_text("template <int N>\n__global__ void __launch_bounds__(128) k(int* p)\n{ }\n")
    with pytest.raises(CompileError, match=r"^host.cu has no kernel; name a file that defines one: kernels.cu$"):
        cuda_to_ptx("host.cu")


def test_a_header_with_the_separators_of_windows_says_what_to_write() -> None:
    told = 'like.cu:1: the header "glm\\glm.hpp" was not found; only Windows has backslashes between directories: write "glm/glm.hpp"'
    assert refusal('#include "glm\\glm.hpp"\n__global__ void k(int* p) { *p = 1; }').startswith(told)


def test_functions_that_cuda_has_ended_are_named_with_their_place() -> None:
    text = refusal("__global__ void k(int* p) {\n  p[0] = __shfl_xor(p[1], 16);\n  p[2] = __shfl(p[3], 1);\n}")
    assert "like.cu:2: CUDA has ended `__shfl_xor` for chips from sm_70 on, for nvcc too: write `__shfl_xor_sync(0xffffffff, ...)`" in text
    assert "like.cu:3: CUDA has ended `__shfl` " in text


def test_functions_that_cuda_has_ended_are_named_where_the_program_overloads_them() -> None:
    source = """template <int N> __device__ double __shfl_xor(double x, int mask, volatile double* tile) {
  return __hiloint2double(__shfl_xor(__double2hiint(x), mask), 0);
}
__global__ void k(double* p) { *p = __shfl_xor<8>(*p, 1, p + 1); }"""
    assert "like.cu:2: CUDA has ended `__shfl_xor` for chips from sm_70 on" in refusal(source)


def test_the_errors_are_not_hidden_behind_warnings() -> None:
    text = refusal("struct S { double4 d; ulong4 u; };\n__global__ void k(S* p) {\n  p->d.x = y;\n}\n")
    assert text.startswith('like.cu does not compile\nlike.cu(3): error: identifier "y" is undefined\n    p->d.x = y;\n             ^\n')
    assert "warning" not in text


def test_algorithms_of_thrust_in_device_code_are_refused_by_name() -> None:
    source = """#include <thrust/binary_search.h>
#include <thrust/execution_policy.h>
template <class T> struct Search {
  thrust::device_vector<T> host;
  __device__ const T* find(const T* p, int n, T x) const {
    return thrust::lower_bound(thrust::seq, p, p + n, x);
  }
};
__global__ void k(int* p) { *p = *Search<int>().find(p + 1, 3, 5); }"""
    told = (
        "like.cu:6: NVRTC, with which memlane compiles, cannot compile `thrust::lower_bound`: write a loop in the kernel, or compile the "
        "file with `nvcc -ptx -lineinfo` and give memlane the .ptx file."
    )
    assert told in refusal(source)
    assert "`thrust::device_vector`" not in refusal(source)


def test_functions_that_cuda_has_ended_are_named_where_a_header_is_missing_too() -> None:
    source = """#include <cblas.h>
template <class T> __device__ T down(T x) { return __shfl_down(x, 1); }
__global__ void k(int* p) { *p = down(*p); }"""
    assert "like.cu:2: CUDA has ended `__shfl_down` for chips from sm_70 on" in refusal(source)


def test_a_texture_reference_is_named_where_only_templates_use_it() -> None:
    text = refusal(
        "texture<float, 1> t;\ntemplate <int N> __global__ void k(float* p) { *p = tex1Dfetch(t, N); }\nvoid run() { k<3><<<1, 1>>>(0); }"
    )
    assert "like.cu:1: `t` is a texture or surface reference, which CUDA 12 has ended, for nvcc too" in text


def test_headers_that_ask_for_clocks_of_the_system_compile() -> None:
    source = """#include <unistd.h>
#include <ctime>
#if !_POSIX_TIMERS || _POSIX_VERSION < 200112L || _XOPEN_VERSION < 600 || _POSIX_THREADS < 200112L || !defined(_POSIX_CPUTIME)
#error no timers
#endif
struct Stopwatch { double since; double read() { return (double)clock() / CLOCKS_PER_SEC - since; } };
__global__ void k(int* p) { *p = CLOCKS_PER_SEC; }
"""
    assert "1000000;" in kernels(source).text


def test_the_allocator_of_cub_is_for_the_host() -> None:
    source = "#include <cub/util_allocator.cuh>\ncub::CachingDeviceAllocator pool(true);\n__global__ void k(int* p) { *p = 1; }"
    assert list(kernels(source).kernels.values()) == ["k(int*)"]


def test_headers_of_libraries_for_the_host_need_not_be_there() -> None:
    source = '#include "cublas_v2.h"\n#include <cufft.h>\n#include <nccl.h>\n'
    source += "__global__ void k(half* p, cufftComplex* c, __nv_bfloat16* b) { *b = c->x; }"
    assert list(kernels(source).kernels.values()) == ["k(__half*, float2*, __nv_bfloat16*)"]


def test_headers_for_the_host_that_do_not_compile_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a wheel of another release than CUDA's own."""
    (tmp_path / "cublas_v2.h").write_text('#include "cublas_api.h"\n')
    (tmp_path / "cublas_api.h").write_text("void set(cudaNotYet* mask);\n")
    directories = (*toolkit.include_directories(), tmp_path)
    monkeypatch.setattr(toolkit, "include_directories", lambda: directories)
    source = "#include <cublas_v2.h>\n__global__ void k(half* p) { *p = 1; }\n"
    assert list(kernels(source).kernels.values()) == ["k(__half*)"]
    text = refusal("#include <cublas_v2.h>\n__global__ void k(int* p) { *p = nothing; }\n")
    assert 'like.cu(2): error: identifier "nothing" is undefined' in text
    assert "cudaNotYet" not in text


def test_only_headers_that_the_compiler_asked_for_are_missing() -> None:
    source = "#ifdef USE_HIP\n#include <hip/hip_runtime.h>\n#endif\n#include <absent/one.h>\n__global__ void k(int* p) { *p = 1; }"
    compiled = kernels(source)
    assert compiled.notes == ("header absent/one.h was not found and was left out",)
    assert compiled.log == ""
    text = refusal(f"{source}\n__global__ void l(Absent* p) {{ }}")
    assert re.findall(r"Header not found: (\S+);", text) == ["absent/one.h"]
    assert "memlane has no" not in text


@pytest.mark.parametrize("relocatable", [False, True])
def test_programmatic_dependent_launch_needs_no_launch_from_the_device(relocatable: bool) -> None:
    source = "__global__ void k(int* p) { cudaGridDependencySynchronize(); *p = 1; cudaTriggerProgrammaticLaunchCompletion(); }"
    assert re.findall(r"griddepcontrol\.\w+", kernels(source, relocatable=relocatable).text) == [
        "griddepcontrol.wait",
        "griddepcontrol.launch_dependents",
    ]


def test_a_header_of_a_wheel_names_the_wheel() -> None:
    text = refusal("#include <curand_kernel.h>\n__global__ void k(curandState* s) { curand_init(1, 2, 3, s); }")
    assert re.search(
        r"\nHeader not found: curand_kernel.h; install it with: .*pip.* install .*nvidia-curand, or name its directory with -I DIR", text
    )


@pytest.mark.parametrize(
    ("header", "project"),
    [
        ("cute/tensor.hpp", "CUTLASS, whose directory `include`"),
        ("cutlass/fast_math.h", "CUTLASS, whose directory `include`"),
        ("helper_math.h", "NVIDIA's cuda-samples, whose directory `Common`"),
    ],
)
def test_a_header_of_a_known_project_names_the_project(header: str, project: str) -> None:
    text = refusal(f"#include <{header}>\n__global__ void k(missing::Type t) {{ }}")
    assert f"\nHeader not found: {header}; it comes with {project} is to be named with -I DIR (include=[DIR] in Python)" in text


@pytest.mark.parametrize("body", ["inner<<<1, 1>>>(p);", "cudaStream_t s; cudaStreamCreateWithFlags(&s, 1);", "cudaFree(p);"])
def test_dynamic_parallelism_is_refused_by_name(body: str) -> None:
    text = refusal(f"__global__ void inner(int* p);\n__global__ void k(int* p) {{ {body} }}")
    assert (
        "memlane runs no kernels that launch kernels or call the CUDA runtime (dynamic parallelism): launch the inner kernel from" in text
    )


def test_the_macros_of_nvcc_are_there() -> None:
    defined = [line.split(" ", 2)[1].partition("(")[0] for line in MACROS.read_text().splitlines() if line.startswith("#define")]
    wanted = [name for name in defined if not NOT_OURS.match(name)]
    assert len(wanted) > 200
    missing = "".join(f"#ifndef {name}\n__device__ int missing_{name};\n#endif\n" for name in wanted)
    compiled = kernels(f"{missing}__global__ void k() {{ }}")
    assert set(re.findall(r"missing_(\w+)[;,]", compiled.text)) == set()


def test_numbers_among_the_macros_of_nvcc_have_its_values() -> None:
    rows = [line.split(" ", 2) for line in MACROS.read_text().splitlines() if line.startswith("#define")]
    values = {
        name: value for _, name, value in (row for row in rows if len(row) == 3) if re.fullmatch(r"\(?-?(0x)?[0-9a-fA-F]+[UL]*\)?", value)
    }
    wanted = {name: value for name, value in values.items() if not NOT_OURS.match(name) and "(" not in name and "__cpp_" not in name}
    assert len(wanted) > 100
    checks = "".join(f'static_assert({name} == {value}, "{name}");\n' for name, value in wanted.items())
    assert [note.split("error: ")[1] for note in kernels(f"{checks}__global__ void k() {{ }}").notes] == []
