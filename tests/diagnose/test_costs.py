"""What an inefficiency costs, by hand: cycles of a finding on an H200, whose shared memory answers in 23.7 cycles, atomics in 26."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import SECTOR_BYTES, load
from memlane.diagnose import explain
from memlane.diagnose.cost import between_l1_and_l2, idle_share, level_of, nearest_latency, of_sectors, sector_cycles
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import counted as counted_only
from tests.synthetic import counts
from tests.synthetic import site as plain_site

H200 = load("h200")
SECTOR = SECTOR_BYTES * 132 * 1980 / (1000 * 4200.0)


@pytest.mark.parametrize(
    ("op", "cycles", "taken", "least", "saved", "most"),
    [
        # The queue is what 40 cycles are longer than the latency and 7 more wavefronts: 9.3. Of 80 wavefronts 10 are left: 1/8 of it.
        ("ld.shared.f32", 40, 8, 1, 40 - (23.7 + 9.3 / 8), 40 - 23.7),
        ("ld.shared.f64", 60, 8, 2, 60 - (23.7 + 1 + (60 - 23.7 - 7) / 4), 60 - 24.7),
        # No queue: the time of 30.7 cycles is the latency and 7 wavefronts. What is saved is no less than the wavefronts.
        ("ld.shared.f32", 31, 8, 1, 31 - (23.7 + 0.3 / 8), 31 - 23.7),
        ("ld.shared.f32", 24, 8, 1, 7, 7),
        ("ld.shared.f32", 10, 8, 1, 7, 7),
        ("atom.shared.u32", 40, 8, 1, 40 - (26 + 7 / 8), 40 - 26),
    ],
)
def test_bank_conflicts(op: str, cycles: int, taken: int, least: int, saved: float, most: float) -> None:
    """Of 10 requests of one warp; most: if nobody waited for others."""
    where = site(0, op)
    made = trace([accesses(where, cycles, (1, 1, 10))], [counted(where, 10, wavefronts=taken, ideal_wavefronts=least)], lives=2_000)
    (one,) = found(made, "bank-conflict")
    assert one.cost_cycles == pytest.approx(10 * saved)
    assert one.cost_high == pytest.approx(10 * most)
    assert one.cost_low == 10 * (taken - least)


def test_other_accesses_of_the_kernel_keep_waiting() -> None:
    """Of 80 + 80 wavefronts 10 + 80 are left, so 9/16 of the queue."""
    slow, other = site(0, "ld.shared.f32"), site(1, "ld.shared.f32", 8)
    rows = [accesses(slow, 40, (1, 1, 10)), accesses(other, 24, (1, 1, 80))]
    both = [counted(slow, 10, wavefronts=8, ideal_wavefronts=1), counted(other, 80, wavefronts=1, ideal_wavefronts=1)]
    (one,) = found(trace(rows, both, lives=5_000), "bank-conflict")
    assert one.cost_cycles == pytest.approx(10 * (40 - (23.7 + 9.3 * 90 / 160)))


def test_conflicts_without_times_cost_a_cycle_a_wavefront() -> None:
    only = counts(counted_only(plain_site(0, "ld.shared.f32", 4), 100, wavefronts=5, ideal_wavefronts=1))
    (one,) = [finding for finding in explain(only) if finding.rule == "bank-conflict"]
    assert (one.cost_cycles, one.cost_low, one.cost_high) == (400, 400, None)


@pytest.mark.parametrize(
    ("cycles", "shared", "most"),
    [
        # 28 of 32 sectors are excess. 400 cycles are nearest to L2 (283), 117 beyond it; the quickest tenth is as slow as all.
        (400, 28 / 32 * 117, 28 / 32 * 117),
        # Quicker than any level: only the rate of the memory is charged.
        (30, 0.0, 28 * SECTOR),
    ],
)
def test_scattered_loads(cycles: int, shared: float, most: float) -> None:
    where = site(0)
    made = trace([accesses(where, cycles, (1, 1, 100))], [counted(where, 100, sectors=32, ideal_sectors=4)], lives=50_000)
    (one,) = found(made, "uncoalesced-global")
    busy = 28 * SECTOR
    assert one.cost_cycles == pytest.approx(100 * max(busy, shared))
    assert one.cost_low == pytest.approx(100 * min(busy, shared))
    assert one.cost_high == pytest.approx(100 * max(busy, shared, most))


def test_levels_by_latency() -> None:
    """Nearest by ratio: 311 is 9.07 times 34.3 and 283 times 1.1; the bounds lie at the geometric means."""
    bounds = (34.3 * 283.0) ** 0.5, (283.0 * 661.9) ** 0.5
    assert between_l1_and_l2(H200) == pytest.approx(bounds[0])
    times = [0.0, 1.0, 34.3, bounds[0] - 0.1, bounds[0] + 0.1, bounds[1] - 0.1, bounds[1] + 0.1, 5000.0]
    expected = ["L1"] * 4 + ["L2"] * 2 + ["DRAM"] * 2
    assert [level_of(H200, one) for one in times] == expected
    latencies = {"L1": 34.3, "L2": 283.0, "DRAM": 661.9}
    assert nearest_latency(H200, np.array(times)).tolist() == [latencies[one] for one in expected]


def test_rates() -> None:
    """A multiprocessor's share of 4,200 GB/s is 16.07 B a cycle."""
    assert sector_cycles(H200) == pytest.approx(SECTOR) == pytest.approx(1.9913, abs=1e-3)
    assert [idle_share(0.9, warps) for warps in (0.5, 1, 2)] == [0.9, 0.9, pytest.approx(0.81)]


def test_a_place_that_moved_no_sector_costs_nothing() -> None:
    """However its accesses are timed."""

    class Timed:
        chip = H200
        barriers = np.zeros(0)
        rows = None

        def excess(self, site: object, values: object) -> np.ndarray:
            return np.zeros(0)

        def cycles(self, site: object) -> np.ndarray:
            return np.array([500.0, 600.0])

    for sectors in (0, None):
        none = replace(counted_only(plain_site(0, "ld.global.f32", 1), 10), sectors=sectors, ideal_sectors=sectors)
        assert of_sectors(Timed(), none).cycles == 0  # type: ignore[arg-type]
