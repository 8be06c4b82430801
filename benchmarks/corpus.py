"""Small kernels, good ones and bad ones, whose accesses are counted: what each is, how it is launched, and what it must compute.

The kernels lie in `kernels/*.cu`; each `corpus_*.py` registers those of one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.launch import LoadedModule, Target

KERNELS = Path(__file__).parent / "kernels"
SIZE, QUICK_SIZE = 1 << 14, 1 << 10
"""Numbers that a kernel works on: a multiple of every block and row."""

Array = npt.NDArray[Any]
Extent = int | tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """One launch."""

    grid: Extent
    block: Extent
    arguments: tuple[Any, ...]
    """NumPy arrays, which are copied to the target, and numbers."""
    results: Mapping[int, Array] = field(default_factory=dict)
    """By position of an argument: what it must hold afterwards, bit for bit."""


@dataclass(frozen=True)
class Case:
    """One kernel of the corpus."""

    kernel: str
    """Its name in the source."""
    about: str
    """What is good or bad in its accesses."""
    make: Callable[[int, np.random.Generator], Problem]
    """The problem for so many numbers."""

    def problem(self, quick: bool) -> Problem:
        """The same one each time."""
        return self.make(QUICK_SIZE if quick else SIZE, np.random.default_rng(7))


@dataclass(frozen=True)
class Group:
    """The kernels of one file."""

    name: str
    """Of the file, without its ending."""
    cases: tuple[Case, ...]

    def load(self, target: Target) -> LoadedModule:
        major, minor = target.chip.compute_capability
        return target.load(cuda(KERNELS / f"{self.name}.cu", arch=f"sm_{major}{minor}"))


def run(case: Case, loaded: LoadedModule, quick: bool) -> dict[int, Array]:
    """Launch a kernel once; what its results are. AssertionError if they are not what they must be."""
    problem = case.problem(quick)
    target = loaded.target
    arguments = [target.array(one) if isinstance(one, np.ndarray) else one for one in problem.arguments]
    loaded[case.kernel][problem.grid, problem.block](*arguments)
    found = {position: arguments[position].numpy() for position in problem.results}
    for position, wanted in problem.results.items():
        np.testing.assert_array_equal(found[position], wanted, err_msg=f"{case.kernel}, argument {position}")
    return found
