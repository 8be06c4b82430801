"""Prepare the source listing of the page: each file with its lines, and under a line the cost and time of its accesses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.number_format import percent, plural, rounded, short
from memlane.record import LineSummary, Place, Site, SiteCounts, Trace, kernel_label, summarise, total_by_place
from memlane.report.html.histogram import Bins
from memlane.report.html.levels import chip_of, levels_of
from memlane.report.html.model import Operation, SourceFile, SourceLine, Stretch

NEAR = 8
"""Number of lines around an access that are shown initially."""
MOST_FOLDED = 400
"""Longest run of lines without an access nearby that is folded; a longer one is left out."""
MOST_OPERATIONS = 1500
"""Largest number of operations listed: those with the largest share of the cycles."""


def operations_of(trace: Trace, bins: Bins) -> tuple[list[Operation], npt.NDArray[np.int64]]:
    """Return the operations of `trace` in the order of `summarise`, and the number of the operation of each site."""
    entries = summarise(trace)
    index = {_place(entry): position for position, entry in enumerate(entries)}
    of_site = np.array([index[site.place] for site in trace.sites], np.int64)
    cycles = trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    group = of_site[trace.table["site"].to_numpy()] if trace.table.num_rows else np.zeros(0, np.int64)
    histograms = bins.counts(group, cycles, len(entries))
    recorded = np.bincount(trace.table["site"].to_numpy(), minlength=len(trace.sites))
    sites: dict[Place, list[Site]] = defaultdict(list)
    for site in trace.sites:
        sites[site.place].append(site)
    counts = total_by_place(entry for launch in trace.launches for entry in launch.counts)
    spent = [_estimated_cycles(entry) for entry in entries]
    chip, total = chip_of(trace), sum(spent) or 1.0
    made = []
    for position, entry in enumerate(entries):
        own = sites[_place(entry)]
        window = max((trace.windows.get(site.scheme, 0.0) for site in own), default=0.0)
        made.append(
            Operation(
                id=position,
                **_numbers(entry),
                kernel=kernel_label(entry.kernel),
                share=spent[position] / total,
                ends=_ends(own, recorded),
                histogram=histograms[position],
                levels=levels_of(own[0], chip, window) if own else (),
                spark=bins.spark(histograms[position]),
                facts=tuple(_facts(entry, own, counts.get(_place(entry)))),
            )
        )
    return made, of_site


def _place(entry: LineSummary) -> Place:
    return (entry.kernel, entry.file, entry.line, entry.op, entry.space)


def _estimated_cycles(entry: LineSummary) -> float:
    """Return the cycles of all warps in the window of the trace, untraced ones included; where known, only exposed cycles."""
    mean = entry.cycles_mean if entry.exposed_mean is None else entry.exposed_mean
    return max(0.0, (mean or 0.0) * entry.accesses_estimated)


_KEPT = (
    "file",
    "line",
    "op",
    "space",
    "accesses",
    "accesses_estimated",
    "requests",
    "lifetime_share",
    "exposed_p50",
    "hidden_p50",
    "exposed_share",
)
_PREFIXES = ("cycles_", "sectors_", "ideal_", "wavefronts_")


def _numbers(entry: LineSummary) -> dict[str, Any]:
    """Return the fields of `Operation` that are taken from its summary unchanged."""
    return {name: value for name, value in vars(entry).items() if name in _KEPT or name.startswith(_PREFIXES)}


def _ends(sites: Sequence[Site], recorded: npt.NDArray[np.int64]) -> dict[str, int]:
    ends: dict[str, int] = {}
    for site in sites:
        if recorded[site.id]:
            ends[site.completeness] = ends.get(site.completeness, 0) + int(recorded[site.id])
    return ends


def _facts(entry: LineSummary, sites: Sequence[Site], counts: SiteCounts | None) -> list[tuple[str, str]]:
    """Return the facts next to the histogram of an operation."""
    cycles = [("mean", rounded(entry.cycles_mean)), ("longest", rounded(entry.cycles_max))] if entry.accesses else []
    facts = [("cycles", ", ".join(f"{name} {value}" for name, value in cycles))] if cycles else []
    if entry.exposed_mean is not None:
        exposed = f"p50 {short(entry.exposed_p50)}, mean {rounded(entry.exposed_mean)}, {percent(entry.exposed_share)} of all"
        facts.append(("exposed cycles", f"{exposed}: how long the first consumer waited"))
    if entry.lifetime_share is not None:
        facts.append(("share of warp life", percent(entry.lifetime_share)))
    if entry.accesses_estimated != entry.accesses:
        facts.append(("accesses", f"{entry.accesses:,} recorded of about {entry.accesses_estimated:,}"))
    facts += [(name, text) for name, texts in _told(sites).items() for text in texts]
    if counts is not None:
        said = f": {counts.exactness_reason}" if counts.exactness_reason else ""
        facts.append(("counts", f"{counts.exactness}{said}"))
        if counts.assembled:
            facts.append(("assembled as", counts.assembled))
        if counts.lanes_per_request is not None:
            facts.append(("lanes per request", rounded(counts.lanes_per_request)))
        if counts.lanes_per_address is not None:
            facts.append(("lanes per address", rounded(counts.lanes_per_address)))
    return facts


def _told(sites: Sequence[Site]) -> dict[str, list[str]]:
    """Return what the sites of an operation state, each text once."""
    told: dict[str, dict[str, None]] = defaultdict(dict)
    for site in sites:
        if site.completeness:
            told["end read"][f"{site.completeness}{f', {site.evidence}' if site.evidence else ''}"] = None
        for name, text in (
            ("why only until issued", site.reason),
            ("changed by tracing", site.changed),
            ("also waits for", ", ".join(site.also_waits)),
            ("first waited for at", ", ".join(site.consumers)),
            ("why the consumer is not known", site.fallback),
            ("shares its wait with", ", ".join(site.shared_waits)),
        ):
            if text:
                told[name][text] = None
    if len(sites) > 1:
        told["instructions"][f"{len(sites)} of the PTX text"] = None
    return {name: list(texts) for name, texts in told.items()}


def files_of(
    trace: Trace,
    operations: Sequence[Operation],
    findings: Mapping[tuple[str, int], tuple[int, ...]],
    pictures: Mapping[tuple[str, int], str],
) -> tuple[list[SourceFile], str]:
    """Return the files that contain `operations`, and a note on what is not listed; `findings` and `pictures` by file and line."""
    listed = sorted(operations, key=lambda one: -one.share)[:MOST_OPERATIONS]
    note = ""
    if len(listed) < len(operations):
        note = f"{len(listed):,} of {plural(len(operations), 'operation')} are listed, those with the largest share of the cycles."
    by_file: dict[str, dict[int, list[Operation]]] = {}
    for one in sorted(listed, key=lambda one: one.id):
        by_file.setdefault(one.file, {}).setdefault(one.line, []).append(one)
    marks = _Marks(findings, pictures)
    return [_file(number, name, lines, trace.sources.get(name), marks) for number, (name, lines) in enumerate(by_file.items())], note


@dataclass(frozen=True)
class _Marks:
    """Findings and pictures of lines, by file and line."""

    findings: Mapping[tuple[str, int], tuple[int, ...]]
    pictures: Mapping[tuple[str, int], str]


def _file(number: int, name: str, accessed: Mapping[int, list[Operation]], text: str | None, marks: _Marks) -> SourceFile:
    texts = _lines(text or "")

    def line(at: int) -> SourceLine:
        own = tuple(accessed.get(at, ()))
        words = texts[at - 1].expandtabs(4) if 0 < at <= len(texts) else ""
        return SourceLine(
            at, words, sum(one.share for one in own), own, marks.findings.get((name, at), ()), marks.pictures.get((name, at), "")
        )

    near = {at + step for at in accessed for step in range(-NEAR, NEAR + 1)}
    stretches = []
    for run in _runs(sorted({*range(1, len(texts) + 1), *accessed}), near):
        far = run[0] not in near
        if far and len(run) > MOST_FOLDED:
            stretches.append(Stretch((), left_out=len(run)))
        else:
            stretches.append(Stretch(tuple(map(line, run)), folded=far and len(run) > 2))
    return SourceFile(number, name, PurePath(name).name or name, tuple(stretches), _missing(text, len(texts), max(accessed)))


def _lines(text: str) -> list[str]:
    """Return the lines of a source text as a compiler counts them: it knows fewer line endings than Python."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def _missing(text: str | None, lines: int, last: int) -> str:
    """Return what is wrong with the text of a file whose last access is on line `last`, and the remedy; empty if nothing is."""
    if text is None:
        return (
            "The text of this file is not in the trace: it could not be read when the kernel was compiled, or the kernel came as PTX, "
            "which names its files without their text. Keep the file where its compiler found it, or trace the source, and record "
            "again with `memlane trace`."
        )
    if last > lines:
        return (
            f"This file has {plural(lines, 'line')}, but the trace names line {last:,}, so the file changed after it was compiled. "
            "Record again with the original file."
        )
    return ""


def _runs(numbers: Sequence[int], near: set[int]) -> list[list[int]]:
    """Return the lines in runs that are all near an access, or all not."""
    runs: list[list[int]] = []
    for line in numbers:
        if runs and (runs[-1][-1] in near) == (line in near):
            runs[-1].append(line)
        else:
            runs.append([line])
    return runs
