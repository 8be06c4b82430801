"""What a page leaves out of a large launch: never more than there is room for, never a part of what it says is whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.report.html.sampling import WARP_COST, choose_warps, divide_budget


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 2000)), min_size=1, max_size=60), st.integers(10, 800))
def test_what_is_kept_fits_and_is_whole(warps: list[tuple[int, int, int]], budget: int) -> None:
    sm, counts, longest = (np.array(column, np.int64) for column in zip(*warps, strict=True))
    kept = choose_warps(sm, counts, longest, budget)
    assert int((kept.counts + WARP_COST).sum()) <= budget
    assert len(set(kept.lives.tolist())) == len(kept.lives) > 0
    whole = kept.counts == counts[kept.lives]
    assert whole.all() or (len(kept.lives) == 1 and "the first accesses" in kept.how)
    for number in kept.sms:
        assert set(np.flatnonzero(sm == number)) <= set(kept.lives.tolist())
    assert (kept.how == "") == (len(kept.lives) == len(warps) and bool(whole.all()))
    # The longest access is drawn, unless not even the warps of its multiprocessor fit.
    if kept.sms:
        assert sm[int(np.argmax(longest))] in kept.sms


def test_multiprocessors_are_spread_evenly() -> None:
    sm = np.repeat(np.arange(128), 4)
    longest = np.zeros(len(sm), np.int64)
    kept = choose_warps(sm, np.full(len(sm), 8), longest, budget=32 * 4 * (8 + WARP_COST))
    assert kept.sms == tuple(range(0, 128, 4))
    assert "32 of 128 multiprocessors" in kept.how


def test_one_multiprocessor_that_does_not_fit_keeps_each_nth_warp() -> None:
    kept = choose_warps(np.zeros(100, np.int64), np.full(100, 8), np.zeros(100, np.int64), budget=25 * (8 + WARP_COST))
    assert kept.lives.tolist() == list(range(0, 100, 4))
    assert kept.sms == ()
    assert kept.how.endswith("one warp in 4 in block order")


@pytest.mark.parametrize(
    ("wanted", "budget", "given_out"),
    [([5, 5], 20, [5, 5]), ([100, 100], 20, [10, 10]), ([2, 100, 100], 20, [2, 9, 9]), ([100, 2, 6], 20, [12, 2, 6]), ([], 20, [])],
)
def test_room_is_dealt_out_to_those_who_want_it(wanted: list[int], budget: int, given_out: list[int]) -> None:
    assert divide_budget(wanted, budget) == given_out
