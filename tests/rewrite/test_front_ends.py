"""Kernels that Numba and Triton made: their arrays in shared memory are laid out otherwise like those of CUDA C++."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

import memlane as ml
from memlane.errors import RelayoutError
from memlane.layout import Layout, OfVectors, Padded, RandomShift, Skewed, XorSwizzle
from memlane.optimize import fix
from memlane.rewrite import shared_arrays
from tests.compile.cases import Case


def case_of(kind: str, name: str) -> Case:
    """Skips only where the front end is not installed."""
    pytest.importorskip({"numba": "numba_cuda", "triton": "triton"}[kind], reason=f"{kind} is not installed")
    case: Case = import_module(f"tests.compile.{kind}_cases").CASES[name]()
    return case


def run(case: Case, layout: Layout, shared: str, element_bytes: int | None = None) -> None:
    """The case with an array laid out otherwise gives what NumPy says."""
    changed = replace(case, module=ml.relayout(case.module, layout, shared=shared, element_bytes=element_bytes))
    call, arguments = changed.prepare(ml.target("emulator:h200"))
    call(*arguments)
    changed.check(arguments)


@pytest.mark.numba
@pytest.mark.parametrize(
    ("name", "layout"), [("matmul", XorSwizzle(16, 16)), ("matmul", RandomShift(16, 16, 1)), ("transpose", Skewed(32, 33, 3))]
)
def test_numba(name: str, layout: Layout) -> None:
    case = case_of("numba", name)
    for array in shared_arrays(case.module):
        run(case, layout, array.names[0])


@pytest.mark.triton
@pytest.mark.parametrize("layout", [XorSwizzle(32, 32), RandomShift(32, 32, 1)])
def test_triton(layout: Layout) -> None:
    run(case_of("triton", "transpose"), layout, "dynamic[0:4096]")


@pytest.mark.triton
def test_what_triton_moves_by_sixteen_bytes_is_not_torn() -> None:
    case = case_of("triton", "matmul")
    with pytest.raises(RelayoutError, match=r"triton_kernels\.py:\d+: XorSwizzle\(32x32\) tears `.*`, which accesses 16 bytes of dynamic"):
        ml.relayout(case.module, XorSwizzle(32, 32), shared="dynamic[0:2048]", element_bytes=2)
    run(case, OfVectors(32, 32, XorSwizzle(32, 4), 8), "dynamic[0:2048]", 2)


@pytest.mark.numba
def test_a_fix_for_numba_is_written_in_python() -> None:
    case = case_of("numba", "transpose")
    call, arguments = case.prepare(ml.target("emulator:h200"))
    (array,) = shared_arrays(case.module)
    (found,) = fix(call, *arguments, shared=array.names[0], layouts=[Padded(32, 33, 4)])
    assert found.language == "Numba"
    assert replace(found, tried=(replace(found.tried[0], quicker=2.0),)).source("place") == (
        "@cuda.jit(device=True)\ndef place(i, j):\n    return (i * 37) + j\n"
        "# element (i, j) of 32x33 at [place(i, j)] of an array of 1184 elements\n"
    )


@pytest.mark.triton
def test_a_changed_kernel_of_triton_is_still_one_of_triton() -> None:
    changed = ml.relayout(case_of("triton", "transpose").module, XorSwizzle(32, 32), shared="dynamic[0:4096]")
    assert [one.convention.language for one in changed.kernels.values() if one.convention] == ["Triton"]
