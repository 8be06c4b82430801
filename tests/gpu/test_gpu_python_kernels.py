"""Numba's and Triton's kernels on the device against NumPy, plain, traced and counted.

They are compiled here, or were beforehand: `python -m tests.compile.kept` writes `build/kernels`, which may come from another machine.
"""

from __future__ import annotations

from importlib import import_module

import pytest

import memlane as ml
from memlane.driver import Device
from memlane.errors import MissingDependency
from tests.compile.cases import Case
from tests.compile.kept import kept

pytestmark = pytest.mark.gpu
NAMES = {
    "numba": "vector_add saxpy softmax layer_norm matmul reduction histogram transpose stencil scan gather spmv medians mandelbrot compact "
    "mirror_sums",
    "triton": "vector_add saxpy softmax layer_norm matmul attention reduction histogram transpose stencil scan gather argmax sort activate "
    "random_dropout locked_sum",
}
EACH = [pytest.param(kind, name, marks=getattr(pytest.mark, kind)) for kind, names in NAMES.items() for name in names.split()]


def case_of(kind: str, name: str) -> Case:
    """Skips only where the front end is not installed, or not with what it needs. One that is and does not compile fails."""
    found = kept(kind, name)
    if found is not None:
        return found
    reason = (
        f"{kind} is not installed here, and build/kernels has no kernels of this checkout: run python -m tests.compile.kept where it is"
    )
    pytest.importorskip({"numba": "numba_cuda", "triton": "triton"}[kind], reason=reason)
    cases = import_module(f"tests.compile.{kind}_cases").CASES
    assert set(cases) == set(NAMES[kind].split())
    try:
        return cases[name]()
    except MissingDependency as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_results_equal_numpy(gpu: Device, kind: str, name: str) -> None:
    case = case_of(kind, name)
    for measured in (lambda call, *arguments: call(*arguments), ml.trace, ml.count):
        call, arguments = case.prepare(gpu)
        measured(call, *arguments)
        case.check(arguments)
