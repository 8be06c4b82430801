"""The kernels by which modelled times are judged, and what is said of them beside the measured ones."""

from __future__ import annotations

from harness import Row
from predict import FLOOR, GROUPS, MEASURED, TIME, over_all, pairs_right, rank_correlation, seen_by_profiler
from predict_calibration import ALL, CALIBRATION, EXPLAINED, PROFILED, WARM
from predict_families import SET_ASIDE, TUNED
from predict_kernels import FAMILIES, GENERATORS, VARIANTS
from predict_measured import joined

from memlane.lab.profiler import Profiled

NANOSECONDS = "gpu__time_duration.sum"


def test_half_of_the_families_are_set_aside() -> None:
    assert len(TUNED) == len(SET_ASIDE)
    assert set(TUNED).isdisjoint(SET_ASIDE)
    assert {*TUNED, *SET_ASIDE} == set(GENERATORS)


def test_each_family_has_variants_with_names_of_their_own() -> None:
    assert len(VARIANTS) == sum(len(family) for family in FAMILIES.values()) >= 60
    assert min(len(family) for family in FAMILIES.values()) >= 4


def test_no_kernel_set_aside_calibrates() -> None:
    assert set(CALIBRATION).isdisjoint((*TUNED, *SET_ASIDE))
    assert len(ALL) == sum(map(len, CALIBRATION.values()))
    assert all(title in VARIANTS and title.partition(": ")[0] in TUNED for title in EXPLAINED)
    assert set(PROFILED) <= set(CALIBRATION)
    assert set(WARM) <= set(ALL)


def test_launches_are_found_among_those_of_others() -> None:
    seen = [
        Profiled("memset(int*)", {NANOSECONDS: 1.0}),
        Profiled("void copy<float>(float*)", {NANOSECONDS: 2.0, "other": 3.0}),
        Profiled("fill", {NANOSECONDS: 4.0}),
    ]
    found = dict(joined([("copy", "copies: one"), ("fill", "stores: one")], seen))
    assert found == {"copies: one": {"profiled ns": 2.0}, "stores: one": {"profiled ns": 4.0}}


def test_of_launches_of_one_title_the_last_counts() -> None:
    seen = [Profiled("copy", {NANOSECONDS: duration}) for duration in (3.0, 2.0, 1.0)]
    assert dict(joined([("copy", "copies: one")] * 3, seen)) == {"copies: one": {"profiled ns": 1.0}}


def test_a_launch_that_was_not_seen_ends_the_list() -> None:
    assert dict(joined([("copy", "a"), ("fill", "b")], [Profiled("fill", {})])) == {}


def kernel(name: str, predicted: float, measured: float, **peer: float) -> Row:
    return Row(name, TIME, predicted, "us", peer={MEASURED: measured, FLOOR: 2 * measured, "error": predicted / measured - 1, **peer})


def test_ranks_are_compared_inside_a_family() -> None:
    assert rank_correlation([kernel("a: 1", 1.0, 10.0), kernel("a: 2", 2.0, 20.0), kernel("a: 3", 9.0, 30.0)]) == 1.0
    assert rank_correlation([kernel("a: 1", 3.0, 10.0), kernel("a: 2", 2.0, 20.0), kernel("a: 3", 1.0, 30.0)]) == -1.0
    assert rank_correlation([kernel("a: 1", 1.0, 10.0), kernel("a: 2", 1.0, 20.0)]) == 1.0


def test_only_pairs_that_are_apart_are_judged() -> None:
    rows = [kernel("a: 1", 1.0, 10.0), kernel("a: 2", 3.0, 10.5), kernel("a: 3", 2.0, 20.0), kernel("b: 1", 9.0, 1.0)]
    assert pairs_right(rows) == (1, 2)


def test_what_limits_by_the_profiler_is_its_highest_throughput_or_latency() -> None:
    seen = seen_by_profiler({"SM %": 20.0, "L1 %": 300.0, "L2 %": 80.0, "DRAM %": 10.0})
    assert (GROUPS[int(seen["limiting by ncu"])], seen["streams"]) == ("L1", 1.0)
    assert GROUPS[int(seen_by_profiler({"SM %": 59.0, "DRAM %": 20.0})["limiting by ncu"])] == "latency"
    assert seen_by_profiler({}) == {}


def test_families_set_aside_are_judged_and_tuned_ones_compared() -> None:
    aside, tuned = SET_ASIDE[0], TUNED[0]
    rows = [kernel(f"{family}: {number}", 1.5 * number, number) for family in (aside, tuned) for number in (1.0, 2.0, 3.0)]
    found = {(row.case, row.metric): row for row in over_all(rows)}
    assert found["families set aside", "mean absolute error"].value == 50.0
    assert not found["families set aside", "mean absolute error"].holds
    assert found["families tuned", "mean absolute error"].reach is None
    assert found["families set aside", "pairs in the right order"].value == 100.0
    assert found["families set aside", "error over that of the plain floor"].value == 0.5
    assert found[aside, "mean absolute error"].peer["kernels"] == 3.0
