"""A fake target with a module on it."""

from __future__ import annotations

import pytest

from memlane.launch import LoadedModule
from memlane.ptx import parse
from tests.launch.fake_target import PTX, FakeTarget


@pytest.fixture
def target() -> FakeTarget:
    return FakeTarget()


@pytest.fixture
def kernels(target: FakeTarget) -> LoadedModule:
    return target.load(parse(PTX, "k.cu"))
