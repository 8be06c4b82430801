"""Kernels that Numba and Triton made: their arrays in shared memory are laid out otherwise like those of CUDA C++."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import memlane as ml
from memlane.errors import RelayoutError
from memlane.launch import Kernel
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
    with pytest.raises(RelayoutError, match=r"triton_kernels\.py:\d+: XorSwizzle\(32x32\) splits `.*`, which accesses 16 bytes of dynamic"):
        ml.relayout(case.module, XorSwizzle(32, 32), shared="dynamic[0:2048]", element_bytes=2)
    run(case, OfVectors(32, 32, XorSwizzle(32, 4), 8), "dynamic[0:2048]", 2)


@pytest.mark.slow
@pytest.mark.numba
def test_a_fix_for_numba_is_written_in_python() -> None:
    case = case_of("numba", "transpose")
    call, arguments = case.prepare(ml.target("emulator:h200"))
    (array,) = shared_arrays(case.module)
    (found,) = fix(call, *arguments, shared=array.names[0], layouts=[Padded(32, 33, 4)])
    assert found.language == "Numba"
    assert replace(found, tried=(replace(found.tried[0], speedup=2.0),)).source("place") == (
        "@cuda.jit(device=True)\ndef place(i, j):\n    return (i * 37) + j\n"
        "# element (i, j) of 32x33 at [place(i, j)] of an array of 1,184 elements\n"
    )


@pytest.mark.triton
def test_a_changed_kernel_of_triton_is_still_one_of_triton() -> None:
    changed = ml.relayout(case_of("triton", "transpose").module, XorSwizzle(32, 32), shared="dynamic[0:4096]")
    assert [one.convention.language for one in changed.kernels.values() if one.convention] == ["Triton"]


@pytest.mark.numba
@pytest.mark.parametrize("layout", ["column-major", "pad(3)", "diagonal"])
def test_an_array_of_numba_is_named_and_keeps_its_shape(layout: str) -> None:
    """Numba computes with the shape and the strides that it is passed, which stay those of the array as the kernel takes it."""
    kernel, host = rows_of_numba(), np.random.default_rng(4).integers(0, 9, (100, 20)).astype("f4")
    target = kernel.target
    for parameter in ("points", 0):
        changed, out = ml.relayout(kernel, layout, parameter=parameter, shape=host.shape, dtype="f4"), target.zeros(100)
        changed[4, 32](ml.upload(target, host, layout=layout), out, 100)
        assert np.array_equal(out.numpy(), host.sum(axis=1))
    with pytest.raises(RelayoutError, match="rows has no parameter 'pts'; it has: points, out, n"):
        ml.relayout(kernel, layout, parameter="pts", shape=host.shape, dtype="f4")


@pytest.mark.slow
@pytest.mark.numba
def test_advice_counts_the_arguments_of_numba() -> None:
    kernel = rows_of_numba()
    (advice,) = ml.advise_layout(kernel[4, 32], kernel.target.zeros((100, 20)), kernel.target.zeros(100), 100)
    assert (advice.parameter, advice.name, advice.shape) == (0, "points", (100, 20))
    assert all(one.same for one in advice.tried)


def rows_of_numba() -> Kernel:
    cuda = pytest.importorskip("numba_cuda", reason="numba is not installed") and import_module("numba.cuda")

    def rows(points, out, n):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < n:
            total = 0.0
            for k in range(points.shape[1]):
                total += points[i, k]
            out[i] = total

    return ml.target("emulator:h200").load(ml.numba(rows, "void(float32[:, :], float32[:], int32)"))["rows"]


@pytest.mark.triton
def test_a_pointer_of_triton_is_named() -> None:
    case = case_of("triton", "transpose")
    call, arguments = case.prepare(ml.target("emulator:h200"))
    (convention,) = [one.convention for one in case.module.kernels.values()]
    assert convention is not None
    position, host = next((at, one.numpy()) for at, one in enumerate(arguments) if isinstance(one, ml.DeviceArray) and at)
    name = convention.names[position]
    changed = ml.relayout(call.kernel, "pad(4)", parameter=name, shape=host.shape, dtype=host.dtype)
    given = [*arguments]
    given[position] = ml.upload(changed.target, host, layout="pad(4)")
    changed[call.grid, call.block](*given)
    case.check(arguments)
