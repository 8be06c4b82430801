"""Names of kernels: against a table, and against the names that were asked of the compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.compile import cuda_to_ptx
from memlane.ptx import demangle, mangling
from memlane.ptx.demangle import read


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("_Z5naivePfPKfi", "naive(float*, float const*, int)"),
        ("_Z1kv", "k()"),
        ("_ZN1AcvT_IiEEv", "A::operator int<int>()"),
        ("_ZNK1A1fEi", "A::f(int) const"),
        ("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const"),
        ("_Z9block_sumIiEvPT_PKS0_i", "void block_sum<int>(int*, int const*, int)"),
        ("_ZN1a1qILi4EEEvPi", "void a::q<4>(int*)"),
        ("_Z1kILin1ELb1ELj5EEvv", "void k<-1, true, 5>()"),
        ("_Z7vectorsP6float4PKS_i", "vectors(float4*, float4 const*, int)"),
        ("_ZN34_GLOBAL__N__00000000_4_a_cu__Z1kPi2anEPi", "(anonymous namespace)::an(int*)"),
        ("_ZZ5tiledPfPKfiE4tile", "tiled(float*, float const*, int)::tile"),
        ("_Z1kPFifE", "k(int (*)(float))"),
        ("_Z1kRA16_A3_f", "k(float (&) [16][3])"),
        ("_Z1kIJifEEvDpT_", "void k<int, float>(int, float)"),
        ("_Z1kIJEEvDpT_", "void k<>()"),
        ("_Z1kIiiiiiiiiiiifEvT9_T10_", "void k<int, int, int, int, int, int, int, int, int, int, int, float>(int, float)"),
        ("_Z1kI3FooIS0_IiEEEvT_", "void k<Foo<Foo<int>>>(Foo<Foo<int>>)"),
        ("_ZN2ns3FooIiLj3EE3runIdEEvS1_PT_", "void ns::Foo<int, 3>::run<double>(ns::Foo<int, 3>, double*)"),
        ("_Z1kIL5Color2EEvv", "void k<(Color)2>()"),
        ("_Z6kernelIZ4mainEUliE_EvT_", "void kernel<main::{lambda(int)#1}>(main::{lambda(int)#1})"),
        ("_Z2t6IXadL_Z5plainiEEEvPi", "void t6<plain>(int*)"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1>>"
            "(int, at::native::FillFunctor<float>, std::array<char*, 1>)",
        ),
    ],
)
def test_reads_names(mangled: str, expected: str) -> None:
    assert demangle(mangled) == expected


@pytest.mark.parametrize(
    "name", ["naive", "", "_Z", "_Z5abc", "_Z1kQ", "_Z1kS_", "_Z1kT_", "_Z1kILi1", "_Z99999999999999999999k", "__cuda_local"]
)
def test_leaves_what_it_cannot_read(name: str) -> None:
    assert demangle(name) == name


NAMES = (Path(__file__).parent / "mangled_names.txt").read_text().split()
"""Kernels and functions of this project's own programs and of the headers that they use, as NVRTC and nvcc 13.0 mangle them."""


@pytest.mark.skipif(mangling._runtime() is None, reason="needs the library of a C++ runtime")
def test_the_runtime_and_the_reader_agree() -> None:
    assert len(NAMES) > 300
    assert {name: read(name) for name in NAMES} == {name: mangling.runtime_demangle(name) for name in NAMES}


def test_without_a_runtime_the_reader_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mangling, "_runtime", lambda: None)
    assert demangle.__wrapped__("_Z1kILi1ELb1ELj5EEvv") == "void k<1, true, 5>()"


def test_a_name_that_grows_without_end_is_not_given_to_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mangling, "_runtime", lambda: pytest.fail("asked"))
    doubling = "_Z1k1AI" + "".join(f"1BIS{letter}_S{letter}_E" for letter in "0123456789ABCDEFGHIJKLMNOP") + "E"
    assert mangling.runtime_demangle(doubling) is None


@pytest.mark.parametrize("name", [f"_Z1k{'P' * 60_000}i", f"_Z1k{'P' * 4_000}i", f"_Z1k{'N1AI' * 900}iE", f"_Z1k{'F' * 3_000}vE"])
def test_a_name_nested_deeply_does_not_end_the_process(name: str) -> None:
    assert demangle(name).startswith(("k(", name))


def test_a_suffix_of_the_compiler_does_not_disturb() -> None:
    assert demangle("_Z1kPi$clone") == "k(int*)"


SOURCE = """
#include <cuda_fp16.h>
namespace a { struct S { }; template <class T, int N> struct V { T x[N]; }; enum class C { X, Y }; }
template <class T, int N, bool B, unsigned U> __global__ void plain(T* p, const T& q) { }
template <class... T> __global__ void pack(T... p) { }
template <template <class, int> class W, class T> __global__ void wrapped(W<T, 3>* p, W<T, 3>* q) { }
template <int... N> __global__ void numbers(int* p) { }
namespace a { template <class T> __global__ void inner(T* p, S s, V<T, 2> v) { } }
"""


def test_names_come_back_as_they_were_asked_for() -> None:
    asked = {
        "plain<float, -3, true, 5>": "(float*, float const&)",
        "plain<a::V<int, 3>, 3, false, 0>": "(a::V<int, 3>*, a::V<int, 3> const&)",
        "plain<__half, 1, false, 0>": "(__half*, __half const&)",
        "pack<int, float, a::V<int, 3>>": "(int, float, a::V<int, 3>)",
        "pack<int*, int const*, int*>": "(int*, int const*, int*)",
        "wrapped<a::V, float>": "(a::V<float, 3>*, a::V<float, 3>*)",
        "numbers<1, 2, 3>": "(int*)",
        "a::inner<a::V<a::S, 2>>": "(a::V<a::S, 2>*, a::S, a::V<a::V<a::S, 2>, 2>)",
    }
    compiled = cuda_to_ptx(SOURCE, instantiate=tuple(asked))
    assert {demangle(compiled.instantiated[name]) for name in asked} == {f"void {name}{rest}" for name, rest in asked.items()}
    assert set(compiled.kernels) == set(compiled.instantiated.values())
