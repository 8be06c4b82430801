"""The rules for misaligned bases and for partly used sectors: what they say, and where they are silent."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.diagnose import explain
from memlane.record import SiteCounts
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import counts


def rules(*entries: SiteCounts) -> list[str]:
    return [one.rule for one in explain(counts(*entries))]


def test_a_shifted_row_is_misaligned() -> None:
    (one,) = explain(counts(counted(site(0), 100, sectors=5, ideal_sectors=4)))
    assert one.rule == "misaligned-base"
    assert "each request touches 5 sectors where 4 would do" in str(one)
    assert "do not begin at a multiple of 32 bytes (argument 2)" in str(one)
    assert (one.excess_transactions, one.excess_bytes) == (100, 3200)


def test_a_neighbour_of_what_is_read_anyway_is_not_misaligned() -> None:
    shifted = counted(site(0), 100, sectors=5, ideal_sectors=4)
    assert rules(shifted, counted(site(1, line=8), 100, sectors=4, ideal_sectors=4)) == []
    other_array = counted(site(1, line=8, address_parameters=(0,)), 100, sectors=4, ideal_sectors=4)
    assert rules(shifted, other_array) == ["misaligned-base"]
    store = counted(site(1, "st.global.f32", line=8), 100, sectors=4, ideal_sectors=4)
    assert rules(shifted, store) == ["misaligned-base"]


@pytest.mark.parametrize(
    ("sectors", "ideal", "rule"),
    [
        (8, 4, "partial-sectors"),  # every second element
        (12, 4, "partial-sectors"),  # one field of three
        (16, 4, "partial-sectors"),  # every fourth element: two lanes share a sector
        (17, 4, "uncoalesced-global"),
        (32, 4, "uncoalesced-global"),
    ],
)
def test_lanes_that_share_sectors_use_them_in_part(sectors: int, ideal: int, rule: str) -> None:
    (one,) = explain(counts(counted(site(0), 100, sectors=sectors, ideal_sectors=ideal)))
    assert one.rule == rule
    if rule == "partial-sectors":
        assert f"of the sectors that move {100 * ideal / sectors:.0f} % is used" in str(one)
        assert one.evidence["used share"] == ideal / sectors


def test_what_sectors_cost_beyond_the_level_that_serves_them() -> None:
    """By hand: the chip's L2 takes 283 cycles; half of the accesses take 147 more, half of the sectors are excess."""
    load = site(0)
    cycles = np.array([283, 430] * 5)
    (one,) = found(trace([accesses(load, cycles, (1, 1, 10))], [counted(load, 10, sectors=8, ideal_sectors=4)]), "partial-sectors")
    assert one.cost_cycles == pytest.approx(10 * 0.5 * 147 / 2)
    assert one.cost_low < one.cost_cycles <= (one.cost_high or 0)


def test_atomics_go_where_their_data_say() -> None:
    assert rules(counted(site(0, "atom.global.add.u32"), 100, sectors=16, ideal_sectors=4, addresses=32)) == ["uncoalesced-global"]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(counted(site(0), 100, sectors=4, ideal_sectors=4), id="aligned"),
        pytest.param(counted(site(0), 100, sectors=4.3, ideal_sectors=4), id="seldom"),
        pytest.param(counted(site(0), 100, lanes=2, sectors=2, ideal_sectors=1), id="an edge"),
        pytest.param(counted(site(0, "red.global.u32"), 100, sectors=5, ideal_sectors=4, addresses=32), id="an atomic"),
    ],
)
def test_no_finding(entry: SiteCounts) -> None:
    assert rules(entry) == []
