"""What the parameters of kernels of CUDA C++ are called, read from their definitions."""

from __future__ import annotations

import pytest

import memlane as ml
from memlane.compile import parameter_names, parameter_types
from memlane.ptx import parse, print_module

SOURCE = """
#define KERNEL extern "C" __global__ void
struct Pair { float* p; };
template <class T> struct View { T* p; };
__device__ float helper(const float* not_this) { return *not_this; }
template <class T, int K> __global__ void __launch_bounds__(256, 2) red(const T* __restrict__ in, T *out, float (*f)[3], int n = (3, 4)) {
    out[0] = in[n] + f[0][0];
}
KERNEL norms(const float* a, float* /* where */ out, int rows, unsigned n) { out[rows] = helper(a + n); }
__global__ void forward(float* other, int m);
__global__ void forward(float* mine, unsigned int) { mine[0] = 1; }
namespace ns { __global__ static void views(View<float> v, struct Pair pair, const int arr[4], float*) { v.p[0] = pair.p[arr[0]]; } }
__global__ void several(float* a, int b) { a[b] = 1; }
__global__ void several(double* c, int d) { c[d] = 1; }
__global__ void alike(float* a, int b) { a[b] = 1; }
__global__ void alike(double* a, int b) { a[b] = 1; }
int main() { red<float, 3><<<1, 2>>>(0, 0, 0); ns::views<<<1, 1>>>({}, {}, 0, 0); }
"""


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        ("red", ("in", "out", "", "n")),
        ("norms", ("a", "out", "rows", "n")),
        ("forward", ("mine", "")),
        ("views", ("v", "pair", "arr", "")),
        ("several", ()),
        ("alike", ("a", "b")),
    ],
)
def test_names_are_those_of_the_definition(kernel: str, names: tuple[str, ...]) -> None:
    module = ml.cuda(SOURCE, name="names.cu")
    found = [one for one in module.kernels.values() if kernel in one.title]
    assert found
    assert {parameter_names(module, one) for one in found} == {names}


@pytest.mark.parametrize(
    ("kernel", "types"),
    [
        ("red", ("const T*", "T*", "float*", "int")),
        ("norms", ("const float*", "float*", "int", "unsigned")),
        ("forward", ("float*", "unsigned int")),
        ("views", ("View<float>", "Pair", "const int*", "float*")),
        ("several", ()),
    ],
)
def test_types_are_those_of_the_definition(kernel: str, types: tuple[str, ...]) -> None:
    module = ml.cuda(SOURCE, name="names.cu")
    assert {parameter_types(module, one) for one in module.kernels.values() if kernel in one.title} == {types}


def test_ptx_alone_has_no_names_of_the_source() -> None:
    module = parse(print_module(ml.cuda(SOURCE, name="names.cu")))
    assert {parameter_names(module, one) for one in module.kernels.values()} == {()}
