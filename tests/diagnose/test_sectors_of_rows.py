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
    assert "ld.global.f32 of argument 2 in naive: each request touches 5 sectors" in str(one)
    assert (one.excess_transactions, one.excess_bytes) == (100, 3200)


def test_a_neighbour_of_what_is_read_anyway_is_not_misaligned() -> None:
    shifted = counted(site(0), 100, sectors=5, ideal_sectors=4)
    assert rules(shifted, counted(site(1, line=8), 100, sectors=4, ideal_sectors=4)) == []
    elsewhere = counted(site(1, line=8, address_parameters=(1, 3, 4)), 100, sectors=4, ideal_sectors=4)
    assert rules(shifted, elsewhere) == []  # in the same array, at a place that is computed from other numbers
    other_array = counted(site(1, line=8, address_parameters=(0,), argument=0), 100, sectors=4, ideal_sectors=4)
    assert rules(shifted, other_array) == ["misaligned-base"]
    store = counted(site(1, "st.global.f32", line=8), 100, sectors=4, ideal_sectors=4)
    assert rules(shifted, store) == ["misaligned-base"]


@pytest.mark.parametrize(
    ("block", "sectors", "beside", "expected"),
    [
        ((16, 16, 1), 6, 4, []),  # two rows of a stencil, one sector more for each
        ((16, 16, 1), 6, 6, ["misaligned-base"]),
        ((16, 16, 1), 8, 4, ["partial-sectors"]),
        ((4, 4, 1), 8, 4, ["partial-sectors"]),  # rows of 16 bytes fill no sector wherever they begin
        ((32, 8, 1), 6, 4, ["partial-sectors"]),
        ((256, 1, 1), 6, 4, ["partial-sectors"]),
    ],
)
def test_a_warp_of_a_narrow_block_has_several_rows(block: tuple[int, int, int], sectors: int, beside: int, expected: list[str]) -> None:
    made = [counted(site(0), 100, sectors=sectors, ideal_sectors=4), counted(site(1, line=8), 100, sectors=beside, ideal_sectors=4)]
    traced = trace([accesses(one.site, 800, (1, 1, 100)) for one in made], made, block=block, lives=200_000)
    said = [one.rule for one in explain(traced) if one.line == 4]
    assert [one for one in said if one in ("misaligned-base", "partial-sectors", "uncoalesced-global")] == expected


@pytest.mark.parametrize(
    ("lanes", "sectors", "expected"),
    [
        (13, 4, []),  # gaps in a row: a whole warp moves as much
        (8, 8, ["uncoalesced-global"]),
        (4, 4, []),
        (32, 8, ["partial-sectors"]),
    ],
)
def test_lanes_that_are_missing_in_a_row_do_not_make_it_uncoalesced(lanes: int, sectors: int, expected: list[str]) -> None:
    ideal = -(-4 * lanes // 32)
    said = rules(counted(site(0), 100, lanes=lanes, sectors=sectors, ideal_sectors=ideal))
    assert [one for one in said if one != "misaligned-base"] == expected


def test_sectors_that_warps_hardly_wait_for_are_no_finding() -> None:
    """By hand: 10 accesses of 430 cycles, half of it for excess sectors; beyond the 283 of L2 that is 735 cycles."""
    load = site(0)
    for lives, amount in ((300_000, 1), (400_000, 0)):
        made = trace([accesses(load, 430, (1, 1, 10))], [counted(load, 10, sectors=8, ideal_sectors=4)], lives=lives)
        assert len(found(made, "partial-sectors")) == amount


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
        assert f"only {100 * ideal / sectors:.0f} % of the moved bytes are used" in str(one)
        assert one.evidence["used share"] == ideal / sectors


@pytest.mark.parametrize(("sectors", "words"), [(5, "which begin inside a sector or have inactive lanes"), (8, "skip the data")])
def test_rows_of_a_tile_with_its_border_skip_nothing(sectors: int, words: str) -> None:
    """Two rows of 16 lanes and then of 4: 24 lanes in the mean request of 5 sectors, where 2.5 would do."""
    entry = counted(site(0), 1000, 24, sectors=sectors, ideal_sectors=2.5)
    traced = trace([accesses(site(0), 800, (1, 1, 1000))], [entry], block=(16, 16, 1), lives=2_000_000)
    (one,) = found(traced, "partial-sectors")
    assert words in one.cause


def test_lanes_with_the_same_word_do_not_share_what_lies_beside_it() -> None:
    """Of 32 lanes two have each of 16 words, which lie in sectors of their own."""
    assert rules(counted(site(0), 100, sectors=16, ideal_sectors=2)) == ["uncoalesced-global"]
    assert rules(counted(site(0), 100, sectors=16, ideal_sectors=4)) == ["partial-sectors"]


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
