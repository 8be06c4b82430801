"""The time axis: clocks of SMs with unlike origins, put on one axis of nanoseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.record import WARP_DTYPE, Trace, time_axis
from tests.synthetic import transpose

GHZ = 1.755
STEP_NS = 32


def machine(warps_of_sm: int, life_ns: float, seed: int = 7) -> tuple[Trace, npt.NDArray[np.float64]]:
    """A trace whose 8 SMs counted from random origins, and the true time (ns) at which each counter stood at 0."""
    random = np.random.default_rng(seed)
    origins = random.integers(-(10**12), 0, 8).astype(np.float64)
    warps = np.zeros(8 * warps_of_sm, WARP_DTYPE)
    warps["sm"] = np.repeat(np.arange(8), warps_of_sm)
    begin = 5e12 + random.uniform(0, life_ns, len(warps))
    for name, at in (("begin", begin), ("end", begin + random.uniform(0.2, 1, len(warps)) * life_ns)):
        warps[f"{name}_cycles"] = np.floor((at - origins[warps["sm"]]) * GHZ)
        warps[f"{name}_ns"] = at // STEP_NS * STEP_NS
    return transposed(warps), origins


def transposed(warps: npt.NDArray[Any]) -> Trace:
    trace = transpose()
    return replace(trace, warps=warps, launches=trace.launches[:1], clock_mhz=1980.0)


def off_by(trace: Trace, origins: npt.NDArray[np.float64]) -> float:
    """The largest error in ns of rows spread over the launch, after the axis' own origin is taken off."""
    axis = time_axis(trace)
    sm = np.tile(np.arange(8), 50)
    true = np.repeat(np.linspace(5e12, 5e12 + 1e5, 50), 8)
    cycles = np.floor((true - origins[sm]) * GHZ).astype(np.int64)
    found = axis.ns(np.zeros(len(sm), np.intp), sm, cycles)
    return float(np.abs(found - (true - trace.warps["begin_ns"].min())).max())


def test_sms_line_up_within_the_stated_error() -> None:
    trace, origins = machine(60, 1e5)
    axis = time_axis(replace(trace, clock_mhz=3000.0))
    assert axis.step_ns == STEP_NS
    assert axis.fitted == (True,)
    assert axis.frequency_ghz[0] == pytest.approx(GHZ, rel=1e-4)
    assert axis.error_ns < STEP_NS / 4
    assert off_by(trace, origins) < STEP_NS


def test_one_warp_an_sm_is_known_to_the_step_of_the_timer() -> None:
    trace, origins = machine(1, 1e5)
    axis = time_axis(trace)
    assert axis.error_ns <= STEP_NS / 2
    assert off_by(trace, origins) < 3 * STEP_NS


def test_a_launch_too_short_to_tell_takes_the_nominal_clock_and_says_so() -> None:
    trace, _ = machine(3, 200)
    axis = time_axis(trace)
    assert axis.fitted == (False,)
    assert axis.frequency_ghz == (pytest.approx(1.98),)


def test_an_sm_without_an_anchor_has_no_time() -> None:
    axis = time_axis(machine(2, 1e5)[0])
    assert np.isnan(axis.ns(np.array([0, 0]), np.array([8, 200]), np.array([1, 1]))).all()


def test_a_trace_without_warps_has_no_clock() -> None:
    axis = time_axis(transposed(np.zeros(0, WARP_DTYPE)))
    assert axis.clocks == ()
    assert axis.error_ns == 0
    assert np.isnan(axis.ns(np.array([0]), np.array([0]), np.array([5]))).all()


def test_contradicting_anchors_widen_the_error() -> None:
    trace, _ = machine(20, 1e5)
    warps = trace.warps.copy()
    warps["end_ns"][3] += 3200
    assert time_axis(replace(trace, warps=warps)).error_ns > 1000
