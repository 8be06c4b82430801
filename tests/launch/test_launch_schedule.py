"""Schedules as data."""

from __future__ import annotations

from memlane.launch import Copy, LoadedModule, Schedule, Step, Timeline
from tests.launch.fake_target import FakeTarget


def test_a_schedule_prints_as_it_runs(kernels: LoadedModule) -> None:
    launch = kernels["plain"][2, 32].bind()
    schedule = Schedule((Step(launch), Step(Copy(0, 256, 16), lane=1), Step(launch, after=(0, 1))))
    assert str(schedule).splitlines() == [
        "0: lane 0: plain grid (2, 1, 1) block (32, 1, 1)",
        "1: lane 1: copy 16 bytes",
        "2: lane 0: plain grid (2, 1, 1) block (32, 1, 1) after 0, 1",
    ]


def test_the_elapsed_time_spans_all_steps(kernels: LoadedModule, target: FakeTarget) -> None:
    schedule = Schedule((Step(kernels["plain"][1, 1].bind()),) * 3)
    assert target.run(schedule).elapsed_ns == 12
    assert Timeline(Schedule(()), (), (), modelled=True).elapsed_ns == 0
