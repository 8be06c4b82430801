"""Schedules on the emulator: executed one step after another, timed as if lanes ran side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memlane.chip import ModelledTime
from memlane.launch import Copy, Launch, Observation, Schedule, Stream, Target, Timeline


def run_schedule(target: Target, schedule: Schedule) -> Timeline:
    """Run the steps in order. Their times are modelled: a launch takes what the clock layer says, a copy its bytes over the rated
    bandwidth; a step starts when those it waits for have ended, and takes as long as it would alone. The caches are empty at the
    beginning, whatever ran before, so that the same schedule takes the same time again; launches of the schedule share L2."""
    target.empty_caches()
    starts: list[float] = []
    ends: list[float] = []
    times: list[ModelledTime | None] = []
    time: ModelledTime | None
    for step, waits in zip(schedule.steps, schedule.dependencies(), strict=True):
        start = max((ends[number] for number in waits), default=0.0)
        action = step.action
        if isinstance(action, Copy):
            took, time = _copy(target, action), None
        else:
            time = _launch(target, action)
            took = time.cycles * 1000 / target.chip.clock_mhz
        times.append(time)
        starts.append(start)
        ends.append(start + took)
    return Timeline(schedule, tuple(starts), tuple(ends), modelled=True, times=tuple(times))


def _launch(target: Target, launch: Launch) -> ModelledTime:
    """Execute a launch with the clock layer; how long it took."""
    seen: list[Observation] = []

    def report(observation: Observation) -> None:
        seen.append(observation)
        if launch.layers.report is not None:
            launch.layers.report(observation)

    target.launch(replace(launch, layers=replace(launch.layers, clock=True, report=report)))
    (observation,) = seen
    assert observation.time is not None
    return observation.time


def _copy(target: Target, copy: Copy) -> float:
    """Execute a copy; how long it takes at the chip's rate for reading and writing, in ns."""
    data = np.empty(copy.nbytes, np.uint8)
    target.read(copy.source, data)
    target.write(copy.destination, data)
    return 2 * copy.nbytes / (target.chip.copy_gb_per_s or target.chip.dram_gb_per_s)


@dataclass(frozen=True)
class ScheduleGraph:
    """A schedule to be executed again and again, without the cost of timing it."""

    target: Target
    schedule: Schedule

    def replay(self, stream: Stream | None = None) -> None:
        """Execute all steps."""
        for step in self.schedule.steps:
            if isinstance(step.action, Copy):
                _copy(self.target, step.action)
            else:
                self.target.launch(step.action)
