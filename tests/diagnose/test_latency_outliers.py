"""The rule for few accesses that take most of the time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.diagnose.made import accesses, counted, found, site, trace

EXECUTIONS = np.arange(40)


def test_one_in_twenty_takes_half_of_the_time() -> None:
    """Executions 10 and 30 of 39 (the first is left out) take 1000 cycles, 960 beyond the median."""
    cycles = np.where(EXECUTIONS % 20 == 10, 1000, 40)
    (one,) = found(trace([accesses(site(0), cycles, (4, 2, 40))], lives=5000), "latency-outliers")
    assert one.cost_cycles == 8 * 2 * 960
    assert "5.1 % of the accesses take 55 % of the time: 1,000 cycles against a median of 40" in str(one)
    assert "most accesses are served by L1; these, judging by their latency, by DRAM" in str(one)


@pytest.mark.parametrize(
    "cycles",
    [
        pytest.param(np.where(EXECUTIONS == 0, 5000, 40), id="the first one"),
        pytest.param(np.where(EXECUTIONS % 3 == 0, 1000, 40), id="a third is a second level"),
        pytest.param(np.where(EXECUTIONS % 20 == 10, 150, 40), id="not four times the median"),
        pytest.param(np.where(EXECUTIONS % 20 == 10, 250, 60), id="a small part of the time"),
    ],
)
def test_no_finding(cycles: object) -> None:
    assert found(trace([accesses(site(0), cycles, (4, 2, 40))], lives=5000), "latency-outliers") == []


def test_lanes_that_walk_through_sectors_of_their_own_are_another_finding() -> None:
    cycles = np.where(EXECUTIONS % 8 == 0, 1000, 40)
    walk = trace([accesses(site(0), cycles, (4, 2, 40))], [counted(site(0), 320, sectors=32, ideal_sectors=4)], lives=10_000)
    assert found(walk, "latency-outliers") == []
    assert len(found(walk, "uncoalesced-global")) == 1


@pytest.mark.parametrize(("sectors", "amount"), [(1, 0), (4, 1)])
def test_a_word_for_all_lanes_of_a_walk_is_in_the_sector_of_the_one_before(sectors: int, amount: int) -> None:
    """`sum += weight[k]`: every eighth turn comes to a new sector. Where lanes fill theirs, each turn would."""
    cycles = np.where(EXECUTIONS % 8 == 0, 1000, 40)
    walk = trace([accesses(site(0), cycles, (4, 2, 40))], [counted(site(0), 320, sectors=sectors, ideal_sectors=sectors)], lives=10_000)
    assert len(found(walk, "latency-outliers")) == amount


def test_what_is_nothing_in_the_life_of_the_warps_is_no_finding() -> None:
    cycles = np.where(EXECUTIONS % 20 == 10, 1000, 40)
    assert found(trace([accesses(site(0), cycles, (4, 2, 40))], lives=1_000_000), "latency-outliers") == []


@pytest.mark.parametrize("op", ["ld.shared.f32", "ld.const.f32"])
def test_where_there_are_no_levels_nothing_is_far_away(op: str) -> None:
    cycles = np.where(EXECUTIONS % 20 == 10, 1000, 40)
    assert found(trace([accesses(site(0, op), cycles, (4, 2, 40))], lives=5000), "latency-outliers") == []
