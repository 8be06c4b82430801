"""Render traces, counts and findings for the terminal, as rich renderables; `to_text` converts them to plain text."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.text import Text

from memlane.number_format import UNKNOWN, extents, percent, plural, rounded, short
from memlane.record import (
    ISSUE_ONLY,
    Counts,
    LaunchInfo,
    LineSummary,
    SiteCounts,
    Trace,
    kernel_label,
    summarise,
    time_axis,
    total_by_place,
)
from memlane.report.call_notes import called_note
from memlane.report.exactness import completeness_notes, exactness_notes, mark, wide_label
from memlane.report.failures import broken_off_note
from memlane.report.modelled_times import time_notes
from memlane.report.perturbation import perturbation_notes, staging_notes
from memlane.report.sample_notes import sample_notes
from memlane.report.skipped_accesses import skipped_note
from memlane.report.table import Column, LineTable, Row, plain
from memlane.report.totals import counted_sites, order_notes, total_notes
from memlane.report.transactions import is_alarming, mean, with_ideal

_SECTORS = Column(("sectors\n/request\n(ideal)", 8), ("sectors per\nrequest (ideal)", 15))
_WAVEFRONTS = Column(("wavefr.\n/request\n(ideal)", 8), ("wavefronts per\nrequest (ideal)", 15))

_TRACE_COLUMNS = (
    Column(("accesses", 8), ("accesses", 10)),
    _SECTORS,
    _WAVEFRONTS,
    Column(("p50\ncyc.", 5), ("p50\ncycles", 7)),
    Column(("p95\ncyc.", 5), ("p95\ncycles", 7)),
    Column(("max\ncyc.", 5), ("max\ncycles", 7)),
    Column(("end read\nwhen", 8), ("end read\nwhen", 8)),
    Column(("share\nof\nlife", 6), ("share of\nwarp life", 9)),
)
_STALL_COLUMNS = (
    *_TRACE_COLUMNS[:4],
    Column(("exp.\np50\ncyc.", 5), ("exposed\np50", 7)),
    Column(("hid.\np50\ncyc.", 5), ("hidden\np50", 7)),
    _TRACE_COLUMNS[6],
    Column(("exp.\nof\nall", 6), ("exposed\nof all", 9)),
)
"""Columns where consumer waits were recorded: exposed and hidden cycles replace the longest times and the share of life."""
_COUNTS_COLUMNS = (
    Column(("requests", 10), ("requests", 12)),
    Column(("lanes\n/req.", 5), ("lanes per\nrequest", 9)),
    Column(("sectors\n/request\n(ideal)", 11), _SECTORS.wide),
    Column(("wavefr.\n/request\n(ideal)", 9), _WAVEFRONTS.wide),
    Column(("excess\nsectors", 10), ("excess\nsectors", 12)),
    Column(("excess\nwavefr.", 10), ("excess\nwavefronts", 12)),
)


def to_text(renderable: RenderableType, width: int = 80) -> str:
    """Return the output of a terminal without colours, for files and pipes; no spaces at line ends."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, force_terminal=False, legacy_windows=False).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


# -- traces --------------------------------------------------------------------------------------------------------------------


def render_trace(trace: Trace) -> RenderableType:
    """Return, for each kernel and source line, transactions per request, and cycles from start to end, with a footer that explains them."""
    parts: list[RenderableType] = []
    for kernel, entries in groupby(summarise(trace), key=lambda entry: entry.kernel):
        launches = [launch for launch in trace.launches if launch.kernel == kernel]
        parts += [_kernel_table(kernel, list(entries), launches, trace.sources, _tells_of_stalls(trace)), Text()]
    if not parts:
        parts = [Text("The trace has no memory accesses."), Text()]
    notes = [note for note in (called_note(trace.sites), skipped_note(trace.skipped), *order_notes(counted_sites(trace))) if note]
    return Group(*parts, *_footer(trace), *(plain(note, "dim") for note in notes))


def _kernel_table(
    kernel: str, entries: list[LineSummary], launches: list[LaunchInfo], sources: Mapping[str, str], stalls: bool
) -> LineTable:
    files = dict.fromkeys(PurePath(entry.file).name for entry in entries)
    accesses = sum(entry.accesses for entry in entries)
    lost = sum(launch.lost for launch in launches)
    estimated = sum(entry.accesses_estimated for entry in entries)
    about = f" of about {estimated:,}" if estimated != accesses else ""
    facts = [", ".join(files), _launched(launches), f"{plural(accesses, 'access')} recorded{about}, {_lost(lost)}"]
    columns = _STALL_COLUMNS if stalls else _TRACE_COLUMNS
    return LineTable(kernel, "; ".join(facts), columns, [_trace_row(entry, stalls) for entry in entries], sources)


def _launched(launches: Sequence[LaunchInfo]) -> str:
    shapes = dict.fromkeys(f"grid {extents(launch.grid)}, block {extents(launch.block)}{_in_clusters(launch)}" for launch in launches)
    shape = f" of {next(iter(shapes))}" if len(shapes) == 1 else f" of {len(shapes)} shapes" if shapes else ""
    return f"{plural(len(launches), 'launch')}{shape}"


def _in_clusters(launch: LaunchInfo) -> str:
    return "" if launch.cluster is None else f", clusters of {extents(launch.cluster)}"


def _lost(lost: int) -> str:
    return "none lost" if lost == 0 else f"{lost:,} lost"


def _trace_row(entry: LineSummary, stalls: bool) -> Row:
    """Return the row of a line summary; `stalls`: with the waits of consumers."""
    pairs = {
        1: (entry.sectors_per_request, entry.ideal_sectors_per_request),
        2: (entry.wavefronts_per_request, entry.ideal_wavefronts_per_request),
    }
    cells = (
        short(entry.accesses) if entry.accesses else UNKNOWN,
        *(with_ideal(*pair) for pair in pairs.values()),
        short(entry.cycles_p50),
        *map(short, (entry.exposed_p50, entry.hidden_p50) if stalls else (entry.cycles_p95, entry.cycles_max)),
        _end(entry),
        percent(entry.exposed_share if stalls else entry.lifetime_share),
    )
    alarming = tuple(column for column, pair in pairs.items() if is_alarming(*pair))
    return Row(entry.file, entry.line, entry.op, cells, alarming)


def _end(entry: LineSummary) -> str:
    if entry.accesses == 0:
        return UNKNOWN
    for word, amount in (("complete", entry.complete), ("issued", entry.issue_only), ("visible", entry.visible)):
        if amount == entry.accesses:
            return word
    return "mixed"


def _footer(trace: Trace) -> list[Text]:
    schemes = dict.fromkeys(launch.scheme for launch in trace.launches if launch.scheme)
    windows = [f"{name} {rounded(trace.windows[name])}" for name in schemes if name in trace.windows]
    empty = f"; the time of the probe itself is not subtracted: {', '.join(windows)}" if windows else ""
    origin = f"modelled for {trace.chip} (no GPU was measured)" if trace.modelled else f"measured on {trace.chip}"
    notes = [f"{_targets(trace)}; {plural(trace.table.num_rows, 'record')} kept, {_lost(trace.lost)}."]
    notes += [
        f"Launch {launch.id} ({kernel_label(launch.kernel)}) failed: {launch.failed}. Its records end there."
        for launch in trace.launches
        if launch.failed
    ]
    notes += [broken_off_note(trace.failed)] if trace.failed else []
    notes += sample_notes(trace)
    if trace.lost:
        notes.append(
            "The buffer was full: times cover only the first records of each warp, and accesses and shares do not include the lost records."
        )
    unseen = sum(launch.accesses_not_kept for launch in trace.launches)
    if unseen:
        notes.append(
            f"The transactions of {plural(unseen, 'more access')}, including those of the probes, were not kept, so some rows may lack "
            "them."
        )
    notes += [
        f"Cycles: from the start to the end of a warp's access, {origin}; probe scheme {', '.join(schemes) or 'none'}{empty}.",
        f"End read when: complete = the value had arrived; issued = the access had left the warp and may complete later{_reasons(trace)}.",
        *completeness_notes(trace),
        *perturbation_notes(trace),
        *time_notes(trace),
        *staging_notes(trace),
        _STALLS if _tells_of_stalls(trace) else _LIFE,
        *_alignment(trace),
        *_TRANSACTIONS,
    ]
    return [plain(note, "dim") for note in notes]


def _targets(trace: Trace) -> str:
    """Return where the trace was taken; for several devices, with the number of launches on each."""
    if len(trace.devices) == 1:
        return f"Target {trace.target}"
    ran = Counter(launch.device for launch in trace.launches)
    named = [f"{name} ({plural(ran[name], 'launch')})" for name in trace.devices]
    return f"Targets {', '.join(named)}"


def _tells_of_stalls(trace: Trace) -> bool:
    return bool(trace.table["exposed"].null_count < trace.table.num_rows)


def _alignment(trace: Trace) -> list[str]:
    """Return a note on how well the clocks of the SMs are aligned, where this was measured."""
    axis = time_axis(trace)
    sms = len({(trace.launches[clock.launch].device, clock.sm) for clock in axis.clocks})
    if trace.modelled or sms < 2:
        return []
    how = "their frequency fitted" if all(axis.fitted) else "the nominal frequency, because a launch is too short to fit one"
    return [f"Clocks: aligned across {sms} SMs to within {axis.error_ns:.0f} ns ({how}; the timer steps by {axis.step_ns} ns)."]


def _reasons(trace: Trace) -> str:
    reasons = dict.fromkeys(site.reason for site in trace.sites if site.completeness == ISSUE_ONLY and site.reason)
    return f" ({'; '.join(reasons)})" if reasons else ""


_LIFE = "Share of warp life: cycles of the accesses divided by the lifetimes of all warps. The probe makes accesses wait for each other."
_STALLS = (
    "Exposed: cycles that the first consumer of the value waited. Hidden: the rest, in which the warp did other work. If "
    "the consumer waited no longer than an empty window, the value had already arrived, and the time shown is that until its use."
)
_TRANSACTIONS = (
    "Sectors: 32 bytes of global or local memory. Wavefronts: passes through shared memory. (ideal): the fewest for "
    "the same bytes. A dash: not known or not applicable.",
)


# -- counts --------------------------------------------------------------------------------------------------------------------


def render_counts(counts: Counts, sources: Mapping[str, str] | None = None) -> RenderableType:
    """Return, for each source line, requests, transactions per request and their excess, followed by notes.

    The notes give the totals moved, the branches that diverged, and whether the machine code has the same accesses.
    """
    counts = counts.checked
    entries = counts.by_line()
    files = dict.fromkeys(PurePath(entry.site.file).name for entry in entries)
    facts = [", ".join(files), f"grid {extents(counts.grid)}, block {extents(counts.block)}"]
    table = LineTable(
        counts.kernel,
        "; ".join(fact for fact in facts if fact),
        _COUNTS_COLUMNS,
        _counts_rows(entries, counts.merged),
        sources or counts.sources,
    )
    origin = f"Target {counts.target}: {counts.how}, by the rules of {counts.chip}."
    notes = [
        *total_notes(entries),
        *_branches(counts),
        *order_notes(one.site for one in counts.sites),
        *_TRANSACTIONS,
        *exactness_notes(entries, counts.merged),
        origin,
    ]
    if counts.thread_instructions is not None:
        notes.insert(0, f"Thread instructions in PTX, active lanes only (a hint): {counts.thread_instructions:,}.")
    notes += [note for note in (called_note(one.site for one in counts.sites), skipped_note(counts.skipped)) if note]
    return Group(table, Text(), *(plain(note, "dim") for note in notes))


def _counts_rows(entries: Sequence[SiteCounts], merged: Sequence[SiteCounts]) -> list[Row]:
    """Return the rows of the sites, with the merged machine accesses of each line below them."""
    rows = [_counts_row(entry) for entry in entries]
    rows += [replace(_counts_row(entry), op=wide_label(entry)) for entry in total_by_place(merged).values()]
    return sorted(rows, key=lambda row: (row.file, row.line))


def _counts_row(entry: SiteCounts) -> Row:
    pairs = {2: (entry.sectors, entry.ideal_sectors), 3: (entry.wavefronts, entry.ideal_wavefronts)}
    excess = [None if total is None or ideal is None else total - ideal for total, ideal in pairs.values()]
    requests = entry.requests
    cells = (
        f"{requests:,}",
        rounded(mean(entry.lanes, requests)),
        *(with_ideal(mean(total, requests), mean(ideal, requests)) for total, ideal in pairs.values()),
        *(UNKNOWN if surplus is None else f"{surplus:,}" for surplus in excess),
    )
    operation = f"{entry.site.op}{mark(entry)}"
    return Row(entry.site.file, entry.site.line, operation, cells, tuple(column for column, pair in pairs.items() if is_alarming(*pair)))


def _branches(counts: Counts) -> list[str]:
    executions = sum(branch.executions for branch in counts.branches)
    if not executions:
        return []
    by_line: dict[tuple[str, int], tuple[int, int]] = {}
    for one in counts.branches:  # A line with several conditions has a branch for each.
        divergent, times = by_line.get((one.file, one.line), (0, 0))
        by_line[one.file, one.line] = divergent + one.divergent, times + one.executions
    diverged = {line: numbers for line, numbers in by_line.items() if numbers[0]}
    total = sum(divergent for divergent, _ in diverged.values())
    places = ", ".join(
        f"{PurePath(file).name}:{line} ({divergent:,} of {times:,})" for (file, line), (divergent, times) in diverged.items()
    )
    where = f": {places}" if places else ""
    return [f"Branches in PTX (a hint): {plural(executions, 'execution')} by warps, {total:,} divergent{where}."]
