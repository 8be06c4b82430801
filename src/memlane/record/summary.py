"""Summarise a trace by source line and operation: transactions and times of its accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.record.counts import SiteCounts, total_by_place
from memlane.record.site import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE, Place
from memlane.record.trace import Trace


@dataclass(frozen=True)
class LineSummary:
    """Accesses of one operation on one source line of one kernel, over all launches of the trace. None means unknown.

    Cycles are `end - start` as recorded, without subtracting the empty window of the scheme. Percentiles are nearest-rank: each is a time
    that occurred.
    """

    kernel: str
    file: str
    line: int
    op: str
    space: str
    accesses: int
    """Recorded accesses."""
    accesses_estimated: int
    """Estimated accesses of all warps in the window of the trace, by the weights of the launches; equal to `accesses` if no warp was left
    out."""
    complete: int
    """Accesses whose end was read after completion; the others' ends were read at issue."""
    lost: int
    """Dropped records of this kernel, at any line."""
    requests: int | None
    """Counted accesses, if transactions were counted with the trace."""
    sectors_per_request: float | None
    ideal_sectors_per_request: float | None
    wavefronts_per_request: float | None
    ideal_wavefronts_per_request: float | None
    cycles_p50: int | None
    cycles_p95: int | None
    cycles_p99: int | None
    cycles_max: int | None
    cycles_mean: float | None
    lifetime_share: float | None
    """Sum of these cycles divided by the sum of the lifetimes of all warps of the kernel, 0 to 1. Serialised by the probe, which waits for
    each access: without it several would overlap. For accesses whose exposed cycles are known, only these count: the warp was stalled for
    them."""
    exposed_p50: int | None = None
    """Cycles that the first consumer of the value waited. None here and in the next fields if no record has them."""
    exposed_mean: float | None = None
    hidden_p50: int | None = None
    """Remaining cycles: the access was in flight while the warp did other work."""
    exposed_share: float | None = None
    """Sum of the exposed cycles divided by the sum of the cycles of the same accesses, 0 to 1."""
    visible: int = 0
    """Stores whose end was read when other threads could see them."""

    @property
    def issue_only(self) -> int:
        """Accesses whose end was read at issue."""
        return self.accesses - self.complete - self.visible


def summarise(trace: Trace) -> list[LineSummary]:
    """Return one entry per kernel, source line, op and space with a site in the trace or its counts, ordered by kernel as launched, file
    and line."""
    places = _ordered_places(trace)
    index = {place: number for number, place in enumerate(places)}
    rows = _Rows(trace, np.array([index[site.place] for site in trace.sites], np.intp), len(places))
    counts = total_by_place(entry for launch in trace.launches for entry in launch.counts)
    lifetimes = _lifetimes(trace)
    lost = {launch.kernel: 0 for launch in trace.launches}
    for launch in trace.launches:
        lost[launch.kernel] += launch.lost
    return [
        _summary(place, rows, number, counts.get(place), lifetimes.get(place[0], 0), lost.get(place[0], 0))
        for number, place in enumerate(places)
    ]


def _ordered_places(trace: Trace) -> list[Place]:
    """Return the places of all sites, ordered by kernel as launched, then by file, line and instruction."""
    sites = [*trace.sites, *(counts.site for launch in trace.launches for counts in launch.counts)]
    first: dict[Place, int] = {}
    for site in sites:
        first[site.place] = min(site.instruction, first.get(site.place, site.instruction))
    turn = {kernel: number for number, kernel in enumerate(dict.fromkeys(launch.kernel for launch in trace.launches))}
    return sorted(first, key=lambda place: (turn.get(place[0], len(turn)), place[:3], first[place]))


class _Rows:
    """Statistics of the access rows by group; `group_of_site` maps each site to its group."""

    def __init__(self, trace: Trace, group_of_site: npt.NDArray[np.intp], groups: int) -> None:
        table = trace.table
        site = table["site"].to_numpy()
        self._group = group_of_site[site]
        self._groups = groups
        self.accesses = np.bincount(self._group, minlength=groups)
        weights = np.array([1.0 if launch.sample is None else launch.sample.weight for launch in trace.launches])
        self.estimated = self._sum(weights[table["launch"].to_numpy()])
        is_complete = np.array([entry.completeness == COMPLETE for entry in trace.sites], bool)
        self.complete = np.bincount(self._group[is_complete[site]], minlength=groups)
        is_visible = np.array([entry.completeness in (BLOCK_VISIBLE, DEVICE_VISIBLE) for entry in trace.sites], bool)
        self.visible = np.bincount(self._group[is_visible[site]], minlength=groups)
        cycles = table["end"].to_numpy() - table["start"].to_numpy()
        self.cycles = self._sum(cycles)
        self._cycles = _Sorted(cycles, self._group, groups)
        self._means = {}
        told = table["exposed"].is_valid().to_numpy()
        exposed = table["exposed"].fill_null(0).to_numpy().astype(np.int64)
        self.waited = self._sum(np.where(told, exposed, cycles))
        self.exposed, self.told = self._sum(exposed), self._sum(told)
        self.cycles_told = self._sum(np.where(told, cycles, 0))
        self._exposed = _Sorted(exposed[told], self._group[told], groups)
        self._hidden = _Sorted((cycles - exposed)[told], self._group[told], groups)
        for name in ("sectors", "wavefronts"):
            known = table[name].is_valid().to_numpy()
            total, count = self._sum(table[name].fill_null(0).to_numpy()), self._sum(known)
            self._means[name] = total, count

    def _sum(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        return np.asarray(np.bincount(self._group, values, self._groups), np.float64)

    def percentile(self, group: int, fraction: float) -> int | None:
        """Return the nearest-rank percentile of the cycles of a group."""
        return self._cycles.percentile(group, fraction)

    def exposed_and_hidden(self, group: int) -> tuple[int | None, int | None]:
        """Return the medians of the exposed and of the remaining cycles of a group."""
        return self._exposed.percentile(group, 0.5), self._hidden.percentile(group, 0.5)

    def mean_cycles(self, group: int) -> float | None:
        """Return the mean of the cycles of a group."""
        return _ratio(float(self.cycles[group]), int(self.accesses[group]))

    def mean(self, group: int, name: str) -> float | None:
        """Return the mean of the known `sectors` or `wavefronts` of a group."""
        total, count = self._means[name]
        return _ratio(float(total[group]), int(count[group]))


class _Sorted:
    """Values by group, ascending."""

    def __init__(self, values: npt.NDArray[np.int64], group: npt.NDArray[np.intp], groups: int) -> None:
        self._values = values[np.lexsort((values, group))]
        self._counts = np.bincount(group, minlength=groups)
        self._firsts = np.cumsum(self._counts) - self._counts

    def percentile(self, group: int, fraction: float) -> int | None:
        """Return the nearest-rank percentile of a group; None for an empty group."""
        count = int(self._counts[group])
        if count == 0:
            return None
        rank = max(1, int(np.ceil(fraction * count)))
        return int(self._values[self._firsts[group] + rank - 1])


def _lifetimes(trace: Trace) -> dict[str, int]:
    """Return the summed lifetimes of the warps of each kernel in cycles; 0 for a kernel with a failed launch, where some ends are
    missing."""
    warps = trace.warps
    by_launch = np.zeros(len(trace.launches), np.int64)
    # A warp whose end is unknown counts as 0.
    np.add.at(by_launch, warps["launch"], np.maximum(warps["end_cycles"] - warps["begin_cycles"], 0))
    lifetimes: dict[str, int] = {}
    for launch, cycles in zip(trace.launches, by_launch, strict=True):
        lifetimes[launch.kernel] = lifetimes.get(launch.kernel, 0) + int(cycles)
    return lifetimes | {launch.kernel: 0 for launch in trace.launches if launch.failed}


def _summary(place: Place, rows: _Rows, group: int, counts: SiteCounts | None, lifetime: int, lost: int) -> LineSummary:
    """Return the summary of one place."""
    kernel, file, line, op, space = place
    accesses = int(rows.accesses[group])
    requests = None if counts is None else counts.requests
    exposed, hidden = rows.exposed_and_hidden(group)
    return LineSummary(
        kernel=kernel,
        file=file,
        line=line,
        op=op,
        space=space,
        accesses=accesses,
        accesses_estimated=round(float(rows.estimated[group])),
        complete=int(rows.complete[group]),
        lost=lost,
        requests=requests,
        sectors_per_request=rows.mean(group, "sectors") if counts is None else _ratio(counts.sectors, requests),
        ideal_sectors_per_request=None if counts is None else _ratio(counts.ideal_sectors, requests),
        wavefronts_per_request=rows.mean(group, "wavefronts") if counts is None else _ratio(counts.wavefronts, requests),
        ideal_wavefronts_per_request=None if counts is None else _ratio(counts.ideal_wavefronts, requests),
        cycles_p50=rows.percentile(group, 0.50),
        cycles_p95=rows.percentile(group, 0.95),
        cycles_p99=rows.percentile(group, 0.99),
        cycles_max=rows.percentile(group, 1.0),
        cycles_mean=rows.mean_cycles(group),
        lifetime_share=_ratio(float(rows.waited[group]), lifetime) if accesses else None,
        exposed_p50=exposed,
        exposed_mean=_ratio(float(rows.exposed[group]), int(rows.told[group])),
        hidden_p50=hidden,
        exposed_share=_ratio(float(rows.exposed[group]), int(rows.cycles_told[group])),
        visible=int(rows.visible[group]),
    )


def _ratio(total: float | None, count: int | None) -> float | None:
    """Return a quotient; None if either is unknown or the count is 0."""
    return None if total is None or not count else total / count
