"""What is cut out of a .cu file and what stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.compile.hostcode import DeviceCode, cut
from memlane.compile.macros import collect
from memlane.compile.tokens import tokenize


def cut_text(text: str) -> DeviceCode:
    tokens = tokenize(text)
    return cut(text, tokens, collect([tokens]))


def left(text: str) -> str:
    """What stays, white space made one blank."""
    return " ".join(cut_text(text).text.split())


HOST = [
    "int main() { return 0; }",
    "int main(int argc, char** argv) try { f(); } catch (const E& e) { return 1; } catch (...) { }",
    "static void usage();",
    "void f(std::vector<int> v = {1, 2}) { for (auto x : v) { g(x); } }",
    "template <typename T, int N = (3 > 2)> T sum(const std::map<int, T>& m) { return T{}; }",
    "template float sum<float>(const float*);",
    "template <> int sum<int>(int x) { return x; }",
    "std::vector<int> v;",
    "std::vector<int> v{1, 2, 3};",
    "int counter = 0;",
    "const char* name = \"}\";",
    "static int table[2][2] = {{1, 2}, {3, 4}};",
    "auto f = [](int x) -> int { if (x) { return 1; } return 0; };",
    "void (*callback)(int) = nullptr;",
    "Timer::Timer(int a) : a_(a), b_{a, 1}, Base<int>(a) { start(); }",
    "float Timer::elapsed() const noexcept(true) { return 0; }",
    "std::ostream& operator<<(std::ostream& o, const P& p) { return o; }",
    "bool operator()(int a);",
    "[[nodiscard]] inline int f() { return 1; }",
    "__attribute__((noinline)) int f() { return 1; }",
    "auto f(int a) -> std::vector<int> { return {a}; }",
    "extern \"C\" int puts(const char*);",
    "__host__ int f() { return 1; }",
    "struct timeval* now(void) { return 0; }",
    "unsigned long long operator\"\" _kb(unsigned long long n) { return n; }",
    "PYBIND11_MODULE(name, m) { m.def(\"f\", &f); }",
]  # fmt: skip

DEVICE = [
    "__global__ void k(int* p) { *p = 1; }",
    "__global__ void __launch_bounds__(256, 2) k(int* p);",
    "extern \"C\" __global__ void k() {}",
    "template <typename T> __device__ T f(T x) { return x; }",
    "template __global__ void k<int>(int*);",
    "__host__ __device__ int f() { return 1; }",
    "__constant__ float c[4];",
    "__device__ int table[] = {1, 2};",
    "extern __shared__ float s[];",
    "constexpr int square(int x) { return x * x; }",
    "constexpr float PI = 3.14f;",
    "static const int N = 1 << 4;",
    "const char* const name = \"a\";",
    "enum class Mode : int { A, B = 3 };",
    "typedef struct { int a; } S;",
    "typedef int (*fn)(int);",
    "using F = float (*)(float);",
    "using namespace std;",
    "namespace cg = cooperative_groups;",
    "struct P { int a : 3; float b{1}; int (*f)(int); P() = default; };",
    "template <class T, int N> struct V : Base<T> { T x[N]; };",
    "template <> struct V<int, 3> { enum { A }; };",
    "static_assert(sizeof(int) == 4, \"int\");",
    "template <class T> concept Small = requires(T a) { sizeof(a) < 8; };",
    "struct __align__(16) Q { float x; };",
]  # fmt: skip


@pytest.mark.parametrize("text", HOST)
def test_host_code_is_cut_and_its_neighbours_stay(text: str) -> None:
    assert left(f"__device__ int before;\n{text}\n__device__ int after;") == "__device__ int before; __device__ int after;"


@pytest.mark.parametrize("text", DEVICE)
def test_device_code_stays(text: str) -> None:
    assert left(f"int x;\n{text}\nint y() {{ }}") == " ".join(text.split())


@pytest.mark.parametrize(
    "wrapping", ["namespace a::b {{ {} }}", "namespace {{ {} }}", 'extern "C" {{ {} }}', "inline namespace v1 {{ {} }}"]
)
def test_scopes_are_entered(wrapping: str) -> None:
    text = wrapping.format("int host() { return 1; } __global__ void k() { }")
    assert left(text) == wrapping.format("__global__ void k() { }")


def test_members_of_a_class_are_told_apart() -> None:
    text = """class Stack {
        int data[8]; std::string name;
      public:
        explicit Stack(const std::string& n) : name(n), data{} { fill(); }
        ~Stack() { clear(); }
        __device__ void push(int x) { data[n++] = x; }
        template <class F> void each(F f) { for (auto& x : data) f(x); }
        bool operator()(int a) const { return a; }
        explicit operator bool() const { return true; }
        Stack& operator=(const Stack&) = default;
        friend class Other;
        struct Inner { void host(); __host__ __device__ int both(); int x; };
    };"""
    assert left(text) == (
        "class Stack { int data[8]; std::string name; public: __device__ void push(int x) { data[n++] = x; } "
        "Stack& operator=(const Stack&) = default; friend class Other; "
        "struct Inner { __host__ __device__ int both(); int x; }; };"
    )


@pytest.mark.parametrize(
    ("definition", "use", "stays"),
    [
        ("#define HD __host__ __device__", "HD int f() { return 1; }", True),
        ("#define HD __host__ __device__\n#define INLINE HD inline", "INLINE int f() { return 1; }", True),
        ("#ifdef __CUDACC__\n#define HD __device__\n#else\n#define HD\n#endif", "HD int f() { return 1; }", True),
        ("#define API __declspec(dllexport)", "API int f() { return 1; }", False),
        ("#define KERNEL(name) __global__ void name", "KERNEL(k)(int* p) { *p = 1; }", True),
        ("#define UNARY(n, e) __global__ void n(float* x) { \\\n *x = e; }", "UNARY(neg, -*x)", True),
        ("#define LAUNCH(n) void launch_##n() { n<<<1, 1>>>(); }", "LAUNCH(k)", False),
        ("#define RECORD(n) struct n { int x; };", "RECORD(R)", True),
        ("#define UNARY(n) __global__ void n(T* x) { }", "template <typename T> UNARY(neg)", True),
        ("#define CHECK(x) do { if (x) abort(); } while (0)", "void f() { CHECK(1); }", False),
    ],
)
def test_macros_are_looked_through(definition: str, use: str, stays: bool) -> None:
    rest = left(f"{definition}\n{use}\nint main() {{ }}").removeprefix(" ".join(definition.split())).strip()
    assert rest == (use if stays else "")


@pytest.mark.parametrize(
    "macros",
    [
        "#define BEGIN namespace mine {\n#define END }",
        "#define BEGIN \\\n namespace mine { inline namespace v1 {\n#define END } }",
        '#ifdef __cplusplus\n#define BEGIN extern "C" {\n#define END }\n#else\n#define BEGIN\n#define END\n#endif',
    ],
)
def test_macros_that_open_and_close_a_scope_stay(macros: str) -> None:
    """They used to go with the host code behind them."""
    text = f"{macros}\nBEGIN\nvoid host() {{ }}\n__global__ void k() {{ }}\nEND\nint main() {{ }}"
    assert left(text) == " ".join(f"{macros} BEGIN __global__ void k() {{ }} END".split())


def test_a_class_whose_head_has_a_macro_with_parentheses_stays() -> None:
    """It is neither a function nor its parameters: `struct ALIGNED(8) Pair { ... }`."""
    macro = "#define ALIGNED(n) __attribute__((aligned(n)))\n"
    text = f"{macro}struct ALIGNED(8) Pair {{ int a, b; void host() {{ }} }}; struct ALIGNED(8) Pair f(int);"
    assert left(text).endswith("struct ALIGNED(8) Pair { int a, b; };")


def test_a_macro_of_the_command_line_may_mark_the_device() -> None:
    text = "HD int f() { return 1; }"
    tokens = tokenize(text)
    assert cut(text, tokens, collect([tokens], ["HD=__device__"])).text == text
    assert cut(text, tokens, collect([tokens], ["HD"])).text.strip() == ""


def test_conditionals_stay_where_host_code_is_cut() -> None:
    text = "#ifdef A\nint f(int a) {\n#else\nint f(float a) {\n#endif\n  return 1;\n#pragma omp parallel\n}\n__device__ int x;"
    assert cut_text(text).text.split() == ["#ifdef", "A", "#else", "#endif", "__device__", "int", "x;"]


def test_text_behind_if_0_is_no_code() -> None:
    assert left("#if 0\ndon't { read\n#endif\nint main() { }\n__device__ int x;").endswith("__device__ int x;")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_line_and_column_stays_where_it_was(end: str) -> None:
    lines = ["// ü {", "int main() {", '\tputs("}");', "\treturn 0; } __device__ int x; int y;", "__device__ int z;"]
    before, after = end.join(lines), cut_text(end.join(lines)).text
    assert len(after) == len(before)
    assert [i for i, c in enumerate(before) if c in "\r\n\t"] == [i for i, c in enumerate(after) if c in "\r\n\t"]
    assert after.index("__device__ int x;") == before.index("__device__ int x;")


FRAGMENTS = [
    *"{}()[];,=:<>~#",
    *["::", "<<<", "->", "operator", "template", "class", "struct", "enum", "namespace", "extern", "const", "try", "catch", "a", "1"],
    *['"C"', "__global__", "__device__", "\n#if 1\n", "\n#else\n", "\n#endif\n", "\n"],
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40))
def test_no_text_stops_the_cutter_or_moves(pieces: list[str]) -> None:
    text = " ".join(pieces)
    after = cut_text(text).text
    assert len(after) == len(text)
    assert all(a in (b, " ") for a, b in zip(after, text, strict=True))
    assert after.count("\n") == text.count("\n")


def test_launches_of_templates_are_found_with_local_constants_put_in() -> None:
    text = """template <typename T> void go() { k<T><<<1, 1>>>(); k<int><<<1, 1>>>(); }
    void run(int n) {
        const int block = 128, twice = 2 * block;
        ns::k<float, twice><<<1, block>>>(); k<V<int, 3>><<<1, 1>>>(); plain<<<1, 1>>>();
        { const int again = 1; } { const int again = 2; q<again><<<1, 1>>>(); }
        k<int><<<1, 1>>>();
    }"""
    assert cut_text(text).launches == ("k<int>", "ns::k<float, (2 * 128)>", "k<V<int, 3>>", "q<again>")


def test_template_kernels_are_listed() -> None:
    text = """template <typename T, int N = (1 > 0)> __global__ void __launch_bounds__(N) first(T* p) { }
    template <> __global__ void first<int, 1>(int* p) { }
    template <typename T> __device__ T helper(T x) { return x; }
    __global__ void plain() { }"""
    assert cut_text(text).templates == ("first",)


def test_the_bounds_of_a_template_kernel_do_not_give_it_their_name() -> None:
    text = """template <int N> __global__ void __launch_bounds__(N, MAX(4, 8)) k(int* p) { }
    template <int N> __global__ __launch_bounds__(N, MAX(4, 8)) void q(int* p) { }
    template <int N> BOUNDS(3) __global__ void r(int* p) __attribute__((cold));"""
    assert cut_text(text).templates == ("k", "q", "r")


def test_a_file_that_is_included_inside_a_function_is_a_piece_of_it() -> None:
    text = '#include "a.h"\n__global__ void k() {\n#include "b.h"\n}\nstruct S {\n#include "c.h"\n};\nnamespace n {\n#include "d.h"\n}\n'
    tokens = tokenize(text)
    assert [tokens[index].text for index in cut_text(text).inner_includes] == ['#include "b.h"', '#include "c.h"']
