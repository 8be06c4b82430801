"""Front ends for kernels in Python where their packages are absent."""

from __future__ import annotations

import sys

import pytest

from memlane.compile import numba, triton
from memlane.errors import MissingDependency
from memlane.packages import install_command


def kernel(out, n):  # type: ignore[no-untyped-def]
    """Never compiled."""


def test_absent_packages_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependency) as raised:
        numba(kernel, "void(float32[:], int32)")
    assert (
        str(raised.value) == f"compiling Numba kernels needs packages that are not installed; install them with: {install_command('numba')}"
    )
    with pytest.raises(MissingDependency) as raised:
        triton(kernel, "*fp32, i32")
    assert (
        str(raised.value)
        == f"compiling Triton kernels needs packages that are not installed; install them with: {install_command('triton')}"
    )
