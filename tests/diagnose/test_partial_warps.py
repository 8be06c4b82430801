"""The rule for lanes that no thread has."""

from __future__ import annotations

import pytest

from memlane.chip import load
from memlane.record import BranchCounts, Trace
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import NAIVE

PLACE = site(0, line=8)


def _made(block: tuple[int, int, int], warps: int, mask: int = 0xFF, blocks: int = 4, **more: object) -> Trace:
    return trace([accesses(PLACE, 1000, (blocks, warps, 40), mask)], block=block, **more)


def test_blocks_of_eight_threads_waste_three_quarters_of_their_lives() -> None:
    (one,) = found(_made((8, 1, 1), 1), "partial-warps")
    assert (one.cost_cycles, one.cost_share) == (0.75 * 4 * 100_000, 0.75)
    assert "75 % of the lanes of the whole kernel have no thread" in str(one)
    assert "blocks have 8 threads" in str(one)


@pytest.mark.parametrize(
    ("block", "warps", "empty"), [((40, 1, 1), 2, 24 / 64), ((4, 4, 3), 2, 0.25), ((7, 7, 1), 2, None), ((64, 1, 1), 2, None)]
)
def test_the_last_warp_of_a_block_may_be_a_part(block: tuple[int, int, int], warps: int, empty: float | None) -> None:
    said = found(_made(block, warps), "partial-warps")
    assert [one.cost_share for one in said] == ([] if empty is None else [empty])


def test_threads_that_cannot_be_put_together_otherwise_are_no_finding() -> None:
    assert found(_made((8, 1, 1), 1, blocks=1), "partial-warps") == []
    assert found(_made((8, 1, 1), 1, blocks=3), "partial-warps") == []  # 24 threads in all


def test_lanes_without_a_thread_are_not_lost_to_a_branch() -> None:
    branch = BranchCounts(NAIVE, "transpose.cu", 7, executions=160, divergent=160)
    own = (1000 - load("h200").latency.dram) / 4  # four lanes share a sector for which they wait in full warps too
    for mask, lanes, share in ((0x7F, 7, None), (0x0F, 4, 0.5)):
        entry = counted(PLACE, 160, lanes=lanes, sectors=1, ideal_sectors=1)
        said = found(_made((8, 1, 1), 1, mask, counts=[entry], branches=[branch]), "divergence")
        assert [one.cost_cycles for one in said] == ([] if share is None else [pytest.approx(160 * (1000 - own) * share)])
        assert all(f"have {lanes} of 8 lanes active" in str(one) for one in said)
