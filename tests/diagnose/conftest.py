"""The kernels of `judged.cu`, compiled once for each file of tests."""

from pathlib import Path

import pytest

from memlane.compile import cuda
from memlane.launch import LoadedModule, Target
from memlane.targets import target as named


@pytest.fixture(scope="module")
def target() -> Target:
    return named("emulator:h200")


@pytest.fixture(scope="module")
def kernels(target: Target) -> LoadedModule:
    return target.load(cuda(Path(__file__).parent / "judged.cu"))
