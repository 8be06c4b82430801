"""Which instantiations of template kernels come of the launches in host code.

`host_templates.cu` was compiled with nvcc 13.0 (`nvcc -std=c++17 -arch=sm_90 -ptx -include map`); `LAUNCHED` are the entries of its PTX, as
c++filt prints them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.compile import cuda, cuda_to_ptx
from memlane.compile.hostbody import Body
from memlane.compile.tokens import tokenize
from memlane.errors import BadLaunch, CompileError
from memlane.launch.kernel_names import find_kernel
from memlane.ptx import parse

PROGRAMS = Path(__file__).parent / "programs"
LAUNCHED = """
plain(int*)
void apply<Twice>(int*, Twice)
void constant<1>(float*)
void constant<2>(float*)
void constant<300>(float*)
void constant<4>(float*)
void constant<6>(float*)
void constant<77>(float*)
void constant<88>(float*)
void constant<8>(float*)
void constant<99>(float*)
void deduced<double, 3>(double const*, double*)
void deduced<long long, 8>(long long const*, long long*)
void deduced<short, 3>(short const*, short*)
void moded<(Mode)0>(int*)
void moded<(Mode)1>(int*)
void wrapped<Box, int>(Box<int>*)
"""


def kernels(source: str, **options: object) -> list[str]:
    return sorted(cuda_to_ptx(source, name="host.cu", **options).kernels.values())  # type: ignore[arg-type]


def test_the_kernels_are_those_that_nvcc_makes() -> None:
    compiled = cuda_to_ptx(PROGRAMS / "host_templates.cu")
    assert sorted(compiled.kernels.values()) == sorted(LAUNCHED.strip().splitlines())
    assert not [note for note in compiled.notes if "not followed" in note]


def test_a_template_in_a_header_is_followed_from_the_main_file(tmp_path: Path) -> None:
    (tmp_path / "run.h").write_text(
        "#pragma once\ntemplate <int N> __global__ void k(int* p) { *p = N; }\n"
        'template <int N> void run(int* p) {\n  std::ofstream log("a");\n  k<N * 2><<<1, 1>>>(p);\n}\n'
    )
    source = '#include "run.h"\nnamespace { template <class T> __global__ void t(T* p) { *p = 1; } }\n'
    host = "template <class T> void go() { t<T><<<1, 1>>>(nullptr); }\nint main() { run<8>(nullptr); go<float>(); }"
    assert kernels(source + host, include=[tmp_path]) == ["void (anonymous namespace)::t<float>(float*)", "void k<16>(int*)"]


def test_the_template_of_a_kernel_in_a_namespace_is_found_by_the_address_that_is_passed_on() -> None:
    source = """namespace a { template <class T> __global__ void k(T* p) { *p = 1; } }
    template <class F> void launch(F f, int n) { void* arguments[] = {&n}; cudaLaunchKernel((void*)f, 1, 1, arguments, 0, 0); }
    int main() { launch(a::k<double>, 3); auto f = &a::k<char>; cudaFuncSetAttribute(f, 1, 2);
      int blocks, threads; cudaOccupancyMaxPotentialBlockSizeVariableSMem(&blocks, &threads, a::k<short>, [](int n) { return 4 * n; }); }"""
    assert kernels(source) == ["void a::k<char>(char*)", "void a::k<double>(double*)", "void a::k<short>(short*)"]


def test_a_launch_that_is_lost_is_told_with_the_place_and_the_reason() -> None:
    source = """template <class T> __global__ void k(T* p) { *p = 1; }
__global__ void plain() { }
void f() {
  k<<<1, 1>>>(boost::pointer());
}"""
    compiled = cuda_to_ptx(source, name="lost.cu")
    assert list(compiled.kernels.values()) == ["plain()"]
    note, offer = compiled.notes
    assert offer == "no host code launches the kernel template k; ask for one with --instantiate 'k<...>'"
    assert note.startswith("host code that may launch a kernel was not followed: lost.cu(4): error: ")


def test_a_template_without_an_instantiation_is_offered_when_its_kernel_is_asked_for() -> None:
    module = cuda("namespace a { template <class T> __global__ void k(T* p) { *p = 1; } }\n__global__ void plain() { }")
    for name in ("k", "k<float>", "a::k"):
        with pytest.raises(BadLaunch) as caught:
            find_kernel(module, name)
        assert str(caught.value) == (
            "k is a template and has no instantiation here; ask for one with instantiate=('k<...>',) or --instantiate 'k<...>'"
        )
    with pytest.raises(BadLaunch, match=r"^no kernel 'kk' in .*; it has: plain$"):
        find_kernel(module, "kk")


def test_what_cannot_be_followed_is_offered_by_name() -> None:
    with pytest.raises(CompileError) as caught:
        kernels("template <class T> __global__ void k(T* p) { *p = 1; }\nvoid f() { k<<<1, 1>>>(boost::pointer()); }")
    assert str(caught.value).splitlines()[0] == (
        "host.cu has no kernel, only templates of kernels: k; ask for one with instantiate=('k<...>',) or --instantiate 'k<...>'"
    )


def test_host_code_that_needs_no_reading_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlane.compile.instantiations.launched", lambda *_: pytest.fail("read"))
    assert kernels("template <int N> __global__ void k(int* p) { *p = N; }\nint main() { k<3><<<1, 1>>>(0); }") == ["void k<3>(int*)"]


@pytest.mark.parametrize(
    ("text", "name", "head", "body"),
    [
        ("int main() { f(); }", "main", "int main() ", "{ f(); }"),
        ("template <class T, int N = (1 > 0)> void f(T a = {}) noexcept(true) { }", "f", None, "{ }"),
        ("A::A(int a) : a_(a), b_{a}, C<int>(a) { go(); }", "A", "A::A(int a) ", "{ go(); }"),
        ("bool A::operator()(int a) const { return a; }", "", "bool A::operator()(int a) const ", "{ return a; }"),
        ("A& operator=(const A& a) { return *this; }", "", "A& operator=(const A& a) ", "{ return *this; }"),
        ("void f() try { } catch (int) { g(); }", "f", "void f() ", "{ }"),
    ],
)
def test_functions_are_taken_apart(text: str, name: str, head: str | None, body: str) -> None:
    function = Body(tokenize(text)).function()
    assert function is not None
    assert (function.name, text[function.body.start : function.body.end]) == (name, body)
    assert head is None or text[: function.head_end] == head


@pytest.mark.parametrize(
    "text", ["int f(int);", "int x = f(3);", "auto f = [](int x) { return x; };", "std::vector<int> v{1, 2};", "int x(3);"]
)
def test_what_is_no_function_has_no_parts_of_one(text: str) -> None:
    assert Body(tokenize(text)).function() is None


def test_statements_and_what_may_stand_in_their_place() -> None:
    text = "{ if (a(1)) { x = f(2); } else g(); for (int i = 0; i < n; i++) h<<<1, (2 > 1)>>>(i); switch (k) { case K: return; } }"
    body = Body(tokenize(text))
    assert [(text[part.start : part.end], part.instead) for part in body.statements()] == [
        ("a(1)", "true"),
        ("= f(2)", "=_mlv"),
        ("x = f(2);", ";"),
        ("g();", ";"),
        ("int i = 0; i < n; i++", ";;"),
        ("h<<<1, (2 > 1)>>>(i);", ";"),
        ("k", "0"),
        ("case K:", ""),
        ("return;", ";"),
    ]
    configuration, before, behind = body.launch_configurations()
    assert (text[configuration.start : configuration.end], configuration.instead) == ("<<<1, (2 > 1)>>>", "")
    assert text[before.start : before.end] + text[behind.start : behind.end] == ""
    assert (text[before.start :][:4], before.instead, text[behind.start :][:1], behind.instead) == ("h<<<", "0?", ";", ":void()")


@pytest.mark.parametrize(
    ("launch", "stays"),
    [
        ("if (a) ns::k<T, (a > 1), V<2>><<<g, b>>>(x);", "if (a) 0?ns::k<T, (a > 1), V<2>>(x):void();"),
        ("k<<<g, b>>>(f(x), y);", "0?k(f(x), y):void();"),
        ("else kernel<<<g, b>>>(x);", "else 0?kernel(x):void();"),
        ("case 3: k<3><<<g, b>>>(x);", "case 3: 0?k<3>(x):void();"),
        ("ok = (k<<<g, b>>>(x), check());", "ok = (k(x), check());"),
        ("table[i]<<<g, b>>>(x);", "table[i](x);"),
        ("(*f)<<<g, b>>>(x);", "(*f)(x);"),
    ],
)
def test_launches_become_calls_that_are_not_generated(launch: str, stays: str) -> None:
    pieces, position = [], 0
    for part in sorted(Body(tokenize(launch)).launch_configurations(), key=lambda part: part.start):
        pieces += [launch[position : part.start], part.instead]
        position = part.end
    assert "".join((*pieces, launch[position:])) == stays


def test_launches_with_classes_that_have_copy_constructors(capfd: pytest.CaptureFixture[str]) -> None:
    """The compiler cannot generate the call of such a kernel, and used to print pages about it and find nothing."""
    source = """
template <class T> struct Tensor { T* p; __host__ __device__ Tensor() {} __host__ __device__ Tensor(const Tensor& o) : p(o.p) {} };
template <class T> __global__ void scale(Tensor<T> t) { t.p[threadIdx.x] *= 2; }
void run(Tensor<float>& t) { scale<<<1, 32>>>(t); }
struct Index { Tensor<double> t; virtual void go() { if (t.p) scale<<<1, 32>>>(t); } };
Index* make() { return new Index; }
"""
    assert kernels(source) == ["void scale<double>(Tensor<double>)", "void scale<float>(Tensor<float>)"]
    assert capfd.readouterr().err == ""


@given(st.lists(st.sampled_from([*"{}()[];=:<>", "if", "for", "case", "catch", "try", "<<<", "template", "operator", "a"]), max_size=40))
def test_no_text_stops_it_and_parts_lie_inside(pieces: list[str]) -> None:
    text = " ".join(pieces)
    body = Body(tokenize(text))
    function = body.function()
    parts = [*body.statements(), *body.exception_handling(), *body.launch_configurations(), *([function.body] if function else [])]
    assert all(0 <= part.start <= part.end <= len(text) for part in parts)


LAMBDAS = """
#include <vector>
template <typename F, typename... A> __global__ void launch(int n, F f, A... a) { if (threadIdx.x < n) f(threadIdx.x, a...); }
template <typename F> void parallel_for(int n, F f) { launch<<<(n + 127) / 128, 128>>>(n, f); }
__device__ int used, unused;
static int verbose = 1;
__global__ void plain(int* p) { atomicAdd(&used, *p); }
int main() {
  std::vector<float> host(100);
  float *d; cudaMalloc(&d, 400);
  parallel_for(100, [=] __device__ (int i) { d[i] = i; });  // the store of the lambda
  parallel_for(50, [=] __host__ __device__ (int i) { d[i] += verbose; });
  launch<<<1, 32>>>(3, [] __device__ (int i, float x) { }, 2.f);
}
"""


def test_kernels_that_host_code_launches_with_its_lambdas() -> None:
    """As `nvcc --extended-lambda` names them; what the host code was read for is gone."""
    compiled = cuda_to_ptx(LAMBDAS, name="lambdas.cu")
    assert set(compiled.kernels) == {
        "_Z5plainPi",
        "_Z6launchIZ4mainEUliE_JEEviT_DpT0_",
        "_Z6launchIZ4mainEUliE0_JEEviT_DpT0_",
        "_Z6launchIZ4mainEUlifE_JfEEviT_DpT0_",
    }
    module = parse(compiled.text, "lambdas.cu")
    assert set(module.functions) == set(compiled.kernels)
    assert {"used", "unused"} <= set(module.variables) <= {"used", "unused", "verbose"}
    lines = {one.location.line for one in module.functions["_Z6launchIZ4mainEUliE_JEEviT_DpT0_"].instructions() if one.opcode == "st"}
    assert [LAMBDAS.splitlines()[line - 1].partition("// ")[2] for line in lines] == ["the store of the lambda"]


def test_functions_for_other_modules_stay_beside_kernels_of_lambdas() -> None:
    compiled = cuda_to_ptx(f"__device__ float helper(float x) {{ return x + 1; }}{LAMBDAS}", name="lambdas.cu", relocatable=True)
    functions = parse(compiled.text, "lambdas.cu").functions
    assert "_Z6helperf" in functions
    assert "_Z6launchIZ4mainEUliE_JEEviT_DpT0_" in functions
    assert "main" not in functions


def test_a_lambda_that_does_not_compile_leaves_the_other_kernels() -> None:
    source = LAMBDAS.replace("d[i] += verbose;", "undeclared(i);")
    compiled = cuda_to_ptx(source, name="lambdas.cu")
    assert len(compiled.kernels) == 3
    assert any("undeclared" in note for note in compiled.notes)


def test_a_kernel_of_a_lambda_that_does_not_compile_is_told() -> None:
    source = """template <class F> __global__ void each(F f) {
  f(missing(f));
}
int main() {
  each<<<1, 1>>>([=] __device__ (int i) { });
}
"""
    with pytest.raises(CompileError, match=r'^l.cu does not compile\nl.cu\(2\): error: identifier "missing" is undefined'):
        cuda_to_ptx(source, name="l.cu")
    compiled = cuda_to_ptx(f"{source}__global__ void plain() {{ }}\n", name="l.cu")
    assert [*compiled.kernels.values()] == ["plain()"]
    told = "kernels that the host code launches with its lambdas were left out because they do not compile: l.cu(2): error"
    assert compiled.notes[0].startswith(told)


def test_launches_in_a_header_that_a_host_function_includes(tmp_path: Path) -> None:
    (tmp_path / "cases.inc").write_text(
        "#ifdef LAUNCH\ncudaMalloc(&p, 4);\nk<float, N><<<1, N>>>(p);\nk<int, 2 * N><<<1, 1>>>(nullptr);\n#endif\n"
    )
    (tmp_path / "body.inc").write_text("T x = N;\np[threadIdx.x] = x;\n")
    path = tmp_path / "main.cu"
    path.write_text(
        'template <class T, int N> __global__ void k(T* p) {\n#include "body.inc"\n}\n#define LAUNCH\n'
        'template <int N> void run(float* p) {\n#include "cases.inc"\n}\nint main() { run<8>(nullptr); }\n'
    )
    assert set(cuda_to_ptx(path).kernels.values()) == {"void k<float, 8>(float*)", "void k<int, 16>(int*)"}


def test_launches_are_found_beside_a_device_function_that_does_not_compile() -> None:
    source = """
#include <absent/generator.h>
__device__ float draw(Generator* state) { return next(state); }
template <class T> __global__ void fill(T* p, T value) { p[threadIdx.x] = value; }
template <class T> void filled(T* p) { fill<<<1, 32>>>(p, T(1)); }
int main() { float* f = nullptr; double* d = nullptr; filled(f); filled(d); }
"""
    compiled = cuda_to_ptx(source, name="draw.cu")
    assert sorted(compiled.kernels.values()) == ["void fill<double>(double*, double)", "void fill<float>(float*, float)"]


TENSORS = """
#include <torch/extension.h>
template <class T, int N> __global__ void scale(T* p, T by) { p[threadIdx.x] *= by * T(N); }
template <int N> void scaled(torch::Tensor& x) { scale<float, N><<<x.numel() / 32, 32>>>(x.data_ptr<float>(), 2.0f); }
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "on a GPU");
  auto y = torch::empty_like(x);
  if (x.scalar_type() == torch::kHalf) scale<__half, 1><<<1, 32>>>(reinterpret_cast<__half*>(y.data_ptr()), __half(1));
  else if (x.size(0) > 4) scaled<8>(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    scale<scalar_t, 5><<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<scalar_t>(), scalar_t(3)); });
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "scales"); }
"""


def test_launches_of_extensions_of_pytorch_are_found_without_its_headers() -> None:
    compiled = cuda_to_ptx(f"#include <cuda_fp16.h>\n{TENSORS}", name="extension.cu")
    assert {title.split("(")[0].removeprefix("void ") for title in compiled.kernels.values()} == {
        *("scale<__half, 1>", "scale<float, 8>", "scale<float, 5>", "scale<double, 5>"),
    }


def test_launches_of_functions_that_a_macro_defines_with_pasted_names_are_found() -> None:
    source = """
template <int N> __global__ void small_kernel(float* p) { *p = N; }
template <int N> __global__ void large_kernel(float* p) { *p = -N; }
#define LAUNCH(size, n) size##_kernel<n><<<1, 32>>>(p)
#define DEFINE(size) \\
  void run_##size(float* p) { \\
    if (p == nullptr) { \\
      throw std::runtime_error("no array"); \\
    } \\
    LAUNCH(size, 3); \\
  }
namespace std { struct runtime_error { runtime_error(const char*); }; }
DEFINE(small)
DEFINE(large)
"""
    compiled = cuda_to_ptx(source, name="pasted.cu")
    assert sorted(compiled.kernels.values()) == ["void large_kernel<3>(float*)", "void small_kernel<3>(float*)"]


def test_a_function_that_launches_the_kernel_that_it_is_given_is_followed() -> None:
    source = """#include <map>
    #include <stdio.h>
    struct Shape { dim3 grid, block; Shape(dim3 g, dim3 b) : grid(g), block(b) { } };
    static inline const char* text(int status) { return strerror(status); }
    struct Context { FILE* log; std::map<int, cudaStream_t> streams; cudaStream_t stream(int n) { return streams[n]; } };
    template <int N> __global__ void scale(float* p, float by) { p[threadIdx.x] *= by * N; }
    template <class F, class... A> static inline void launch(F kernel, const Shape& shape, cudaStream_t stream, A&&... arguments) {
      static const bool loud = std::getenv("LOUD") != nullptr;
      kernel<<<shape.grid, shape.block, 0, stream>>>(std::forward<A>(arguments)...);
      if (loud) puts(text(cudaGetLastError()));
    }
    void run(Context& context, float* p, int n) {
      const Shape shape(dim3(1), dim3(32));
      switch (n) {
        case 1: launch(scale<1>, shape, context.stream(0), p, 2.f); break;
        case 8: launch(scale<8>, shape, context.stream(0), p, 2.f); break;
      }
    }"""
    assert kernels(source) == ["void scale<1>(float*, float)", "void scale<8>(float*, float)"]


def test_kernels_that_take_a_class_with_a_copy_constructor_are_found(capfd: pytest.CaptureFixture[str]) -> None:
    source = """#include <cuda_fp16.h>
template <class T, int N> __global__ void fill(T value, T* p) { *p = value; }
struct Runner {
  void* memory;
  void run() {
    half2 ones;
    fill<half2, 3><<<1, 32>>>(ones, (half2*)memory);
  }
  void again(half2 twos);
};
void Runner::again(half2 twos) {
  fill<half2, 4><<<1, 32>>>(twos, (half2*)memory);
}
extern "C" void run_again() {
  half2 ones;
  fill<half2, 5><<<1, 32>>>(ones, nullptr);
}
template <int N> double bench(void* memory) {
  half2 ones;
  fill<half2, N><<<1, 32>>>(ones, (half2*)memory);
  return elapsed_ms();
}
int main(int count, char** words) {
  half2 ones;
  fill<half2, 1><<<1, 32>>>(ones, (half2*)allocated(32));
  Runner{}.run();
  bench<2>(nullptr);
}"""
    assert kernels(source) == [f"void fill<__half2, {n}>(__half2, __half2*)" for n in (1, 2, 3, 4, 5)]
    assert capfd.readouterr().err == ""  # the compiler prints there what it cannot write


def test_a_launch_behind_values_that_do_not_compile_is_found() -> None:
    source = """template <int N> __global__ void k(const int* p) { __shared__ int s[N]; s[0] = p[0]; }
struct Arguments { const int* p; int n; };
template <int N> void run(const Arguments& a) { k<N><<<1, a.n>>>(a.p); }
int main() {
  const size_t bytes = library::bytes_of(3);
  library::Pool pool(bytes);
  const Arguments arguments = {pool.get(),
                               3};
  static int calls = 0;
  run<4>(arguments);
}"""
    compiled = cuda_to_ptx(source, name="values.cu")
    assert [*compiled.kernels.values()] == ["void k<4>(int const*)"]
    assert not [note for note in compiled.notes if "not followed" in note]


def test_a_template_is_not_instantiated_with_the_type_of_a_value_that_does_not_compile() -> None:
    source = """template <class T> __global__ void k(T n) { }
template <class T> void run(T n) {
  k<<<1, 1>>>(n);
}
int main() {
  auto n = library::value();
  run(n);
  run(2.0);
}"""
    compiled = cuda_to_ptx(source, name="values.cu")
    assert [*compiled.kernels.values()] == ["void k<double>(double)"]
    assert any(note.startswith("host code that may launch a kernel was not followed: values.cu(6): error") for note in compiled.notes)


def test_functions_that_are_marked_for_the_host_are_followed() -> None:
    source = """#define ON_THE_HOST __host__
template <int N> __global__ void k(int* p) { *p = N; }
__host__ constexpr int twice(int n) { return 2 * n; }
struct Size {
  __host__ int get() const { return 3; }
  __host__ __device__ int both() const { return 4; }
};
template <int N> ON_THE_HOST void macro(int* p) { k<N><<<1, 1>>>(p); }
static __host__ void run(int* p) { k<twice(2)><<<1, Size().get()>>>(p); macro<7>(p); }
__host__
int main() { run(nullptr); }"""
    compiled = cuda_to_ptx(source, name="marked.cu")
    assert sorted(compiled.kernels.values()) == ["void k<4>(int*)", "void k<7>(int*)"]


def test_a_file_whose_templates_another_file_launches_names_their_header(tmp_path: Path) -> None:
    (tmp_path / "matrix.cuh").write_text(
        "template <class T> __global__ void k(T* p) { *p = 1; }\ntemplate <class T> void run(T* p) { k<<<1, 1>>>(p); }\n"
        "extern template void run(double*);\n"
    )
    main = tmp_path / "layer.cu"
    main.write_text('#include "matrix.cuh"\nint main() { run<double>(nullptr); }\n')
    told = (
        r"layer.cu has no kernel of its own, and no launch was found of the templates that it includes from \S*matrix.cuh; name a file "
        r"that has one, or ask for one with instantiate=\('k<...>',\) or --instantiate 'k<...>'$"
    )
    with pytest.raises(CompileError, match=told):
        cuda_to_ptx(main)
    main.write_text('#include "matrix.cuh"\nint main() {\n  run(library::pointer());\n}\n')
    with pytest.raises(CompileError, match=r"has no kernel, only templates of kernels: k; ask for one [^\n]*\n[^\n]* was not followed: "):
        cuda_to_ptx(main)


@pytest.mark.parametrize("mark", ["", "__host__ __device__ "])
def test_a_program_may_overload_the_cast_of_thrust(mark: str) -> None:
    source = f"""#include <thrust/device_vector.h>
template <class T> __global__ void k(T* p) {{ *p = 1; }}
namespace memory {{
template <class T> T* raw_pointer_cast(thrust::device_ptr<T> p) {{ return thrust::raw_pointer_cast(p); }}
template <class T> {mark}T* raw_pointer_cast(T* p) {{ return thrust::raw_pointer_cast(p); }}
template <class T> struct Array {{
  thrust::device_vector<T> storage;
  auto data() {{ return raw_pointer_cast(storage.data()); }}
}};
}}
int main() {{
  memory::Array<float> a;
  k<<<1, 1>>>(a.data());
}}"""
    assert kernels(source) == ["void k<float>(float*)"]


def test_vectors_of_thrust_lead_to_kernels_beside_thrust_in_device_code() -> None:
    source = """#include <thrust/detail/config.h>
#include <thrust/device_vector.h>
template <class T> __global__ void k(T* p) { *p = thrust::plus<T>()(p[1], p[2]); }
template <class T> __host__ __device__ T* raw(T* p) { return thrust::raw_pointer_cast(p); }
template <class T> T* raw(thrust::device_ptr<T> p) { return thrust::raw_pointer_cast(p); }
int main() {
  thrust::device_vector<float> a(3);
  thrust::host_vector<double> b(3);
  thrust::device_vector<short> c(3);
  char* p = nullptr;
  k<<<1, 1>>>(thrust::raw_pointer_cast(a.data()));
  k<<<1, 1>>>(raw(b.data()));
  k<<<1, 1>>>(c.data().get());
  k<<<1, 1>>>(thrust::raw_pointer_cast(p));
}"""
    assert kernels(source) == ["void k<char>(char*)", "void k<double>(double*)", "void k<float>(float*)", "void k<short>(short*)"]


def test_a_function_that_leads_to_no_kernel_keeps_the_return_type_that_its_body_gives() -> None:
    source = """template <class T> __global__ void k(T* p) { *p = 1; }
template <class T> auto made(int n) {
  std::cout << n;
  return library_free(n), (T*)nullptr;
}
template <class T> auto pointer(int n) {
  log(n);
  T* p = nullptr;
  return p;
}
int main() {
  auto p = pointer<short>(3);
  k<<<1, 1>>>(p);
}"""
    assert kernels(source) == ["void k<short>(short*)"]


@pytest.mark.parametrize("member", ["", "  library::Stream stream;\n"])
def test_a_virtual_function_of_a_class_template_is_followed(member: str) -> None:
    source = f"""template <class T> __global__ void k(T* p) {{ *p = 1; }}
template <class T> struct Solver {{
  virtual void step() = 0;
  void solve() {{ step(); }}
}};
template <class T> struct Jacobi : Solver<T> {{
  T* p;
{member}  Jacobi(T* p) : p(p) {{ }}
  void step() override {{
    k<T><<<1, 1>>>(p);
  }}
}};
template <class T> struct Unbuilt {{
  library::Stream stream;
  Unbuilt(T* p)
      : stream(p) {{ }}
}};
template <class T> void run(T* p) {{
  Jacobi<T> solver(p);
  Unbuilt<T> unbuilt(p);
  solver.solve();
}}
int main() {{
  run((int*)nullptr);
}}"""
    assert kernels(source) == ["void k<int>(int*)"]


def test_lambdas_that_a_macro_marks_for_the_device() -> None:
    source = "#define ON_GPU __forceinline__ __device__\n" + LAMBDAS.replace("[=] __device__", "[=] ON_GPU").replace(
        "__host__ __device__", "__host__ ON_GPU"
    )
    assert "ON_GPU (" in source
    assert cuda_to_ptx(source, name="lambdas.cu").kernels == cuda_to_ptx(LAMBDAS, name="lambdas.cu").kernels
