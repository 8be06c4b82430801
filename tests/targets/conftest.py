"""Every kind of target that can run a plan: a fake one, emulated ones, and a GPU where there is one."""

from __future__ import annotations

import pytest

from memlane.chip import load
from memlane.driver import Device, probe
from memlane.emulate import Emulator
from memlane.launch import Target
from tests.launch.fake_target import FakeTarget
from tests.targets.graphing import GraphingEmulator


@pytest.fixture(params=["fake", "emulator", "graphing", pytest.param("gpu", marks=pytest.mark.gpu)])
def any_target(request: pytest.FixtureRequest) -> Target:
    if request.param == "fake":
        return FakeTarget()
    if request.param == "emulator":
        return Emulator(load("h200"))
    if request.param == "graphing":
        return GraphingEmulator()
    found = probe()
    if not found.library or (found.packages and not found.devices and not found.broken):
        pytest.skip(found.problem)
    return Device(0)
