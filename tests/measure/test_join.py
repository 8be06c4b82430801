"""Records meet the accesses that were observed within them."""

from __future__ import annotations

import numpy as np

from memlane.measure.join import match_by_time


def matched(records: list[tuple[int, int, int]], seen: list[tuple[int, int]]) -> list[int]:
    group, start, end = (np.array(column, np.int64) for column in zip(*records, strict=True))
    seen_group, seen_at = (np.array(column, np.int64) for column in zip(*seen, strict=True))
    return [int(index) for index in match_by_time(group, start, end, seen_group, seen_at)]


def test_each_record_gets_the_access_inside_it_whatever_the_order() -> None:
    assert matched([(1, 30, 40), (1, 10, 20), (0, 10, 20)], [(0, 15), (1, 12), (1, 33)]) == [2, 1, 0]


def test_an_access_whose_record_was_lost_shifts_no_other() -> None:
    assert matched([(0, 30, 40)], [(0, 12), (0, 33), (0, 52)]) == [1]


def test_a_record_without_an_access_inside_gets_none() -> None:
    assert matched([(0, 10, 20), (0, 30, 40)], [(0, 25), (0, 35)]) == [-1, 1]
    assert matched([(0, 10, 20)], [(1, 15)]) == [-1]


def test_access_in_the_very_cycle_of_the_start_belongs_to_the_record() -> None:
    assert matched([(0, 10, 10)], [(0, 10)]) == [0]
