"""What limited modelled times is said wherever these are shown, and kept in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import memlane as ml
from memlane import diagnose
from memlane.chip import load
from memlane.diagnose.comparison import compare
from memlane.instrument import TraceOptions
from memlane.launch import observing
from memlane.measure import Tracer
from memlane.record import Trace
from memlane.record import load as loaded
from memlane.report import findings_document, render_findings, render_trace, summary_document, to_json, to_text
from memlane.report.html.trace_facts import trace_facts
from memlane.report.modelled_times import COSTS, time_notes

EXAMPLE = Path(__file__).parents[2] / "examples" / "transpose.cu"


def traced(perturbation: bool) -> Trace:
    """Naive and padded transposes of 64 x 64, a block on each of four multiprocessors."""
    target, n = ml.target("emulator:h200"), 64
    kernels = target.load(ml.cuda(EXAMPLE))
    a, b = target.zeros((n, n), "f4"), target.zeros((n, n), "f4")
    tracer = Tracer(TraceOptions(), perturbation=perturbation)
    with observing(tracer):
        for name in ("naive", "padded"):
            kernels[name][(2, 2), (32, 32)](b, a, n)
    return tracer.finish()


@pytest.fixture(scope="module")
def plain() -> Trace:
    return traced(False)


@pytest.fixture(scope="module")
def timed() -> Trace:
    return traced(True)


def flowing(text: str) -> str:
    return " ".join(text.split())


def test_the_time_of_a_traced_launch_is_said_to_be_that_with_probes(plain: Trace) -> None:
    first = plain.launches[0].time
    assert first is not None
    notes = time_notes(plain)
    assert [note.partition(" with its probes, including the traffic of their records: ")[0] for note in notes] == [
        "Modelled time of naive",
        "Modelled time of padded",
    ]
    assert notes[0].endswith(f"{first.sentence(load('h200').clock_mhz)}.")
    assert notes[0] in flowing(to_text(render_trace(plain)))


def test_times_without_probes_go_before(timed: Trace) -> None:
    """1,024 lines written in part by one multiprocessor take 2,065 cycles, of 1.04 us; the padded kernel waits for its loads."""
    naive, padded = time_notes(timed)
    assert naive.startswith(
        "Modelled time of naive without probes: 1.04 us, limited by L2 writes of one SM (1,024 lines written in part at 0.496"
    )
    assert padded.startswith("Modelled time of padded without probes: ")
    assert " us, limited by latency; the busiest part, " in padded or " ns, limited by latency; the busiest part, " in padded
    assert "limited by L2 writes of one SM -> " in flowing(to_text(render_trace(timed)))


def test_findings_say_what_rules_where_costs_are_shown(timed: Trace) -> None:
    findings = diagnose.explain(timed)
    text = flowing(to_text(render_findings(findings, timed=timed)))
    assert findings
    assert all(note in text for note in (*time_notes(timed), COSTS))
    assert COSTS not in flowing(to_text(render_findings(findings)))


def test_documents_have_the_numbers(timed: Trace) -> None:
    for document in (summary_document(timed), findings_document(diagnose.explain(timed), timed=timed)):
        first = json.loads(to_json(document))["times"][0]
        assert (first["kernel"], first["limited_by"], first["with_probes"]) == (timed.launches[0].kernel, "L2 writes of one SM", False)
        assert first["cycles"] == 2065 > first["scoreboard"]
        assert first["floors"][0]["moved"] == "1,024 lines written in part at 0.496 per clock"


def test_the_page_and_a_comparison_say_it(timed: Trace) -> None:
    rows = [text for group in trace_facts(timed, None) for _, text in group.rows]
    assert any("modelled time limited by L2 writes of one SM" in text for text in rows)
    (change,) = compare(timed, timed, {"naive": "padded"}).kernels
    assert "the modelled time is limited by L2 writes of one SM before and by latency after" in change.notes


def test_the_file_keeps_it(plain: Trace, tmp_path: Path) -> None:
    plain.save(tmp_path / "kept.parquet")
    assert [launch.time for launch in loaded(tmp_path / "kept.parquet").launches] == [launch.time for launch in plain.launches]
