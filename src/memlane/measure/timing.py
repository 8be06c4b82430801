"""Measure how long a launch takes, without probes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from memlane.chip import ModelledTime
from memlane.errors import BadLaunch
from memlane.launch import KernelCall
from memlane.measure.isolation import without_observers
from memlane.measure.memory import Snapshot
from memlane.number_format import duration

WARM_UP_LAUNCHES = 3
"""Launches before the timed ones, so that caches and clocks have settled; none on a target that models time."""


@dataclass(frozen=True)
class Timing:
    """Durations of repeated executions of one launch, in ns."""

    kernel: str
    target: str
    modelled: bool
    """True for the emulator's clock layer, whose durations are a model and all equal; False for time measured on a device."""
    samples_ns: tuple[float, ...]
    time: ModelledTime | None = None
    """Limits of the modelled duration, and its lower bounds; None for a measured one."""

    @property
    def median_ns(self) -> float:
        """Median of the samples, in ns."""
        return statistics.median(self.samples_ns)

    @property
    def spread_ns(self) -> tuple[float, float]:
        """The shortest and the longest sample."""
        return min(self.samples_ns), max(self.samples_ns)

    def __str__(self) -> str:
        low, high = self.spread_ns
        how = "modelled" if self.modelled else f"median of {len(self.samples_ns)}, {duration(low)} to {duration(high)}, measured"
        limit = "" if self.time is None else f", {self.time.short}"
        return f"{self.kernel}: {duration(self.median_ns)} ({how} on {self.target}{limit})"


def time(call: KernelCall, *args: object, repeats: int = 20) -> Timing:
    """Measure how long `call(*args)` takes on its target, without probes. The arrays among `args` are restored.

    timing = ml.time(kernel[grid, block], out, a, n)
    timing.median_ns, timing.spread_ns, timing.modelled
    timing.time.limited_by                           # on the emulator: the bound that determines the duration, or "latency"

    On a GPU each of `repeats` launches lies between two events, after a few warm-up launches; on the emulator one launch is modelled, with
    cold caches. Raises BadLaunch for `repeats` below 1, and for what an ordinary launch would refuse.
    """
    if repeats < 1:
        raise BadLaunch(f"repeats must be at least 1, got {repeats}")
    launch = call.bind(*args)
    target = launch.kernel.target
    before = Snapshot(launch)
    try:
        with without_observers(launch):
            if not target.modelled:
                target.time_launches([launch] * WARM_UP_LAUNCHES)
            times = target.time_launches([launch] * (1 if target.modelled else repeats))
    finally:
        before.restore()
    return Timing(launch.kernel.title, target.name, target.modelled, tuple(one.elapsed_ns for one in times), times[0].model)
