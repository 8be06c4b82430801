"""Waiting at barriers, on traces made by hand: which warp is last, and for whom it would open earlier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.record import BARRIER_DTYPE, Trace
from tests.diagnose import made
from tests.diagnose.made import accesses, counted, site

LATENCY, WAVEFRONTS = 23.7, 32
OPENING = 20


def conflicts(arrivals: list[list[int]], cycles: list[int]) -> Trace:
    """Return a block whose warps make an access of 32 wavefronts from cycle 0 on, each with its own cycles, and then arrive at barriers: a
    row of arrivals for each."""
    load = site(0, "ld.shared.f32", array="tile")
    warps = len(cycles)
    found = made.trace(
        [accesses(load, np.array(cycles)[None, :, None], (1, warps, 1))],
        [counted(load, warps, wavefronts=WAVEFRONTS, ideal_wavefronts=1)],
        lives=1000,
    )
    waits = np.zeros(len(arrivals) * warps, BARRIER_DTYPE)
    waits["warp"] = np.tile(np.arange(warps), len(arrivals))
    waits["arrived"] = np.ravel(arrivals)
    waits["opened"] = np.repeat([max(row) + OPENING for row in arrivals], warps)
    launches = tuple(replace(one, has_barriers=True) for one in found.launches)
    return replace(found, barriers=waits, launches=launches)


def cost(trace: Trace) -> float:
    return sum(one.cost_cycles for one in made.found(trace, "bank-conflict"))


def test_all_warps_arrive_earlier_by_their_own_excess() -> None:
    """By hand: each of four warps takes 55 cycles instead of 24, so the barrier opens 31 cycles earlier."""
    assert cost(conflicts([[100] * 4], [55] * 4)) == pytest.approx(4 * 31, rel=0.02)


def test_the_last_warp_delays_all_others() -> None:
    """The fourth warp makes slow accesses and comes 60 cycles after the others, so the barrier opens 60 cycles earlier; or only 10."""
    assert cost(conflicts([[140, 140, 140, 200]], [24, 24, 24, 148])) == pytest.approx(4 * 60, rel=0.02)
    assert cost(conflicts([[190, 190, 190, 200]], [24, 24, 24, 148])) == pytest.approx(4 * 10, abs=2)


def test_a_warp_that_would_wait_anyway_costs_nothing() -> None:
    found = made.found(conflicts([[60, 300, 300, 300]], [55, 24, 24, 24]), "bank-conflict")
    assert found == []


def test_only_the_next_barrier_counts() -> None:
    """At the second barrier all warps come at the same time before and after."""
    once, twice = [[100] * 4], [[100] * 4, [400] * 4]
    assert cost(conflicts(twice, [55] * 4)) == pytest.approx(cost(conflicts(once, [55] * 4)))


def test_after_the_last_barrier_a_warp_saves_its_own_excess() -> None:
    assert cost(conflicts([[-5] * 4], [55] * 4)) == pytest.approx(4 * 31, rel=0.02)


def test_a_barrier_that_opens_late_waited_for_another_warp() -> None:
    """`bar.arrive` does not wait, so nothing is known of the warp that came last."""
    trace = conflicts([[100] * 4], [55] * 4)
    late = trace.barriers.copy()
    late["opened"] += 500
    assert cost(replace(trace, barriers=late)) == 0


def test_waits_are_kept_in_the_record_file(tmp_path: object) -> None:
    trace = conflicts([[100] * 4, [250] * 4], [55] * 4)
    path = f"{tmp_path}/waits.parquet"
    trace.save(path)
    loaded = Trace.load(path)
    assert (loaded.barriers == trace.barriers).all()
    assert loaded.launches[0].has_barriers


def test_an_imbalance_costs_what_warps_wait_for_the_busiest() -> None:
    """By hand: three of four warps arrive 900, 800 and 700 cycles before the one that makes eight times as many accesses."""
    load = site(0, "ld.global.f32")
    busy = accesses(load, 40, (1, 4, 8))
    found = made.trace([busy], [counted(load, 11, sectors=4, ideal_sectors=4)], lives=2000)
    kept = found.table.to_pylist()
    mask = [row["warp"] == 3 or row["execution"] == 0 for row in kept]
    waits = np.zeros(4, BARRIER_DTYPE)
    waits["warp"], waits["arrived"], waits["opened"] = range(4), [17_100, 17_200, 17_300, 18_000], 18_020
    launches = tuple(replace(one, has_barriers=True) for one in found.launches)
    trace = replace(found, table=found.table.filter(mask), barriers=waits, launches=launches)
    (one,) = made.found(trace, "imbalance")
    assert one.cost_cycles == pytest.approx(900 + 800 + 700)
    assert "the time for which warps wait at barriers for a warp that makes these accesses" in one.method
