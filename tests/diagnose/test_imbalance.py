"""The rule for warps and multiprocessors that do more than others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memlane.diagnose import explain
from memlane.record import Sample, Trace
from tests.diagnose.made import Accesses, accesses, found, site, trace


def uneven() -> Trace:
    """Four warps of a block make 10 accesses of 500 cycles, and the first of them 150 more."""
    return trace([accesses(site(0), 500, (1, 4, 10)), Accesses(site(1, line=8), np.full((1, 1, 150), 500))], lives=80_000)


def test_one_busy_warp_of_four() -> None:
    """By hand: 160 accesses against 10 of three others; they are done 150 accesses of 500 cycles earlier."""
    (one,) = found(uneven(), "imbalance")
    assert one.cost_cycles == 3 * 150 * 500
    assert "the busiest warp of a block makes 3.37 times as many accesses as the average one" in str(one)
    assert one.line == 8


def test_the_steps_of_a_tree_between_barriers_cannot_be_shared() -> None:
    step = site(1, "ld.shared.f32", line=8, once_between_barriers=True)
    tree = trace([accesses(site(0), 500, (1, 4, 10)), Accesses(step, np.full((1, 1, 150), 500))], lives=80_000)
    assert found(tree, "imbalance") == []


def test_warps_that_have_left_wait_for_nobody() -> None:
    """The three others leave 1,000 cycles after their own 10 accesses of 500: that long they wait, and 150 accesses if they stayed."""
    lives = np.array([[80_000, 6_000, 6_000, 6_000]])
    rows = [accesses(site(0), 500, (1, 4, 10)), Accesses(site(1, line=8), np.full((1, 1, 150), 500))]
    (one,) = found(trace(rows, lives=lives), "imbalance")
    assert (one.cost_cycles, one.cost_high) == (3 * 1_000, 3 * 150 * 500)


def test_one_busy_multiprocessor_of_four() -> None:
    lives = np.array([[80_000], [5_000], [5_000], [5_000]])
    usual, more = accesses(site(0), 500, (4, 1, 10)), Accesses(site(1, line=8), np.full((1, 1, 150), 500))
    (one,) = found(trace([usual, more], lives=lives), "imbalance")
    assert one.cost_high == 3 * 75_000
    assert one.cost_share == 1 - 95_000 / 4 / 80_000  # Evenly shared, the launch would last as long as the mean multiprocessor does now.
    assert one.cost_cycles == one.cost_share * lives.sum()
    assert "the busiest multiprocessor makes 3.37 times" in str(one)


def test_no_more_warps_wait_than_a_multiprocessor_holds() -> None:
    """Two blocks came one after the other to each of two multiprocessors, which hold one of the five at a time."""
    lives = np.array([[80_000], [5_000], [5_000], [5_000], [5_000]])
    usual, more = accesses(site(0), 500, (5, 1, 10)), Accesses(site(1, line=8), np.full((1, 1, 150), 500))
    (one,) = found(trace([usual, more], lives=lives, sms=[0, 1, 1, 2, 2]), "imbalance")
    assert one.cost_high == 2 * 75_000


def test_equal_work_that_takes_unequal_time_is_no_finding() -> None:
    cycles = np.where(np.arange(4)[None, :, None] == 0, 3000, 300)
    assert found(trace([accesses(site(0), cycles, (1, 4, 10))]), "imbalance") == []


def test_a_sample_says_nothing_of_the_others() -> None:
    made = uneven()
    sampled = replace(made, launches=(replace(made.launches[0], sample=Sample(8, 4, every=2)),))
    (missing,) = [one for one in explain(sampled).unexamined if one.rule == "imbalance"]
    assert missing.missing == ("all warps of the launch",)
