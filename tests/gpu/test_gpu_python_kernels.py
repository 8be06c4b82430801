"""Numba's and Triton's kernels on the device against NumPy, plain, traced and counted."""

from __future__ import annotations

from importlib import import_module

import pytest

import memlane as ml
from memlane.driver import Device

pytestmark = pytest.mark.gpu
NAMES = {
    "numba": "vector_add saxpy softmax layer_norm matmul reduction histogram transpose stencil scan gather spmv medians mandelbrot compact",
    "triton": "vector_add saxpy softmax layer_norm matmul reduction histogram transpose stencil scan gather argmax sort activate "
    "random_dropout locked_sum",
}
EACH = [pytest.param(kind, name, marks=getattr(pytest.mark, kind)) for kind, names in NAMES.items() for name in names.split()]


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_results_equal_numpy(gpu: Device, kind: str, name: str) -> None:
    pytest.importorskip({"numba": "numba_cuda", "triton": "triton"}[kind])
    cases = import_module(f"tests.compile.{kind}_cases")
    assert set(cases.CASES) == set(NAMES[kind].split())
    case = cases.CASES[name]()
    for measured in (lambda call, *arguments: call(*arguments), ml.trace, ml.count):
        call, arguments = case.prepare(gpu)
        measured(call, *arguments)
        case.check(arguments)
