"""Programs of `tests.emulate` with arrays in shared memory: sorting and scanning by library code, asynchronous copies, flags, phases."""

from __future__ import annotations

import numpy as np

from memlane.launch import DeviceArray, Target, find_kernel
from tests.emulate.test_programs import Case, module
from tests.rewrite.scrambled import scrambled

PROGRAMS = (
    "block_primitives__scan",
    "block_primitives__sort",
    "copies__staged",
    "copies__grouped",
    "look_back__scan",
    "barriers__hand_over",
    "phases__reverse",
)


def agrees(case: Case, name: str, target: Target) -> bool:
    """Whether the program gives what it should with its arrays in a random order."""
    original = module(name.partition("__")[0])
    kernel = find_kernel(original, case.kernel).name
    changed, arrays = scrambled(original, kernel)
    assert arrays
    arguments = [target.array(value) if isinstance(value, np.ndarray) else value for value in case.arguments]
    target.load(changed)[kernel][case.grid, case.block](*arguments)
    for position, value in enumerate(arguments):
        if isinstance(value, DeviceArray):
            expected, got = case.expected.get(position, case.arguments[position]), value.numpy()
            if not (expected(got) if callable(expected) else np.array_equal(got.reshape(-1), np.asarray(expected).reshape(-1))):
                return False
    return True
