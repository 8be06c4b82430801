"""The kernels by which modelled times are judged, and what is said of them beside the measured ones."""

from __future__ import annotations

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


def test_launches_are_found_among_those_of_others() -> None:
    seen = [
        Profiled("memset(int*)", {NANOSECONDS: 1.0}),
        Profiled("void copy<float>(float*)", {NANOSECONDS: 2.0, "other": 3.0}),
        Profiled("fill", {NANOSECONDS: 4.0}),
    ]
    found = dict(joined([("copy", "copies: one"), ("fill", "stores: one")], seen))
    assert found == {"copies: one": {"profiled ns": 2.0}, "stores: one": {"profiled ns": 4.0}}


def test_a_launch_that_was_not_seen_ends_the_list() -> None:
    assert dict(joined([("copy", "a"), ("fill", "b")], [Profiled("fill", {})])) == {}
