"""The two roads of every GPU test: the device, and the emulator as the same chip.

A test here is skipped only where there is no device: no driver on the machine, or a driver that finds none. A driver that does not
start, or CUDA packages that are missing beside one, fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.chip import load
from memlane.driver import Device, probe
from memlane.emulate import Emulator
from memlane.launch import LoadedModule, Target
from memlane.ptx import parse

PROGRAMS = Path(__file__).parent / "programs.ptx"


@pytest.fixture(scope="session")
def gpu() -> Device:
    found = probe()
    if not found.library or (found.packages and not found.devices and not found.broken):
        pytest.skip(found.problem)
    return Device(0, fmad=False)


@pytest.fixture(scope="session")
def emulator() -> Target:
    return Emulator(load("h200"))


@pytest.fixture(scope="session")
def on_gpu(gpu: Device) -> LoadedModule:
    return gpu.load(parse(PROGRAMS.read_text(encoding="utf-8"), PROGRAMS.name))


@pytest.fixture(scope="session")
def on_emulator(emulator: Target) -> LoadedModule:
    return emulator.load(parse(PROGRAMS.read_text(encoding="utf-8"), PROGRAMS.name))
