"""Which launches are found in host code that uses the standard library, the runtime, and macros for them."""

from __future__ import annotations

import pytest

from memlane.compile import cuda_to_ptx, nvrtc


def kernels(source: str) -> list[str]:
    return sorted(cuda_to_ptx(source, name="host.cu").kernels.values())


MACROS_AROUND_CALLS = """
#include <iostream>
#include <sstream>
#include <vector>
#define TIMED(text, call, seconds) \\
  { std::cout << text; cudaDeviceSynchronize(); double began = wall_clock(); call; seconds += wall_clock() - began; }
struct Log { Log(const char* name, std::string path); };
template <int N, class T> __global__ void scale(T* p) { p[threadIdx.x] *= N; }
template <int N, class T> void run(T* p, const Log& log) { scale<N><<<1, 32>>>(p); }
int main() {
  float* p;
  double seconds = 0;
  std::ostringstream path;
  path << "log." << 1;
  Log log("run", path.str());
  TIMED("scaling",
        run<3>(p, log),
        seconds);
  static std::vector<double> sums(1024);
  run<5>(sums.data(), log);
}
"""


def test_calls_are_followed_in_macros_and_with_variables_that_do_not_compile() -> None:
    """A macro of the host around the call, a constructor with arguments of unknown types, and a static variable with a constructor."""
    compiled = cuda_to_ptx(MACROS_AROUND_CALLS, name="timed.cu")
    assert sorted(compiled.kernels.values()) == ["void scale<3, float>(float*)", "void scale<5, double>(double*)"]
    assert not [note for note in compiled.notes if "not followed" in note]


HOST_LIBRARY = """
#include <exception>
#include <iostream>
#include <mutex>
#define CHECK(call) if (cudaError_t e = (call)) { fprintf(stderr, "%s\\n", cudaGetErrorString(e)); exit(1); }
namespace library {
struct Error : std::exception { const char* what() const noexcept override; };
template <class Clean> inline void capture(std::exception_ptr& error, Clean&& clean) { clean(); error = std::current_exception(); }
using index = long;
}
template <int N, class I = library::index> struct Array { I* data; };
template <int N> __global__ void fill(Array<N> a) { a.data[threadIdx.x] = N; }
template <int N> void run(std::ostream& log) {
  Array<N> a;
  CHECK(cudaMalloc(&a.data, 128))
  fill<<<1, 32>>>(a);
  log << "filled " << N << std::endl;
  PRINTED
}
int main() { run<3>(std::cout); run<4>(std::cerr); }
"""


def test_what_host_code_prints_checks_and_throws_costs_no_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler reports a hundred errors at a time, so each hundred statements that it refuses cost one more reading of all files."""
    calls = []
    compile_request = nvrtc.compile_request
    monkeypatch.setattr(nvrtc, "compile_request", lambda request: (calls.append(request), compile_request(request))[1])
    printed = "".join(f'  std::cout << "line {line}\\n";\n  CHECK(cudaMemset(a.data, {line}, 128))\n' for line in range(150))
    assert kernels(HOST_LIBRARY.replace("PRINTED", printed)) == ["void fill<3>(Array<3, long>)", "void fill<4>(Array<4, long>)"]
    assert len(calls) <= 3


def test_names_of_the_program_that_the_standard_library_has_too() -> None:
    """Stand-ins for the standard library must not make them ambiguous where a program has `using namespace std;`."""
    source = """
#include <iostream>
using namespace std;
struct function { int value; };
int hash(int x) { return x * 7; }
template <int N> __global__ void k(int* p, int h) { *p = N + h; }
template <int N> void run(function f) { k<N><<<1, 1>>>(nullptr, hash(f.value)); cout << f.value << endl; }
int main() { function f = {3}; run<4>(f); }
"""
    assert kernels(source) == ["void k<4>(int*, int)"]
    called = """
#include <functional>
template <int N> __global__ void k(int* p) { *p = N; }
template <int N> void run(int* p) { std::function<void(int)> launch = [=](int n) { k<N><<<n, 1>>>(p); }; launch(3); }
int main() { run<5>(nullptr); }
"""
    assert kernels(called) == ["void k<5>(int*)"]
