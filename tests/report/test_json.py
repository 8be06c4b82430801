"""JSON documents: versioned, complete, with null for the unknown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace

from memlane.diagnose import explain
from memlane.record import LineSummary, Site, SiteCounts
from memlane.record.counts import DERIVED
from memlane.report import counts_document, findings_document, summary_document, to_json
from tests.synthetic import counts, launch, site, transpose

Golden = Callable[[str, str], None]


def test_findings(golden: Golden) -> None:
    text = to_json(findings_document(explain(transpose()), [launch(7, "idle()")]))
    document = json.loads(text)
    assert (document["memlane_json"], document["kind"]) == (1, "findings")
    assert [entry["rule"] for entry in document["findings"]] == ["bank-conflict", "uncoalesced-global"]
    assert document["uncounted_launches"] == [7]
    golden("findings.json", text)


def test_counts(golden: Golden) -> None:
    trace = transpose()
    made = counts(*trace.launches[0].counts, branches=trace.launches[0].branches)
    document = json.loads(to_json(counts_document(made)))
    (only,) = document["launches"]
    assert (only["grid"], only["how"], only["thread_instructions"]) == ([32, 32, 1], "emulated", None)
    store = only["sites"][1]
    assert set(store) == {field.name for field in fields(Site)} | {"counts"}
    assert set(store["counts"]) == {field.name for field in fields(SiteCounts)} - {"site"} | set(DERIVED)
    assert (store["counts"]["bytes_moved"], store["counts"]["excess_sectors"]) == (640 * 32, 640 - store["counts"]["ideal_sectors"])
    assert only["total"]["sectors"] == sum(one["counts"]["sectors"] or 0 for one in only["sites"])
    assert only["total"]["divergent_branches"] == 1
    assert (store["counts"]["sectors"], store["counts"]["wavefronts"]) == (640, None)
    assert only["branches"][0]["divergent"] == 1
    assert len(json.loads(to_json(counts_document([made, made])))["launches"]) == 2
    golden("counts.json", to_json(counts_document(made)))


def test_summary(golden: Golden) -> None:
    text = to_json(summary_document(transpose()))
    document = json.loads(text)
    assert (document["modelled"], document["records"], document["windows_cycles"]) == (True, {"kept": 120, "lost": 2}, {"dependent": 6.0})
    assert set(document["lines"][0]) == {field.name for field in fields(LineSummary)}
    assert document["lines"][1]["wavefronts_per_request"] is None
    golden("summary.json", text)


def test_names_are_kept_as_they_are() -> None:
    odd = replace(site(0, "ld.global.f32", 4), kernel="größe")
    trace = transpose()
    text = to_json(counts_document(counts(replace(trace.launches[0].counts[0], site=odd))))
    assert '"größe"' in text
    assert text.endswith("}\n")
