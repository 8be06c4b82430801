"""A kernel, what to launch it with, and what must come of it: the tests of the Numba and of the Triton front end are tables of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.launch import DeviceArray, KernelCall, Target
from memlane.ptx import Module

Host = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """`arguments` are host arrays and numbers; `expected` the contents of some of the arrays after the launch, by position."""

    module: Module
    configuration: object
    arguments: tuple[Any, ...]
    expected: Mapping[int, Host]
    tolerance: float = 0.0
    """Relative to the largest value; 0 asks for equal bits."""

    def prepare(self, target: Target) -> tuple[KernelCall, list[Any]]:
        """The configured kernel and its arguments on the target."""
        (kernel,) = target.load(self.module).values()
        on_target = [target.array(value) if isinstance(value, np.ndarray) else value for value in self.arguments]
        return kernel[self.configuration], on_target

    def check(self, arguments: list[Any]) -> None:
        """Asserts what the arrays hold now; those that nothing is expected of must be unchanged."""
        for position, value in enumerate(arguments):
            if isinstance(value, DeviceArray):
                got, expected = value.numpy(), self.expected.get(position, self.arguments[position])
                worst = float(np.abs(np.asarray(expected, np.float64)).max(initial=0)) * self.tolerance
                difference = float(np.abs(got.astype(np.float64) - np.asarray(expected, np.float64)).max(initial=0))
                assert difference <= worst, f"argument {position} differs by {difference}, allowed {worst}"
