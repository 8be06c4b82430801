"""Run the lab: four cases, each without a remap, with one behind the copy and with an overlapped one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf
from pathlib import Path

from memlane.lab.figures import Bars, Figure, Lines, Tracks
from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.remap.cases import KMEANS, MAKE, PARTICLES, SPARSE, STRIPS, sparse_from
from memlane.lab.remap.measure import BEHIND, CHUNKS, OVERLAPPED, Bench, Outcome, runs_for
from memlane.lab.result import Result, Row, Table, reached_on
from memlane.launch import Target
from memlane.plan import Timeline

SOURCES = ["src/memlane/lab/remap", "src/memlane/remap", "src/memlane/transfer", "src/memlane/layout"]
SIZES = {
    KMEANS: (65536, 131072, 262144),
    STRIPS: (1024, 2048, 4096, 8192),
    SPARSE: (65536, 262144, 1048576),
    PARTICLES: (65536, 1048576, 8388608),
}
MODELLED = {KMEANS: (65536, 131072), STRIPS: (256, 1024), SPARSE: (16384, 65536), PARTICLES: (65536, 262144)}
QUICK = {KMEANS: (512,), STRIPS: (16,), SPARSE: (128,), PARTICLES: (512,)}
PUBLISHED = {KMEANS: (3.11, 5.8, 30.6), STRIPS: (1.424, 16.1, 14.0), SPARSE: (4.1, 10.2, 15.6)}
"""Results of the paper, on a GTX 480: speed-up of the kernel, overhead of the transfer in %, gain of the whole in %."""
WHY = {
    KMEANS: "the paper gives only the bytes. Here, rows of 34 features are read once per cluster, so sectors dominate.",
    STRIPS: "42.4 % in the paper is read as 1.42 times. Here, each diagonal is a launch, whose start the remap does not change.",
    SPARSE: "here, a warp computes a row, and the matrix is contiguous with and without the remap, so only the vector gains.",
}
"""Reasons why a figure may differ from the paper's."""


def run(target: Target, request: Request) -> Result:
    """Measure the chosen cases."""
    return run_with(target, request, ())


def run_with(target: Target, request: Request, matrices: Sequence[Path]) -> Result:
    """Measure the chosen cases, and the sparse product of MatrixMarket files."""
    of_files = [sparse_from(path) for path in matrices]
    sizes = QUICK if request.quick else MODELLED if target.modelled else SIZES
    chunks = CHUNKS[1:2] if request.quick else CHUNKS
    bench = Bench(target, 1 if target.modelled else 7)
    found: list[Outcome] = []
    cases = Cases()
    for name, size in cases.each((one, size) for one in request.chosen(tuple(MAKE)) for size in sizes[one]):
        with cases.measuring(f"{name}, {size:,}"):
            request.tell(f"{name}, {size:,}")
            found.append(bench.outcome(MAKE[name](size), sweep=chunks if size == sizes[name][-1] else ()))
    for case in cases.each(of_files):
        with cases.measuring(f"{case.name}, {case.size:,}"):
            request.tell(f"{case.name}, {case.size:,}")
            found.append(bench.outcome(case, sweep=chunks))
    rows = reached_on("h200", target, [row for outcome in found for row in _rows(outcome)])
    return Result("remap", (*rows, *cases.failed), tables(found), figures(found), interrupted=cases.interrupted)


_EVENTS = "an event before and after each step adds about 1 us to its time, which is much for a short transfer"


REMAP = Lab("remap", "What it costs to change the layout of an array during its upload, and what kernels gain by it.", tuple(MAKE), run)


def break_even(outcome: Outcome) -> float:
    """Return the number of kernel runs after which an overlapped remap has paid off; infinity if it never does."""
    gain = outcome.kernels["without"] - outcome.kernels["with"]
    cost = outcome.remapped[OVERLAPPED] - outcome.transfer
    return inf if gain <= 0 else max(1.0, ceil(max(0.0, cost) / gain))


def totals(outcome: Outcome, runs: int) -> tuple[float, float, float]:
    """Return the time of an upload and `runs` kernel runs: without remap, with the remap behind the copy, with the overlapped one."""
    without = outcome.transfer + runs * outcome.kernels["without"]
    kernels = runs * outcome.kernels["with"]
    return without, outcome.remapped[BEHIND] + kernels, outcome.remapped[OVERLAPPED] + kernels


def _title(outcome: Outcome) -> str:
    return f"{outcome.case.name}, {outcome.case.size:,}"


def tables(found: Sequence[Outcome]) -> dict[str, Table]:
    """Return the non-empty tables, by name."""
    overview = Table(
        (
            *(
                "case",
                "runs",
                "transfer us",
                "after copy us",
                "overlapped us",
                "overhead %",
                "kernel us",
                "with remap us",
                "kernel speed-up",
            ),
            *("by hand us", "total speed-up", "pays after runs", "chosen"),
        ),
        tuple(_line(outcome) for outcome in found),
        spare=("by hand us", "after copy us"),
    )
    counts = Table(
        ("case", "sectors without", "sectors with", "ratio"),
        tuple((_title(one), *one.sectors.values(), round(one.sectors["without"] / one.sectors["with"], 2)) for one in found),
    )
    swept = [
        (_title(one), chunks, round(one.sweep[chunks, True] / 1e3, 2), round(one.sweep[chunks, False] / 1e3, 2))
        for one in found
        for chunks in sorted({chunks for chunks, _ in one.sweep})
    ]
    published = tuple(_published(outcome) for outcome in found if outcome.case.name in PUBLISHED)
    head = ("case", "kernel", "predicted", "paper", "transfer %", "paper %", "total %", "paper total %", "why the results may differ")
    made = {
        "remap": overview,
        "counts": counts,
        "work": Table(("case", "of each thread", "kernel us"), _works(found), printed=False),
        "chunks": Table(("case", "chunks", "overlapped us", "one after another us"), tuple(swept), printed=False),
        "paper": Table(head, published, remarks=("why the results may differ",)),
    }
    return {name: table for name, table in made.items() if table.lines}


def _works(found: Sequence[Outcome]) -> tuple[tuple[str | float | None, ...], ...]:
    return tuple((_title(one), work, round(elapsed / 1e3, 2)) for one in found for work, elapsed in one.works.items())


def _line(outcome: Outcome) -> tuple[str | float | None, ...]:
    runs = runs_for(outcome.case, outcome)
    without, _, overlapped = totals(outcome, runs)
    pays = break_even(outcome)
    by_hand = outcome.kernels.get("by hand")
    return (
        _title(outcome),
        runs,
        round(outcome.transfer / 1e3, 2),
        round(outcome.remapped[BEHIND] / 1e3, 2),
        round(outcome.remapped[OVERLAPPED] / 1e3, 2),
        round(100 * (outcome.remapped[OVERLAPPED] / outcome.transfer - 1), 2),
        round(outcome.kernels["without"] / 1e3, 2),
        round(outcome.kernels["with"] / 1e3, 2),
        round(outcome.kernels["without"] / outcome.kernels["with"], 3),
        None if by_hand is None else round((by_hand + outcome.preparation / runs) / 1e3, 2),
        round(without / overlapped, 3),
        "never" if pays == inf else int(pays),
        "remap" if overlapped < without else "no remap",
    )


def _published(outcome: Outcome) -> tuple[str | float | None, ...]:
    kernel, transfer, total = PUBLISHED[outcome.case.name]
    without, _, overlapped = totals(outcome, runs_for(outcome.case, outcome))
    return (
        _title(outcome),
        round(outcome.kernels["without"] / outcome.kernels["with"], 2),
        round(outcome.model["without"] / outcome.model["with"], 2) if outcome.model else None,
        kernel,
        round(100 * (outcome.remapped[OVERLAPPED] / outcome.transfer - 1), 1),
        transfer,
        round(100 * (without / overlapped - 1), 1),
        total,
        WHY[outcome.case.name],
    )


def _rows(outcome: Outcome) -> list[Row]:
    case, runs = _title(outcome), runs_for(outcome.case, outcome)
    without, behind, overlapped = totals(outcome, runs)
    kernels = {f"kernel {name} us": value / 1e3 for name, value in outcome.kernels.items()}
    sectors = {f"sectors {name}": float(value) for name, value in outcome.sectors.items()}
    shown = [
        Row(
            case,
            "speed-up of the kernel",
            outcome.kernels["without"] / outcome.kernels["with"],
            "",
            better="higher",
            peer=kernels | sectors,
        ),
        *_model_rows(case, outcome),
        Row(case, "overhead of the transfer, behind the copy", 100 * (outcome.remapped[BEHIND] / outcome.transfer - 1), "%"),
        Row(case, "overhead of the transfer, overlapped", 100 * (outcome.remapped[OVERLAPPED] / outcome.transfer - 1), "%"),
        Row(case, f"speed-up of the whole, {runs} runs", without / overlapped, "", better="higher", peer={"behind": without / behind}),
    ]
    pays = break_even(outcome)
    shown.append(Row(case, "runs after which it pays", None if pays == inf else pays, "runs", note="never" if pays == inf else ""))
    if outcome.preparation or "by hand" in outcome.kernels:
        took = outcome.transfer + outcome.preparation + runs * outcome.kernels["by hand"]
        shown.append(Row(case, "the whole by hand over the remap", took / overlapped, "", better="higher"))
    if outcome.predicted is not None:
        off = outcome.predicted / outcome.alone
        shown.append(Row(case, "error of the prediction", abs(off - 1), "", 0.10, peer={"over measured": off}, note=_EVENTS))
    if outcome.works:
        by_work = {f"{work} us": elapsed / 1e3 for work, elapsed in outcome.works.items()}
        shown.append(Row(case, "best work of a thread", min(outcome.works, key=lambda work: outcome.works[work]), "points", peer=by_work))
    if outcome.sweep and outcome.case.layout != "gather":
        best = min(value for (_, overlap), value in outcome.sweep.items() if overlap)
        shown.append(Row(case, "chosen chunks over the best", outcome.remapped[OVERLAPPED] / best, "", 1.03, note=_EVENTS))
    if (16, True) in outcome.sweep:
        shown.append(Row(case, "16 chunks, one after another over overlapped", outcome.sweep[16, False] / outcome.sweep[16, True], ""))
    return [replace(row, value=None if row.value is None else round(row.value, 5)) for row in shown]


def _model_rows(case: str, outcome: Outcome) -> list[Row]:
    """Return the speed-up that the model of kernels predicts for the chip, next to the paper's."""
    if not outcome.model:
        return []
    peer = {f"kernel {name} us": value / 1e3 for name, value in outcome.model.items()}
    peer |= {"paper": PUBLISHED[outcome.case.name][0]} if outcome.case.name in PUBLISHED else {}
    return [
        Row(case, "speed-up of the kernel, predicted", outcome.model["without"] / outcome.model["with"], "", better="higher", peer=peer)
    ]


def figures(found: Sequence[Outcome]) -> dict[str, Figure]:
    made: dict[str, Figure] = {}
    for name in MAKE:
        own = [outcome for outcome in found if outcome.case.name.partition(" of ")[0] == name]
        if own:
            made[name.lower().replace(" ", "-")] = _parts(name, own)
        for outcome in own:
            for way, timeline in outcome.timelines.items():
                made[f"timeline-{name.lower().replace(' ', '-')}-{way.partition(' ')[0]}"] = _when(f"{_title(outcome)}, {way}", timeline)
    swept = {
        f"{_title(one)}, {'overlapped' if overlap else 'one after another'}": [
            (float(chunks), one.sweep[chunks, overlap] / 1e3) for chunks in sorted({chunks for chunks, _ in one.sweep})
        ]
        for one in found
        if one.sweep
        for overlap in (True, False)
    }
    if swept:
        made["chunks"] = Lines("Upload with a remap by the number of chunks", "chunks", "us", swept, doubling=True)
    return made


def _parts(name: str, outcomes: Sequence[Outcome]) -> Bars:
    """Return the parts of an upload and its kernels, for each way."""
    labels: list[str] = []
    parts: dict[str, list[float | None]] = {"copy": [], "remap": [], "kernels": []}
    for one in outcomes:
        runs = runs_for(one.case, one)
        for way in ("no remap", BEHIND, OVERLAPPED):
            labels.append(f"{one.case.size:,}, {way}")
            parts["copy"].append(one.transfer / 1e3)
            parts["remap"].append(0.0 if way == "no remap" else max(0.0, one.remapped[way] - one.transfer) / 1e3)
            parts["kernels"].append(runs * one.kernels["without" if way == "no remap" else "with"] / 1e3)
    return Bars(f"{name}: upload and kernels", "us", tuple(labels), parts, stacked=True)


def _when(title: str, timeline: Timeline) -> Tracks:
    """Return when the copies and the remaps of an upload ran."""
    kinds = {"copy": "copies", "launch": "remaps"}
    series = {
        label: [(label, span.start_ns / 1e3, span.end_ns / 1e3) for span in timeline.spans if span.kind == kind]
        for kind, label in kinds.items()
    }
    return Tracks(title, "", "us", tuple(kinds.values()), series)
