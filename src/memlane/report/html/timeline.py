"""Prepare the timeline: for each launch an overview of all multiprocessors, from every access, and as many single accesses as fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.export.tracks import Tracks, tracks
from memlane.number_format import extents, plural
from memlane.record import Trace, kernel_label
from memlane.report.html.pack import Columns
from memlane.report.html.sampling import WARP_COST, DrawnWarps, Ints, choose_warps, divide_budget

BUDGET = 560_000
"""Largest number of accesses drawn individually, over all launches; a warp costs `sampling.WARP_COST` more.

About 3 MB of page, at most 6.
"""
LAUNCHES = 12
"""Largest number of launches with a timeline: those with the most accesses."""
BINS = 240
"""Columns of the overview."""
TICKS = 1 << 31
"""Most ticks in a launch: times are whole numbers of ticks; a tick is at least a sixteenth of a nanosecond."""
UNKNOWN_16, UNKNOWN_32 = 0xFFFF, 0xFFFFFFFF
"""Values that mean "not known", in columns of 16 and of 32 bits."""


@dataclass(frozen=True)
class LaunchLine:
    """One launch on the timeline; its columns are named `<number>/...`."""

    number: int
    launch: int
    """Id of the launch."""
    name: str
    span_ns: float
    """Time from the first moment of it in the trace to the last."""
    tick_ns: float
    ghz: float
    accesses: int
    accesses_kept: int
    warps: int
    warps_kept: int
    sms: tuple[int, ...]
    sms_kept: tuple[int, ...]
    lanes: int
    """Most accesses of one warp in flight at once."""
    left_out: str
    """Text on the accesses not drawn individually, and why; empty if all are."""


@dataclass(frozen=True)
class Timeline:
    """All data drawn over time."""

    launches: tuple[LaunchLine, ...] = ()
    notes: tuple[str, ...] = ()
    error_ns: float = 0.0


def timeline(trace: Trace, operations: Ints, columns: Columns) -> Timeline:
    """Return the timeline of `trace`, and add its arrays to `columns`. `operations`: the number of each site's operation on the page.

    Raises RecordError if the trace does not tell how its clocks are related.
    """
    drawn = tracks(trace)
    accesses = _Accesses(trace, drawn, operations)
    lives_of = np.bincount(drawn.lives.launch, minlength=len(trace.launches))
    records_of = np.bincount(accesses.launch, minlength=len(trace.launches))
    busiest = np.argsort(-records_of, kind="stable")[:LAUNCHES]
    chosen = sorted(index for index in busiest.tolist() if lives_of[index])
    budgets = divide_budget([int(records_of[index] + WARP_COST * lives_of[index]) for index in chosen], BUDGET)
    lines = tuple(
        _launch(number, index, budget, trace, accesses, columns) for number, (index, budget) in enumerate(zip(chosen, budgets, strict=True))
    )
    return Timeline(lines, tuple(_notes(trace, drawn, len(chosen))), drawn.axis.error_ns)


def _notes(trace: Trace, drawn: Tracks, shown: int) -> list[str]:
    notes = []
    if shown < len(trace.launches):
        notes.append(f"{shown:,} of {plural(len(trace.launches), 'launch')} have a timeline here, those with the most accesses.")
    sms = len({(trace.launches[clock.launch].device, clock.sm) for clock in drawn.axis.clocks})
    if sms > 1:
        how = "" if all(drawn.axis.fitted) else "; the clock is the nominal one, because a launch is too short to fit it"
        notes.append(f"The clocks of {plural(sms, 'multiprocessor')} are aligned to within {drawn.axis.error_ns:,.0f} ns{how}.")
    notes.append(
        "The hardware does not report which slot a warp occupies, so each warp is drawn in the lowest slot that is free when it starts."
    )
    return notes


class _Accesses:
    """The rows of a trace by warp and start, with what is drawn of them."""

    def __init__(self, trace: Trace, drawn: Tracks, operations: Ints) -> None:
        table = trace.table
        order = drawn.order
        self.lives = drawn.lives
        self.axis = drawn.axis
        self.life = drawn.life[order]
        self.launch = self.lives.launch[self.life]
        self.start, self.end = drawn.start_ns[order], drawn.end_ns[order]
        self.lane = drawn.lane[order]
        self.cycles = (table["end"].to_numpy() - table["start"].to_numpy())[order]
        self.operation = operations[table["site"].to_numpy()[order]] if len(order) else np.zeros(0, np.int64)
        self.known = {name: table[name].fill_null(UNKNOWN_16).to_numpy()[order] for name in ("sectors", "wavefronts")}
        exposed = table["exposed"]
        self.exposed = exposed.fill_null(UNKNOWN_32).to_numpy()[order] if exposed.null_count < len(exposed) else None
        lives = len(self.lives.sm)
        self.counts = np.bincount(self.life, minlength=lives)
        self.firsts = np.cumsum(self.counts) - self.counts
        self.sums = np.bincount(self.life, self.cycles, lives)
        self.longest = np.zeros(lives, np.int64)
        np.maximum.at(self.longest, self.life, self.cycles)


def _launch(number: int, launch: int, budget: int, trace: Trace, of: _Accesses, columns: Columns) -> LaunchLine:
    lives = np.flatnonzero(of.lives.launch == launch)
    begin = float(of.lives.begin_ns[lives].min())
    span = max(float(of.lives.end_ns[lives].max()) - begin, 1e-3)
    tick = max(1 / 16, span / TICKS)
    kept = choose_warps(of.lives.sm[lives], of.counts[lives], of.longest[lives], budget)
    shown = lives[kept.lives]
    order = np.lexsort((of.lives.begin_ns[shown], of.lives.slot[shown], of.lives.sm[shown]))
    shown, counts = shown[order], kept.counts[order]
    rows = _spans(of.firsts[shown], counts)
    sms = np.unique(of.lives.sm[lives])
    _add_lives(f"{number}/", of, shown, counts, begin, tick, columns)
    _add_rows(f"{number}/", of, rows, begin, tick, columns)
    _add_overview(f"{number}/", of, np.flatnonzero(of.launch == launch), sms, begin, span, columns)
    _add_means(f"{number}/", of, lives, sms, columns)
    info = trace.launches[launch]
    on = f" on {info.device}" if len(trace.devices) > 1 else ""
    return LaunchLine(
        number=number,
        launch=info.id,
        name=f"launch {info.id}{on}: {kernel_label(info.kernel)}, grid {extents(info.grid)}, block {extents(info.block)}",
        span_ns=span,
        tick_ns=tick,
        ghz=of.axis.frequency_ghz[launch],
        accesses=int(of.counts[lives].sum()),
        accesses_kept=len(rows),
        warps=len(lives),
        warps_kept=len(shown),
        sms=tuple(sms.tolist()),
        sms_kept=kept.sms,
        lanes=int(of.lane[rows].max()) + 1 if len(rows) else 1,
        left_out=_left_out(kept, len(rows), int(of.counts[lives].sum())),
    )


def _left_out(kept: DrawnWarps, shown: int, accesses: int) -> str:
    if not kept.how:
        return ""
    return f"Drawn: {kept.how}; {shown:,} of {plural(accesses, 'access')}. The overview, the means and all numbers cover every access."


def _spans(firsts: Ints, counts: Ints) -> Ints:
    """Return first, first + 1, ... of each range, concatenated."""
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(int(counts.sum()))


def _add_lives(prefix: str, of: _Accesses, shown: Ints, counts: Ints, begin: float, tick: float, columns: Columns) -> None:
    lives = of.lives
    for name, values, dtype in (
        ("sm", lives.sm, "u2"),
        ("slot", lives.slot, "u2"),
        ("block", lives.block, "u4"),
        ("warp", lives.warp, "u2"),
    ):
        columns.add(f"{prefix}life.{name}", values[shown], dtype)
    columns.add(f"{prefix}life.begin", _ticks(lives.begin_ns[shown], begin, tick), "u4")
    columns.add(f"{prefix}life.end", _ticks(lives.end_ns[shown], begin, tick), "u4")
    columns.add(f"{prefix}life.count", counts, "u4")
    columns.add(f"{prefix}life.recorded", of.counts[shown], "u4")
    columns.add(f"{prefix}life.mean", of.sums[shown] / np.maximum(of.counts[shown], 1), "f4")


def _add_rows(prefix: str, of: _Accesses, rows: Ints, begin: float, tick: float, columns: Columns) -> None:
    columns.add(f"{prefix}access.start", _ticks(of.start[rows], begin, tick), "u4")
    columns.add(f"{prefix}access.cycles", np.clip(of.cycles[rows], 0, 0xFFFFFFFF), "u4")
    columns.add(f"{prefix}access.operation", of.operation[rows], "u2")
    columns.add(f"{prefix}access.lane", np.minimum(of.lane[rows], 255), "u1")
    for name, values in of.known.items():
        columns.add(f"{prefix}access.{name}", values[rows], "u2")
    if of.exposed is not None:
        columns.add(f"{prefix}access.exposed", of.exposed[rows], "u4")


def _ticks(ns: npt.NDArray[np.float64], begin: float, tick: float) -> npt.NDArray[np.float64]:
    return np.clip(np.round((ns - begin) / tick), 0, 0xFFFFFFFF)


def _add_overview(prefix: str, of: _Accesses, rows: Ints, sms: Ints, begin: float, span: float, columns: Columns) -> None:
    """Add, by SM and column, the mean number of accesses in flight, and the mean cycles of the accesses that start in the column."""
    sm = np.searchsorted(sms, of.lives.sm[of.life[rows]])
    width = span / BINS
    start, end = of.start[rows] - begin, of.end[rows] - begin
    open_time = _until_edges(sm, start, len(sms), width) - _until_edges(sm, end, len(sms), width)
    columns.add_scaled(f"{prefix}overview.flight", np.maximum(np.diff(open_time, axis=1) / width, 0))
    key = sm * BINS + np.clip((start / width).astype(np.int64), 0, BINS - 1)
    amounts = np.bincount(key, minlength=len(sms) * BINS)
    sums = np.bincount(key, of.cycles[rows], len(sms) * BINS)
    columns.add_scaled(f"{prefix}overview.cycles", np.maximum(sums / np.maximum(amounts, 1), 0))


def _until_edges(sm: Ints, at: npt.NDArray[np.float64], sms: int, width: float) -> npt.NDArray[np.float64]:
    """Return, by SM and edge of a column, the sum of the times from the moments `at` before the edge to the edge."""
    key = sm * BINS + np.clip((at / width).astype(np.int64), 0, BINS - 1)
    amounts, sums = (np.bincount(key, weights, sms * BINS).reshape(sms, BINS) for weights in (None, at))
    until = np.zeros((sms, BINS + 1))
    until[:, 1:] = np.cumsum(amounts, axis=1) * (np.arange(1, BINS + 1) * width) - np.cumsum(sums, axis=1)
    return until


def _add_means(prefix: str, of: _Accesses, lives: Ints, sms: Ints, columns: Columns) -> None:
    """Add, by SM, over all its warps with an access: the 5th, 50th and 95th percentile of their mean cycles, their number and mean."""
    lives = lives[of.counts[lives] > 0]
    means = of.sums[lives] / of.counts[lives]
    table = np.zeros((5, len(sms)))
    for index, sm in enumerate(sms.tolist()):
        own = means[of.lives.sm[lives] == sm]
        if len(own):
            table[:, index] = (*np.percentile(own, (5, 50, 95)), len(own), own.mean())
    for name, values in zip(("p5", "p50", "p95", "warps", "mean"), table, strict=True):
        columns.add(f"{prefix}sm.{name}", values, "f4")


def as_plain(line: LaunchLine) -> dict[str, Any]:
    """Return a launch as plain data for JSON."""
    return {**vars(line), "sms": list(line.sms), "sms_kept": list(line.sms_kept), "bins": BINS}
