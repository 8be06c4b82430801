"""Summaries by source line, against numbers known by construction and against a second road through plain Python."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from memlane.record import LineSummary, build_trace, kernel_label, summarise, total_by_place
from tests.synthetic import NAIVE, TILED, counted, counts, launch, site, stalls, transpose


def line(summaries: list[LineSummary], kernel: str, op: str) -> LineSummary:
    (found,) = [entry for entry in summaries if (entry.kernel, entry.op) == (kernel, op)]
    return found


def test_one_entry_per_line_and_op_in_the_order_of_launches_and_lines() -> None:
    assert [(entry.kernel, entry.line, entry.op) for entry in summarise(transpose())] == [
        (NAIVE, 4, "ld.global.f32"),
        (NAIVE, 4, "st.global.f32"),
        (TILED, 8, "ld.global.f32"),
        (TILED, 8, "st.shared.f32"),
        (TILED, 10, "ld.shared.f32"),
        (TILED, 10, "st.global.f32"),
    ]


def test_the_naive_store_by_hand() -> None:
    store = line(summarise(transpose()), NAIVE, "st.global.f32")
    assert (store.accesses, store.complete, store.issue_only, store.requests, store.lost) == (20, 0, 20, 20, 0)
    assert (store.sectors_per_request, store.ideal_sectors_per_request) == (32, 4)
    assert store.wavefronts_per_request is None
    assert (store.cycles_p50, store.cycles_p95, store.cycles_p99, store.cycles_max, store.cycles_mean) == (202, 204, 204, 204, 202)
    assert store.lifetime_share == pytest.approx(20 * 202 / (4 * 10_000))


def test_lost_records_are_told_with_every_line_of_their_kernel() -> None:
    assert {entry.kernel: entry.lost for entry in summarise(transpose())} == {NAIVE: 0, TILED: 2}


def test_without_counts_the_rows_give_the_means_and_no_ideal() -> None:
    trace = transpose()
    bare = replace(trace, launches=tuple(replace(entry, counts=()) for entry in trace.launches))
    load = line(summarise(bare), TILED, "ld.shared.f32")
    assert (load.requests, load.wavefronts_per_request, load.ideal_wavefronts_per_request, load.sectors_per_request) == (
        None,
        32,
        None,
        None,
    )


def test_a_line_that_was_counted_but_not_timed_has_no_times() -> None:
    trace = transpose()
    hidden = counted(site(9, "red.global.u32", 9, NAIVE, scheme="", completeness=""), 7, sectors=2, ideal_sectors=1)
    first = replace(trace.launches[0], counts=(*trace.launches[0].counts, hidden))
    entry = line(summarise(replace(trace, launches=(first, trace.launches[1]))), NAIVE, "red.global.u32")
    assert (entry.accesses, entry.requests, entry.sectors_per_request) == (0, 7, 2)
    assert (entry.cycles_p50, entry.cycles_mean, entry.lifetime_share) == (None, None, None)


def test_without_warps_there_is_no_share() -> None:
    trace = transpose()
    assert all(entry.lifetime_share is None for entry in summarise(replace(trace, warps=trace.warps[:0])))


def test_random_rows_against_plain_python() -> None:
    random = np.random.default_rng(3)
    sites = tuple(
        site(number, op, row)
        for number, (op, row) in enumerate([("ld.global.f32", 4), ("ld.global.f32", 4), ("ld.shared.f32", 4), ("st.global.f32", 2)])
    )
    count = 1000
    start = random.integers(-(2**40), 2**40, count)
    taken = random.integers(1, 900, count)
    where = random.integers(0, 4, count)
    sectors = np.where(random.random(count) < 0.3, -1, random.integers(1, 33, count))
    zeros = np.zeros(count, np.int64)
    columns = {
        "launch": zeros,
        "site": where,
        "block": zeros,
        "warp": zeros,
        "sm": zeros,
        "mask": zeros + 1,
        "start": start,
        "end": start + taken,
        "sectors": sectors,
    }
    trace = build_trace(columns, sites=sites, launches=(launch(0, NAIVE),), chip="c", target="t", modelled=False)
    for entry in summarise(trace):
        mine = [number for number, owner in enumerate(sites) if (owner.line, owner.op) == (entry.line, entry.op)]
        cycles = sorted(int(t) for t, s in zip(taken, where, strict=True) if s in mine)
        known = [int(n) for n, s in zip(sectors, where, strict=True) if s in mine and n >= 0]
        assert entry.accesses == len(cycles)
        assert (entry.cycles_p50, entry.cycles_p95) == tuple(cycles[ceil(fraction * len(cycles)) - 1] for fraction in (0.5, 0.95))
        assert entry.cycles_max == cycles[-1]
        assert entry.cycles_mean == pytest.approx(sum(cycles) / len(cycles))
        assert entry.sectors_per_request == pytest.approx(sum(known) / len(known))


def test_totals_add_unrolled_sites_and_keep_what_is_common() -> None:
    a = counted(site(0, "ld.global.f32", 4), 10, sectors=4, ideal_sectors=4)
    b = counted(site(7, "ld.global.f32", 4), 30, sectors=8, ideal_sectors=4)
    other = counted(site(1, "ld.shared.f32", 4), 1, wavefronts=1, ideal_wavefronts=1)
    totals = total_by_place([a, other, b])
    assert list(totals) == [a.site.place, other.site.place]
    both = totals[a.site.place]
    assert (both.requests, both.lanes, both.bytes, both.sectors, both.ideal_sectors) == (40, 1280, 5120, 280, 160)
    assert (both.wavefronts, both.conflicts) == (None, None)
    assert totals[other.site.place].conflicts == 0


@pytest.mark.parametrize(
    ("title", "label"),
    [
        ("naive", "naive"),
        ("naive(float*, float const*, int)", "naive"),
        ("void ns::red<256>(int*)", "ns::red<256>"),
        ("void red<256, float (*)(int)>(int*)", "red<256, float (*)(int)>"),
        ("void (anonymous namespace)::copy<float>(float*)", "copy<float>"),
    ],
)
def test_kernel_labels(title: str, label: str) -> None:
    assert kernel_label(title) == label


def test_traces_and_counts_tell_what_they_hold_in_one_line() -> None:
    assert str(transpose()) == "naive, tiled; launches: 2; records: 120, lost: 2; modelled for NVIDIA H200 (emulator:h200)"
    assert repr(transpose(modelled=False, target="cuda:0")).endswith("lost: 2; measured on NVIDIA H200 (cuda:0)>")
    empty = transpose(launches=())
    assert repr(empty).startswith("<Trace: no kernel; launches: 0; records: 120")
    made = counts(counted(site(1, "st.global.f32", 4), 100, sectors=32, ideal_sectors=4))
    assert (
        str(made) == "naive; sites: 1; requests: 100, sectors: 3,200, wavefronts: 0; emulated, by the rules of NVIDIA H200 (emulator:h200)"
    )
    assert repr(made) == f"<Counts: {made}>"


def test_what_consumers_waited_by_hand() -> None:
    """Loads at line 8 take 300, ..., 304 cycles and their consumers wait for half of it; nobody knows of the others."""
    summaries = summarise(stalls())
    load = line(summaries, TILED, "ld.global.f32")
    assert (load.exposed_p50, load.hidden_p50, load.exposed_mean) == (151, 151, pytest.approx((150 + 150 + 151 + 151 + 152) / 5))
    assert load.exposed_share == pytest.approx(754 / 1510)
    assert load.lifetime_share == pytest.approx(4 * 754 / (4 * 10_000)), "what the warps stood still"
    store = line(summaries, TILED, "st.shared.f32")
    assert (store.exposed_p50, store.hidden_p50, store.exposed_mean, store.exposed_share) == (None, None, None, None)
    assert store.lifetime_share == line(summarise(transpose()), TILED, "st.shared.f32").lifetime_share
