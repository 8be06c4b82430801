"""From traces, files and counts to an ordered list of findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memlane.diagnose import RULES, explain, uncounted_launches
from memlane.errors import RecordError
from tests.synthetic import NAIVE, TILED, counted, counts, launch, site, transpose


def test_a_trace_gives_both_findings_of_the_transposes_worst_first() -> None:
    found = explain(transpose())
    assert [(finding.rank, finding.rule, finding.kernel, finding.line) for finding in found] == [
        (1, "bank-conflict", TILED, 10),
        (2, "uncoalesced-global", NAIVE, 4),
    ]
    assert found[0].source == "out[y * n + x] = tile[threadIdx.x][threadIdx.y];"


def test_a_file_gives_the_same_as_its_trace(tmp_path: Path) -> None:
    transpose().save(tmp_path / "t.parquet")
    assert explain(tmp_path / "t.parquet") == explain(str(tmp_path / "t.parquet")) == explain(transpose())


def test_counts_give_the_same_as_a_trace_with_these_counts() -> None:
    trace = transpose()
    several = [counts(*entry.counts) for entry in trace.launches]
    assert explain(several, trace.sources) == explain(trace)
    assert explain(several[0], trace.sources) == [replace(explain(trace)[1], rank=1)]


def test_a_clean_kernel_has_no_findings() -> None:
    assert explain(counts(counted(site(0, "ld.global.f32", 4), 10, sectors=4, ideal_sectors=4))) == []


def test_what_the_compiler_gave_no_line_is_at_none() -> None:
    (found,) = explain(counts(counted(site(0, "ld.global.f32", 0), 10, sectors=32, ideal_sectors=4)))
    assert str(found).startswith("transpose.cu (at no line)  ld.global.f32 in naive: ")
    assert found.source == ""


def test_launches_of_one_kernel_are_added_up() -> None:
    trace = transpose()
    again = replace(trace.launches[0], id=2)
    both = explain(replace(trace, launches=(*trace.launches, again)))
    (store,) = [finding for finding in both if finding.rule == "uncoalesced-global"]
    assert (store.requests, store.rank) == (40, 1)


def test_numbers_of_different_chips_are_not_added_up() -> None:
    bad = counted(site(1, "st.global.f32", 4), 10, sectors=32, ideal_sectors=4)
    found = explain([counts(bad), counts(bad, chip="another"), counts(bad, how="counted on the device")])
    assert [(finding.chip, finding.how, finding.requests) for finding in found] == [
        ("NVIDIA H200", "emulated", 10),
        ("another", "emulated", 10),
        ("NVIDIA H200", "counted on the device", 10),
    ]


def test_a_trace_without_counts_is_not_called_clean(tmp_path: Path) -> None:
    trace = transpose()
    bare = replace(trace, launches=tuple(replace(entry, counts=()) for entry in trace.launches))
    (uncoalesced,) = [one for one in explain(bare).unexamined if one.rule == "uncoalesced-global"]
    assert uncoalesced.kernels == (NAIVE, TILED)
    assert str(uncoalesced) == "uncoalesced global access: without transaction counts; record it with `memlane trace --counts`"
    empty = replace(bare, table=bare.table.slice(0, 0), modelled=False)
    empty.save(tmp_path / "bare.parquet")
    with pytest.raises(
        RecordError, match=r"bare\.parquet has neither records nor transaction counts, .* record it again with `memlane trace --counts`"
    ):
        explain(tmp_path / "bare.parquet")


def test_launches_without_counts_are_named() -> None:
    trace = transpose()
    partly = replace(trace, launches=(trace.launches[0], replace(trace.launches[1], counts=()), launch(2, "no_accesses(int)")))
    assert [entry.id for entry in uncounted_launches(partly)] == [1]
    assert [finding.kernel for finding in explain(partly)] == [NAIVE]
    assert uncounted_launches(trace) == ()


def test_findings_are_ready_for_json() -> None:
    found = [finding.as_dict() for finding in explain(transpose())]
    assert json.loads(json.dumps(found)) == found
    assert found[0]["ratio"] == 32
    assert found[0]["excess_bytes"] is None
    assert found[1]["excess_bytes"] == found[1]["excess_transactions"] * 32
    assert found[1]["text"] == str(explain(transpose())[1])


def test_a_line_outside_the_text_has_no_source() -> None:
    bad = counted(site(1, "st.global.f32", 4000), 10, sectors=32, ideal_sectors=4)
    assert explain(counts(bad), {"transpose.cu": "one line"})[0].source == ""


def test_rule_ids_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_records_that_disagree_with_their_sites_are_refused() -> None:
    trace = transpose()
    moved = replace(trace, sites=(replace(trace.sites[0], line=5), *trace.sites[1:]))
    message = r"^the trace is inconsistent: row 0 is at line 4 of naive.*, but its site 0 is at line 5 of naive"
    with pytest.raises(RecordError, match=message):
        explain(moved)
    fewer = replace(trace, launches=trace.launches[:1])
    with pytest.raises(RecordError, match=r"^the trace is inconsistent: a row names launch 1, but there are 1; record it again$"):
        explain(fewer)


def test_what_a_finding_costs_is_said_with_bounds_and_method() -> None:
    (first, *_) = explain(transpose(chip="h200"))
    assert first.rule == "bank-conflict"
    assert first.cost_low <= first.cost_cycles <= (first.cost_high or 0)
    # By hand: 496 cycles of the mean access without the window (500 to 504, 6); 20 requests; warps live 10,000 cycles, four of them.
    assert first.cost_cycles <= 20 * 496
    assert first.cost_share == pytest.approx(first.cost_cycles / 40_000)
    assert first.cost_ns == pytest.approx(first.cost_cycles / 1.98)
    assert first.time.startswith(
        f"{first.cost_cycles:,.0f} warp cycles, {100 * first.cost_share:.0f} % of the time of its warps, between 620 and "
    )
    assert "modelled times: mean of 49" in first.time


def test_a_rule_is_asked_only_where_it_knows_enough() -> None:
    found = explain(counts(counted(site(0, "ld.global.f32", 4), 10, sectors=4, ideal_sectors=4)))
    assert {one.rule for one in found.unexamined} == {rule.id for rule in RULES if set(rule.needs) - {"transaction counts"}}
    (outliers,) = [one for one in found.unexamined if one.rule == "latency-outliers"]
    assert outliers.missing == ("times", "the measured latencies of the chip")
    assert "record a trace (`memlane trace`)" in str(outliers)
