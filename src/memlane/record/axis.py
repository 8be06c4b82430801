"""Fit the common time axis of a trace: nanoseconds from the clocks of many multiprocessors.

Each SM counts cycles from an origin of its own. Every traced warp reads that counter and the global timer together when it begins and when
it ends; such a pair is an anchor. The SMs of a GPU run at one frequency, so one slope is fitted through the anchors of a launch, with a
separate offset for each SM. The global timer advances in steps (32 ns on an H200), so the true time of an anchor lies in `[ns, ns + step)`;
the offset of an SM is the middle of the range that its anchors leave, and its error is half the width of that range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.record.contents import TraceContents

ENOUGH = 0.005
"""Maximum relative uncertainty, from the steps of the global timer, at which a fitted frequency is used."""

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SmClock:
    """Clock of one SM during one launch: `ns = offset_ns + cycles / frequency_ghz`."""

    launch: int
    sm: int
    offset_ns: float
    error_ns: float
    """Maximum error of the offset: half the range that the anchors of this SM leave, or by which they contradict each other."""


@dataclass(frozen=True)
class TimeAxis:
    """Converts the cycles of a trace to nanoseconds since its earliest anchor."""

    clocks: tuple[SmClock, ...]
    frequency_ghz: tuple[float, ...]
    """Cycles per nanosecond, by launch. NaN if it could not be fitted and the nominal clock is unknown."""
    step_ns: int
    """Step of the global timer, as far as the anchors show."""
    fitted: tuple[bool, ...]
    """Whether the frequency was fitted, by launch; if not it is the nominal one, because the launch is too short for a fit."""

    @property
    def error_ns(self) -> float:
        """Largest error of an offset: how precisely rows of different SMs are aligned."""
        return max((clock.error_ns for clock in self.clocks), default=0.0)

    def ns(self, launch: npt.NDArray[Any], sm: npt.NDArray[Any], cycles: npt.NDArray[Any]) -> Times:
        """Return nanoseconds since the earliest anchor of the trace, for arrays of equal length. NaN where an SM has no anchor in the
        launch."""
        if not self.clocks:
            return np.full(len(cycles), np.nan)
        width = max(clock.sm for clock in self.clocks) + 1
        offsets = np.full((len(self.frequency_ghz), width), np.nan)
        for clock in self.clocks:
            offsets[clock.launch, clock.sm] = clock.offset_ns
        known = np.asarray(sm) < width
        where = np.where(known, sm, 0)
        slope = 1 / np.asarray(self.frequency_ghz)
        return np.where(known, offsets[launch, where] + np.asarray(cycles, np.float64) * slope[launch], np.nan)


def time_axis(trace: TraceContents) -> TimeAxis:
    """Return the time axis of `trace`. A launch that is too short for a fit gets the nominal clock of the chip."""
    warps = trace.warps
    origin = int(warps["begin_ns"].min()) if len(warps) else 0
    step = _step(_anchors(warps)[2] - origin)
    clocks: list[SmClock] = []
    frequencies: list[float] = []
    fitted: list[bool] = []
    for launch in range(len(trace.launches)):
        sm, cycles, ns = _anchors(warps[warps["launch"] == launch])
        ns -= origin
        slope, sure = _slope(sm, cycles, ns, step, trace.clock_mhz)
        frequencies.append(1 / slope)
        fitted.append(sure)
        clocks += [_offset(launch, number, cycles[sm == number], ns[sm == number], slope, step) for number in np.unique(sm).tolist()]
    return TimeAxis(tuple(clocks), tuple(frequencies), step, tuple(fitted))


def _anchors(warps: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return SM, cycles and ns of each anchor. A warp that had not exited its kernel has only one."""
    ended = warps[warps["end_ns"] > 0]
    return (
        np.concatenate((warps["sm"], ended["sm"])),
        np.concatenate((warps["begin_cycles"], ended["end_cycles"])),
        np.concatenate((warps["begin_ns"], ended["end_ns"])),
    )


def _step(ns: npt.NDArray[np.int64]) -> int:
    """Return the greatest common divisor of the readings of the global timer, relative to one of them."""
    return max(1, int(np.gcd.reduce(ns))) if len(ns) else 1


def _slope(
    sm: npt.NDArray[Any], cycles: npt.NDArray[np.int64], ns: npt.NDArray[np.int64], step: int, nominal_mhz: float
) -> tuple[float, bool]:
    """Return nanoseconds per cycle, and whether the anchors determine it."""
    nominal = 1000 / nominal_mhz if nominal_mhz else float("nan")
    if len(sm) == 0:
        return nominal, False
    numbers, index = np.unique(sm, return_inverse=True)
    counts = np.bincount(index, minlength=len(numbers))
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first, index, cycles)
    x = (cycles - first[index]).astype(np.float64)
    y = ns.astype(np.float64)
    x -= (np.bincount(index, x) / counts)[index]
    y -= (np.bincount(index, y) / counts)[index]
    spread = float(x @ x)
    if spread == 0:
        return nominal, False
    slope = float(x @ y) / spread
    error = step / np.sqrt(12 * spread)
    return (slope, True) if slope > 0 and error < ENOUGH * slope else (nominal, False)


def _offset(launch: int, sm: int, cycles: npt.NDArray[np.int64], ns: npt.NDArray[np.int64], slope: float, step: int) -> SmClock:
    """Return the clock of an SM from its anchors, cycles and ns, and the slope."""
    first = int(cycles.min())
    left = ns - (cycles - first) * slope
    low, high = float(left.max()), float(left.min()) + step
    return SmClock(launch, sm, (low + high) / 2 - first * slope, abs(high - low) / 2)
