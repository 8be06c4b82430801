"""Whole programs on the device against NumPy: the cases of the emulator's tests, and a grid that synchronises itself in other ways."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.driver import Device
from memlane.errors import BadLaunch
from memlane.launch import DeviceArray
from tests.emulate.test_programs import CASES, module

pytestmark = pytest.mark.gpu
PATIENT = [name for name in CASES if name not in ("locks__impatient", "locks__ticket", "warps__hand_over")]
"""Without those in which lanes of one warp wait for each other: whether they ever end is up to the assembler."""


@pytest.mark.parametrize("name", PATIENT)
def test_results_equal_numpy(gpu: Device, name: str) -> None:
    one = CASES[name]()
    kernel = gpu.load(module(name.partition("__")[0]))[one.kernel]
    arguments = [gpu.array(value) if isinstance(value, np.ndarray) else value for value in one.arguments]
    kernel[one.grid, one.block](*arguments)
    for position, value in enumerate(arguments):
        if isinstance(value, DeviceArray):
            expected = one.expected.get(position, one.arguments[position])
            got = value.numpy()
            agrees = expected(got) if callable(expected) else np.array_equal(got.reshape(-1), np.asarray(expected).reshape(-1))
            assert agrees, f"argument {position} holds {got}"


def smoothed(gpu: Device) -> tuple[ml.Kernel, DeviceArray, DeviceArray, np.ndarray]:
    a = np.random.default_rng(5).random(1000, np.float32)
    padded = np.pad(a, 1)
    expected = np.float32(0.5) * a + np.float32(0.25) * (padded[:-2] + padded[2:])
    return gpu.load(module("grid_sync"))["smooth"], gpu.array(a), gpu.zeros(1000), expected


def test_a_grid_synchronises_itself_when_timed_in_a_graph_and_with_probes(gpu: Device) -> None:
    smooth, a, b, expected = smoothed(gpu)
    launch = smooth[6, 96].bind(a, b, 1000, 1)
    for start in (
        lambda: gpu.time_launches([launch]),
        lambda: gpu.graph([launch]).replay(),
        lambda: ml.trace(smooth[6, 96], a, b, 1000, 1),
        lambda: ml.count(smooth[6, 96], a, b, 1000, 1),
    ):
        b.copy_from(np.zeros(1000, np.float32))
        start()
        assert np.abs(b.numpy() - expected).max() < 1e-6


def test_a_grid_that_does_not_fit_is_refused_with_the_limit(gpu: Device) -> None:
    smooth, a, b, _ = smoothed(gpu)
    most = gpu.resident_blocks(smooth, 96, 0) * gpu.chip.sm_count
    smooth[most, 96](a, b, 1000, 1)
    gpu.sync()
    with pytest.raises(BadLaunch, match=f"all {most + 1:,} blocks must be on the chip at once; .* holds {most} of them"):
        smooth[most + 1, 96](a, b, 1000, 1)
