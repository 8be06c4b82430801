"""Sums of counts, what follows from them, and their table; every number worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlane.record import BranchCounts, Counts, SiteCounts
from tests.synthetic import counts, site

LOAD = SiteCounts(site(0, "ld.global.f32", 4), requests=10, lanes=300, bytes=1200, sectors=50, ideal_sectors=40)
UNROLLED = SiteCounts(site(1, "ld.global.f32", 4), requests=10, lanes=320, bytes=1280, sectors=40, ideal_sectors=40)
TILE = SiteCounts(site(2, "ld.shared.f32", 5), requests=8, lanes=256, bytes=1024, wavefronts=64, ideal_wavefronts=8)
SPILL = SiteCounts(site(3, "st.local.f32", 6), requests=3, lanes=96, bytes=384, sectors=12, ideal_sectors=12)
BINS = SiteCounts(
    site(4, "atom.shared.u32", 7),
    requests=4,
    lanes=128,
    bytes=512,
    wavefronts=20,
    ideal_wavefronts=4,
    addresses=32,
    most_lanes_at_address=9,
)
BRANCHES = (BranchCounts("k", "a.cu", 3, 40, 4), BranchCounts("k", "a.cu", 9, 2, 2))


def launch() -> Counts:
    return counts(LOAD, UNROLLED, TILE, SPILL, BINS, branches=BRANCHES)


def test_what_follows_from_the_counts_of_a_site() -> None:
    assert (LOAD.lanes_per_request, LOAD.bytes_moved, LOAD.excess_sectors, LOAD.conflicts) == (30, 1600, 10, None)
    assert (TILE.bytes_moved, TILE.conflicts, TILE.lanes_per_address) == (None, 56, None)
    assert BINS.lanes_per_address == 4
    assert replace(LOAD, requests=0, lanes=0).lanes_per_request is None


def test_totals_of_a_launch() -> None:
    total = launch().total()
    assert (total.requests, total.lanes, total.bytes) == (35, 1100, 4400)
    assert (total.sectors, total.ideal_sectors, total.bytes_moved, total.excess_sectors) == (90, 80, 2880, 10)
    assert (total.wavefronts, total.ideal_wavefronts, total.conflicts) == (84, 12, 72)
    assert (total.local_requests, total.local_sectors, total.local_bytes_moved) == (3, 12, 384)
    assert (total.atomic_requests, total.addresses, total.lanes_per_address, total.most_lanes_at_address) == (4, 32, 4, 9)
    assert (total.branches, total.divergent_branches) == (42, 6)
    assert total.as_dict()["conflicts"] == 72


def test_a_launch_without_atomics_has_no_lanes_per_address() -> None:
    total = counts(LOAD).total()
    assert (total.lanes_per_address, total.most_lanes_at_address, total.wavefronts, total.conflicts) == (None, 0, 0, 0)


def test_sites_of_one_line_are_added_up() -> None:
    lines = launch().by_line()
    assert [(one.site.line, one.site.space) for one in lines] == [(4, "global"), (5, "shared"), (6, "local"), (7, "shared")]
    assert (lines[0].requests, lines[0].lanes, lines[0].sectors, lines[0].ideal_sectors) == (20, 620, 90, 80)


def test_the_most_lanes_of_two_launches_are_those_of_the_worse() -> None:
    both = BINS.plus(replace(BINS, lanes=64, addresses=8, most_lanes_at_address=12))
    assert (both.addresses, both.most_lanes_at_address, both.lanes_per_address) == (40, 12, 192 / 40)
    assert LOAD.plus(UNROLLED).most_lanes_at_address is None


def test_the_table_has_a_row_for_each_site() -> None:
    table = launch().to_table()
    assert [row["instruction"] for row in table] == [0, 1, 2, 3, 4]
    assert len({tuple(row) for row in table}) == 1
    expected = {"chip": "NVIDIA H200", "how": "emulated", "line": 7, "op": "atom.shared.u32", "bytes_per_lane": 4, "lanes_per_address": 4.0}
    assert expected.items() <= table[4].items()
    assert table[0]["wavefronts"] is None


@pytest.mark.parametrize("field", ["sectors", "wavefronts"])
def test_one_line_tells_the_sums(field: str) -> None:
    assert f"{field}: {getattr(launch().total(), field)}" in str(launch())
