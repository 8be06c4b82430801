"""GCC's forms in the place of which NVRTC gets others: what they become, and that programs compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlane as ml
from memlane.compile import cuda_to_ptx
from memlane.compile.dialect import in_standard_cxx
from memlane.compile.nvrtc import errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = ({ int a = *p; a + 1; });", "x = ([&]{ int a = *p; return a + 1; }());"),
        ("({ f(); });", "([&]{ return f(); }());"),
        ("({ if (a) { b(); } c; });", "([&]{ if (a) { b(); } return c; }());"),
        ("({ f(); if (a) { b(); } });", "([&]{ f(); if (a) { b(); } }());"),
        ("({ for (;;) { break; } 3; });", "([&]{ for (;;) { break; } return 3; }());"),
        ("({ g(({ 1; })); });", "([&]{ return g(([&]{ return 1; }())); }());"),
        ("#define M(a) \\\n ({ auto b = a; \\\n b; })\n", "#define M(a) \\\n ([&]{ auto b = a; \\\n return b; }())\n"),
        ("f({1, 2});", None),
        ("f(({1}));", None),
        ("({ return 3; });", None),
        ("while (x) { ({ break; 3; }); }", None),
        ("f((S){1, 2}.a);", "f( S {1, 2}.a);"),
        ("x = (const struct N::S<3>){1};", "x =               N::S<3> {1};"),
        ("return (S){.a = 1};", "return  S {.a = 1};"),
        ("#define O (S){0}\n", None),
        ("x = (int[]){1, 2}[i];", None),
        ("x = (unsigned int){1};", None),
        ("if (x) { y(); }", None),
        ("void f(int a) { }", None),
        ("auto f = [](S) { };", None),
        ("S operator()(S) { }", None),
        ("void operator+=(pt<R> other) { } S& operator=(S) { } S operator<<(T<3>) { } bool operator!(S) { }", None),
        ("f(a, (pt<R> other) { });", None),
        ('extern "C"__global__ void k();', 'extern "C" __global__ void k();'),
        ("void f(const __restrict__ T *p, __restrict N::S* q);", "void f(const              T *p,            N::S* q);"),
        ("void f(T* const __restrict__ p, const T* __restrict__ q, T (*__restrict r)[3]);", None),
        ("T* const __restrict__ p = q; T* const __restrict__ r[4];", None),
        ('"a"s + "b"_x;', None),
        (
            "f([=] __device__ (int i) { }, [&, a = b[2]] __host__ __device__ { });",
            "f([=]            (int i) { }, [&, a = b[2]]                     { });",
        ),
        ("#define EACH(b) for_each([=] __device__(int i) { b; })\n", "#define EACH(b) for_each([=]           (int i) { b; })\n"),
        ("[[nodiscard]] __device__ int f(); [[a, b(c[1])]] __host__ __device__ (x);", None),
        ("int a[3] __device__;", None),
        ("#ifdef __GNUC__\n#if __GNUC_MINOR__ > 1", "#ifdef _mlGNUC_\n#if _mlGNUC_MINOR_ > 1"),
        ("#ifdef __CUDACC_RTC__\n#elif __GNUC__", None),
        ("#define UNROLL #pragma unroll\n", '#define UNROLL _Pragma("unroll")\n'),
        ("#define FOUR  # pragma unroll 4 // times\n", '#define FOUR  _Pragma("unroll 4")\n'),
        ("#pragma unroll\n#define text(a) #a\n", None),
        ('"({ a; })" /* ({ a; }) */', None),
    ],
)
def test_forms(text: str, expected: str | None) -> None:
    assert in_standard_cxx(text) == (text if expected is None else expected)


SOURCE = """
#define MAX(a, b) ({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); _a > _b ? _a : _b; })
#ifdef __GNUC__
#define INLINE __attribute__((always_inline)) inline
#endif
struct Pair { int a, b; };
__device__ INLINE int sum(Pair p) { return p.a + p.b; }
extern "C"__global__ void k(int* p) {
  int i = threadIdx.x;
  __extension__ __int128 wide = (__int128)p[i] << 70;
  int found = ({ int at = 0; for (int j = 0; j < 4; j++) { if (p[i] >> j & 1) { at = j; break; } } at; });
  p[i] = MAX(p[i] % 7, sum((Pair){i, 1})) + __builtin_popcount(p[i]) + (int)(wide >> 70) + found;
}
"""


def test_a_program_computes_what_gcc_would() -> None:
    target = ml.target("emulator:h200")
    array = target.array(np.arange(32, dtype="i4") * 5)
    target.load(ml.cuda(SOURCE))["k"][1, 32](array)
    lowest = [next((j for j in range(4) if x >> j & 1), 0) for x in range(0, 160, 5)]
    expected = [max(5 * i % 7, i + 1) + bin(5 * i).count("1") + 5 * i + lowest[i] for i in range(32)]
    np.testing.assert_array_equal(array.numpy(), expected)


def test_an_error_behind_what_became_longer_is_about_the_line() -> None:
    log = 'a.cu(1): error: identifier "y" is undefined\n  int x = ([&]{ return 1; }()); y;\n                                ^\n\n'
    (error,) = errors(log)
    assert error.place("int x = ({ 1; }); y;\nz;\n") == (0, 20)
    (error,) = errors('a.cu(1): error: identifier "y" is undefined\n  int x = 3; y;\n             ^\n\n')
    assert error.place("int x = 3; y;\n") == (11, 12)


@given(
    st.lists(
        st.sampled_from([*"(){}[];,=?:<>.a1\n", "({", "})", "return", "break", "for", "const", '"C"__a', "#define X ", "__GNUC__"]),
        max_size=40,
    )
)
def test_no_text_stops_it_and_lines_stay(pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert in_standard_cxx(text).count("\n") == text.count("\n")


def test_a_pragma_that_a_macro_names_unrolls_the_loop() -> None:
    source = (
        "#define UNROLL #pragma unroll 1\n__global__ void k(float* p, int n) {\n  UNROLL\n  for (int i = 0; i < 64; i++) p[i] = n;\n}\n"
    )
    stores = [cuda_to_ptx(text, name="k.cu").text.count("st.global") for text in (source, source.replace("unroll 1", "unroll 64"))]
    assert stores == [1, 64]


TYPE_DEPENDENT = """#define ALONE __restrict__
template <class T, int N> struct Array { T ALONE data[N]; T __restrict__ count; };
template <int I> struct Index { static constexpr int value = I; };
template <int I> __device__ int doubled() { return 2 * I; }
template <int I> __device__ int twice(int* p, const Index<I>& index) { return doubled<index.value>() + *p; }
__global__ void k(int* __restrict__ p) {
  Array<int, 4> array;
  array.data[p[1]] = 5;
  p[0] = array.data[p[1]] + twice(p, Index<3>{});
}
"""


def test_what_nvcc_takes_depending_on_types() -> None:
    """nvcc 13.0 takes this program."""
    compiled = cuda_to_ptx(TYPE_DEPENDENT, name="k.cu")
    assert [*compiled.kernels.values()] == ["k(int*)"]
    target = ml.target("emulator:h200")
    array = target.array(np.array([1, 2], "i4"))
    target.load(ml.cuda(TYPE_DEPENDENT))["k"][1, 1](array)
    assert array.numpy()[0] == 5 + 6 + 1
