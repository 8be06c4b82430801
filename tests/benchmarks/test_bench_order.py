"""The streams of the bandwidth benchmark move what they say, and pairs of kernels are judged by what was measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import bandwidth
import order
import pytest
from bandwidth import HOT, ONE_OF_TWO, PATTERNS, THREADS, UNROLL, WARPS, WIDE, Bench, Pattern
from harness import Row

import memlane as ml

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench("emulator:h200", quick=True)


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), ONE_OF_TWO, WIDE, *HOT.values()], ids=lambda one: f"{one.group} by {one.apart}")
def test_a_stream_touches_the_sectors_that_it_is_said_to(bench: Bench, pattern: Pattern) -> None:
    words = 1 << 18
    data = bench.target.zeros(words, "u4")
    numbers = (words - 1, pattern.period, pattern.step, pattern.footprint, pattern.group, pattern.apart)
    kernel = "stream<ReadWide>" if pattern is WIDE else "stream<Read>"
    counts = ml.count(bench.loaded[kernel][1, THREADS], data, bench.cycles, bench.sink, *numbers, UNROLL)
    loads = [one for one in counts.sites if one.site.op.startswith("ld.global")]
    assert sum(one.requests for one in loads) == WARPS * UNROLL
    assert sum(one.sectors or 0 for one in loads) == WARPS * UNROLL * pattern.sectors


def test_a_row_has_what_was_moved_over_the_cycles(bench: Bench) -> None:
    rows = bandwidth.run_case("DRAM", argparse.Namespace(target="emulator:h200", quick=True))
    assert [row.case for row in rows] == [f"DRAM, {name}" for name in bandwidth.DRAM]
    copied = next(row for row in rows if "copied" in row.case)
    assert copied.peer["bytes"] == 2 * 4 * (1 << 17)
    assert copied.value == pytest.approx(copied.peer["bytes"] / copied.peer["us"] / 1e3, rel=0.01)


def test_pairs_are_judged_where_they_were_measured_far_enough_apart() -> None:
    def row(case: str, modelled: float, us: float | None = None) -> Row:
        return Row(f"job: {case}", "modelled time", modelled, "us", peer={} if us is None else {order.MEASURED: us})

    judged = order.pairs([row("slow", 2.0, 30.0), row("quick", 1.0, 10.0), row("near", 5.0, 12.0), row("unknown", 9.0)])
    assert [(one.case, one.value, one.reach) for one in judged] == [
        ("job: quick before slow", 1.0, 1.0),
        ("job: near before slow", 0.0, 1.0),
        ("job: quick before near", 1.0, None),
    ]
    (total,) = order.over_all(judged)
    assert (total.value, total.reach, total.holds) == (1.0, 2.0, False)
    assert order.over_all([row("unknown", 1.0)]) == []


@pytest.mark.slow
def test_the_order_benchmark_models_every_kernel_of_a_job(quick: Callable[..., list[dict[str, Any]]]) -> None:
    rows = quick("order", "histogram 4194304, launches 0, 1")
    assert [row["case"] for row in rows] == ["histogram 4194304: global_atomics", "histogram 4194304: shared_atomics"]
    assert all(row["value"] > 0 for row in rows)
