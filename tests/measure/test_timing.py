"""`time` and `Snapshot`: what they leave as it was."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.launch import DeviceArray, Launch, LoadedModule, observing
from memlane.measure import Timing, time
from memlane.measure.memory import Snapshot


def test_time_restores_memory(kernels: LoadedModule, data: DeviceArray) -> None:
    timing = time(kernels["add"][1, 128], data, 5)
    assert np.array_equal(data.numpy(), np.arange(128))
    assert timing.modelled
    assert timing.kernel == "add"
    assert len(timing.samples_ns) == 1
    assert timing.median_ns > 0
    assert str(timing).startswith("add: ")
    assert "modelled on emulator:h200" in str(timing)


def test_time_restores_memory_when_the_kernel_fails(kernels: LoadedModule, target: Emulator) -> None:
    short = target.array(np.arange(32, dtype=np.uint32))
    with pytest.raises(Exception, match="just past the end of the 128-byte allocation"):
        time(kernels["add"][1, 64], short, 5)
    assert np.array_equal(short.numpy(), np.arange(32))


def test_longer_work_takes_longer(kernels: LoadedModule, target: Emulator) -> None:
    data = target.zeros(1000, "u4")
    short, long = (time(kernels["sum"][1, 32], data, times).median_ns for times in (10, 1000))
    assert long > 20 * short


def test_time_is_seen_by_observers(kernels: LoadedModule, data: DeviceArray) -> None:
    seen: list[Launch] = []

    class Watcher:
        def launching(self, launch: Launch) -> Launch:
            seen.append(launch)
            return launch

    with observing(Watcher()):
        time(kernels["add"][1, 128], data, 5)
    assert len(seen) == 1


def test_measured_times_say_how_far_they_spread() -> None:
    timing = Timing("k", "cuda:0", False, (2000.0, 1000.0, 4000.0))
    assert timing.median_ns == 2000
    assert timing.spread_ns == (1000, 4000)
    assert str(timing) == "k: 2 us (median of 3, 1 us to 4 us, measured on cuda:0)"


def test_snapshot_holds_each_array_once_and_puts_it_back(kernels: LoadedModule, data: DeviceArray, target: Emulator) -> None:
    other = target.array(np.arange(10, dtype=np.float64))
    snapshot = Snapshot(kernels["add"][1, 128].bind(data, 5))
    data.copy_from(np.zeros(128, np.uint32))
    other.copy_from(np.zeros(10))
    snapshot.restore()
    assert np.array_equal(data.numpy(), np.arange(128))
    assert not other.numpy().any(), "not an argument of the launch"
