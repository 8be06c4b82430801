"""Describe small kernels, good and bad ones, whose accesses are counted: what each is, how it is launched, and what it must compute.

The kernels lie in `kernels/*.cu`; each `corpus_*.py` registers those of one file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.launch import Kernel, Target
from memlane.ptx import Module, print_module

KERNELS = Path(__file__).parent / "kernels"
_INSTALLED = re.compile(r'(?m)^(\.file\s+\d+ ")/[^"]*/site-packages/')


def kept_ptx(module: Module) -> str:
    """Return the text of a module as it is kept in `kernels`: with the oldest version of PTX that has its instructions, so that older
    assemblers take it, and with files of installed packages by their place in the package."""
    return _INSTALLED.sub(r"\1", print_module(module).replace(".version 9.4", ".version 8.6", 1))


SIZE, QUICK_SIZE = 1 << 14, 1 << 10
"""Numbers that a kernel works on: a multiple of every block and row."""

Array = npt.NDArray[Any]
Extent = int | tuple[int, ...]


@dataclass(frozen=True)
class Mapped:
    """An array that a kernel reaches through a tensor map."""

    array: Array
    box: tuple[int, ...]
    swizzle: str = "none"


@dataclass(frozen=True)
class Problem:
    """One launch."""

    grid: Extent
    block: Extent
    arguments: tuple[Any, ...]
    """NumPy arrays, which are copied to the target, also behind tensor maps, and numbers."""
    results: Mapping[int, Array] = field(default_factory=dict)
    """Contents that an argument must have afterwards, by its position: bit for bit unless `close` is given."""
    shared_bytes: int = 0
    """Bytes of dynamic shared memory."""
    close: float = 0.0
    """Largest acceptable error of the results, as a share of the largest of them."""


@dataclass(frozen=True)
class Case:
    """One kernel of the corpus."""

    kernel: str
    """Its name in the source."""
    about: str
    """A description of what is good or bad in its accesses."""
    make: Callable[[int, np.random.Generator], Problem]
    """The problem for so many numbers."""

    def problem(self, quick: bool) -> Problem:
        """Return the problem of the kernel, which is the same in every call."""
        return self.make(QUICK_SIZE if quick else SIZE, np.random.default_rng(7))


@dataclass(frozen=True)
class Group:
    """The kernels of one file."""

    name: str
    """Name of the file, without its suffix."""
    cases: tuple[Case, ...]

    def load(self, target: Target) -> Mapping[str, Kernel]:
        """Return the kernels by name."""
        major, minor = target.chip.compute_capability
        return target.load(cuda(KERNELS / f"{self.name}.cu", arch=f"sm_{major}{minor}"))


def run(case: Case, loaded: Mapping[str, Kernel], quick: bool) -> dict[int, Array]:
    """Launch a kernel once; what its results are. AssertionError if they are not what they must be."""
    problem = case.problem(quick)
    kernel = loaded[case.kernel]
    target = kernel.target
    arrays = [one.array if isinstance(one, Mapped) else one for one in problem.arguments]
    there = [target.array(one) if isinstance(one, np.ndarray) else one for one in arrays]
    passed = [
        target.tensor_map(array, one.box, swizzle=one.swizzle) if isinstance(one, Mapped) else array
        for one, array in zip(problem.arguments, there, strict=True)
    ]
    kernel[problem.grid, problem.block, None, problem.shared_bytes](*passed)
    found = {position: there[position].numpy() for position in problem.results}
    for position, wanted in problem.results.items():
        far = problem.close * float(np.abs(wanted).max()) if problem.close else 0.0
        np.testing.assert_allclose(found[position], wanted, rtol=0, atol=far, err_msg=f"{case.kernel}, argument {position}")
    return found
