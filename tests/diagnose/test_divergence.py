"""The rule for lanes that go two ways."""

from __future__ import annotations

import numpy as np

from memlane.chip import load
from memlane.record import BranchCounts
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import NAIVE

BEHIND = site(0, line=8)
HALF = 0x55555555
DRAM = load("h200").latency.dram
BRANCH = BranchCounts(NAIVE, "transpose.cu", 7, executions=100, divergent=100)


def test_half_of_the_lanes_are_half_of_the_time_at_the_branch() -> None:
    made = trace([accesses(BEHIND, 1000, (1, 2, 40), HALF)], [counted(BEHIND, 80, lanes=16, sectors=2, ideal_sectors=2)], [BRANCH])
    (one,) = found(made, "divergence")
    assert (one.line, one.source) == (7, "__shared__ float tile[TILE][TILE];")
    beyond = (1000 - DRAM) * 2 / 16  # an eighth of the waiting is for sectors that are as many in full warps
    assert np.isclose(one.cost_cycles, 80 * (1000 - beyond) / 2)
    assert "after the branch at line 7 have 16 of 32 lanes active" in str(one)
    assert "in 100 of 100 executions" in str(one)


def test_lanes_with_sectors_of_their_own_wait_for_these_in_full_warps_too() -> None:
    made = trace([accesses(BEHIND, 2000, (1, 2, 40), HALF)], [counted(BEHIND, 80, lanes=16, sectors=16, ideal_sectors=2)], [BRANCH])
    (one,) = found(made, "divergence")
    assert np.isclose(one.cost_cycles, 80 * DRAM / 2)
    shared = site(0, "ld.shared.f32", line=8)
    (one,) = found(trace([accesses(shared, 2000, (1, 2, 40), HALF)], [counted(shared, 80, lanes=16)], [BRANCH]), "divergence")
    assert one.cost_cycles == 80 * 2000 / 2


def test_branches_that_hardly_diverge_or_cost_nothing_are_no_finding() -> None:
    entry = counted(BEHIND, 80, lanes=16, sectors=2, ideal_sectors=2)
    seldom = BranchCounts(NAIVE, "transpose.cu", 7, executions=100, divergent=5)
    later = BranchCounts(NAIVE, "transpose.cu", 9, executions=100, divergent=100)
    slow, quick = accesses(BEHIND, 1000, (1, 2, 40), HALF), accesses(BEHIND, 10, (1, 2, 40), HALF)
    assert found(trace([slow], [entry], [seldom]), "divergence") == []
    assert found(trace([slow], [entry], [later]), "divergence") == []
    assert found(trace([quick], [entry], [BRANCH]), "divergence") == []
    whole = counted(BEHIND, 80, sectors=4, ideal_sectors=4)
    assert found(trace([accesses(BEHIND, 1000, (1, 2, 40))], [whole], [BRANCH]), "divergence") == []


def test_one_lane_that_updates_for_its_warp_keeps_nobody_waiting() -> None:
    for lanes, mask, amount in ((1, 1, 0), (2, 3, 1)):
        atomic = site(0, "atom.global.add.u32", line=8)
        entry = counted(atomic, 80, lanes=lanes, addresses=lanes, sectors=1, ideal_sectors=1)
        made = trace([accesses(atomic, 1000, (1, 2, 40), mask)], [entry], [BRANCH])
        assert len(found(made, "divergence")) == amount
