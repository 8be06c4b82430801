"""Assemble one trace from the decoded records and the launches as they were issued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.instrument import Decoded
from memlane.launch import ACCESS_DTYPE, SPACE_NUMBERS, Launcher
from memlane.measure.examples import ObservedRun, chosen_examples
from memlane.measure.instrumented_module import InstrumentedModule
from memlane.measure.join import IntArray, match_by_time
from memlane.measure.launch_info import launch_info
from memlane.measure.observed_counts import branch_counts, counts_of_sites, summed_counts
from memlane.measure.perturbation import perturbation_of, resident_blocks_of
from memlane.measure.runs import Grid, LaunchRecord, grids_of
from memlane.measure.verdicts import sites_with_evidence
from memlane.record import (
    BARRIER_DTYPE,
    COMPLETE,
    WARP_DTYPE,
    AccessExample,
    BranchCounts,
    CopyInfo,
    LaunchInfo,
    Site,
    SiteCounts,
    Skipped,
    Trace,
    build_trace,
)

_GLOBAL, _SHARED, _NOWHERE = SPACE_NUMBERS["global"], SPACE_NUMBERS["shared"], 255
"""State space numbers in rows of accesses; the last one means no space."""


def assemble_trace(
    target: Launcher,
    scheme: str,
    records: Sequence[LaunchRecord],
    collected: Mapping[InstrumentedModule, Sequence[Decoded]],
    copies: Sequence[CopyInfo] = (),
) -> Trace:
    """Return the trace of all launches. `target`: the first target that they ran on, all of one kind; `copies`: the copies between
    launches.

    The launches of the trace are the runs on the device in the order in which they started: a graph that was launched three times counts
    three times, one that was never launched does not count.
    """
    grids: list[Grid] = []
    for probed, decodings in collected.items():
        grids += grids_of([record for record in records if record.probed is probed], decodings)
    grids.sort(key=lambda grid: grid.began)
    table = _SiteTable.of(grids)
    parts = [
        _columns(number, grid, rows, table.numbers[grid.record.probed])
        for number, (grid, rows) in enumerate(zip(grids, _rows_of(grids), strict=True))
    ]
    return build_trace(
        _concatenated([part.columns for part in parts]),
        sites=table.sites,
        launches=[_launch_info(number, grid, scheme, table) for number, grid in enumerate(grids)],
        warps=np.concatenate([part.warps for part in parts]) if parts else np.zeros(0, WARP_DTYPE),
        chip=target.chip.name,
        target=target.name,
        modelled=target.modelled,
        clock_mhz=target.chip.clock_mhz,
        driver=target.driver,
        skipped=_skipped(records),
        examples=_examples(grids, table),
        sources={name: text for probed in collected for name, text in probed.original.module.sources.items()},
        copies=copies,
        windows=_least_windows(parts),
        barriers=np.concatenate([_barriers(number, grid) for number, grid in enumerate(grids)] or [np.zeros(0, BARRIER_DTYPE)]),
    )


def _least_windows(parts: Sequence[_Part]) -> dict[str, float]:
    """Return by scheme the fewest cycles that its probes added in any run."""
    schemes = {scheme for part in parts for scheme in part.windows}
    return {scheme: min(part.windows[scheme] for part in parts if scheme in part.windows) for scheme in sorted(schemes)}


def _barriers(number: int, grid: Grid) -> npt.NDArray[Any]:
    """Return the waits of one run's warps at barriers of their blocks; no rows if they are not known."""
    seen = None if grid.observation is None else grid.observation.waits
    rows = np.zeros(0 if seen is None else len(seen), BARRIER_DTYPE)
    if seen is not None:
        rows["launch"] = number
        for name in ("block", "warp", "arrived", "opened"):
            rows[name] = seen[name]
    return rows


def _skipped(records: Sequence[LaunchRecord]) -> list[Skipped]:
    """Return the accesses of the launched kernels that cannot have a probe, even for kernels without any other access."""
    launched = {record.launch.kernel.title for record in records}
    # A module that was loaded twice counts once; equal entries of one module are two accesses of a line.
    modules = dict.fromkeys(record.probed.traced.skipped for record in records)
    return [one for skipped in modules for one in skipped if launched & set(one.kernels)]


def _examples(grids: Sequence[Grid], table: _SiteTable) -> list[AccessExample]:
    """Return the first and the worst access of each site, over all launches that the target observed."""
    runs = []
    for number, grid in enumerate(grids):
        if grid.observation is not None:
            numbers, places = table.numbers[grid.record.probed], grid.record.probed.places(grid.record.launch.kernel.name)
            sites = {instruction: int(numbers[site]) for site, instructions in places.items() for instruction in instructions}
            runs.append(ObservedRun(number, grid.observation, sites))
    return chosen_examples(runs)


@dataclass(frozen=True)
class _SiteTable:
    """The timed sites of all kernels that ran, under common numbers."""

    sites: list[Site]
    numbers: dict[InstrumentedModule, IntArray]
    """Number in `sites` of each site of a module, -1 for sites of kernels that did not run; by module."""

    @classmethod
    def of(cls, grids: Sequence[Grid]) -> _SiteTable:
        """Return the table of the kernels of these runs."""
        sites: list[Site] = []
        numbers: dict[InstrumentedModule, IntArray] = {}
        for probed, kernel in dict.fromkeys((grid.record.probed, grid.record.launch.kernel.name) for grid in grids):
            known = sites_with_evidence(probed)
            own = numbers.setdefault(probed, np.full(len(known), -1, np.int64))
            for site in sorted(probed.traced.positions.get(kernel, ())):
                if own[site] < 0:
                    own[site] = len(sites)
                    sites.append(replace(known[site], id=len(sites)))
        return cls(sites, numbers)


@dataclass(frozen=True)
class _Part:
    """Columns of the trace and warps of one run."""

    columns: dict[str, npt.NDArray[Any]]
    warps: npt.NDArray[Any]
    windows: Mapping[str, float]
    """Cycles that the probes of each scheme add to an access, if the target observed the accesses themselves."""


def _columns(number: int, grid: Grid, rows: npt.NDArray[Any], site_numbers: IntArray) -> _Part:
    """Return the columns and warps of one run, whose decoded records are at `rows`."""
    records = grid.decoded.records
    site = records["site"][rows].astype(np.int64)
    columns: dict[str, npt.NDArray[Any]] = {
        "launch": np.full(len(rows), number, np.uint32),
        "site": site_numbers[site].astype(np.int32),
        **{name: records[name][rows] for name in ("block", "warp", "sm", "start", "end")},
        "mask": records["active_mask"][rows],
    }
    if grid.record.probed.sampling.executions is not None:
        columns["execution"] = records["execution"][rows]
    traced = grid.record.probed.traced
    told = np.zeros(len(traced.sites), bool)
    told[[number for found in traced.probes.values() for number, probe in found.items() if probe.window_ends]] = True
    columns["exposed"] = np.where(told[site], records["exposed"][rows].astype(np.int64), -1)
    seen = _observed_accesses(grid, site, columns)
    columns["sectors"], columns["wavefronts"] = _transactions(seen, len(site))
    mine = grid.warp_rows
    warps = np.zeros(len(mine), WARP_DTYPE)
    for name in WARP_DTYPE.names or ():
        if name != "launch":
            warps[name] = mine[name]
    warps["launch"] = number
    return _Part(columns, warps, _windows(seen, site, columns, traced.sites, told))


def _rows_of(grids: Sequence[Grid]) -> list[IntArray]:
    """Return for each run the indices of its records in its buffer."""
    rows: list[IntArray] = [np.zeros(0, np.int64)] * len(grids)
    by_buffer: dict[int, list[int]] = {}
    for number, grid in enumerate(grids):
        by_buffer.setdefault(id(grid.decoded), []).append(number)
    for numbers in by_buffer.values():
        decoded = grids[numbers[0]].decoded
        grid_of_warp = np.full(len(decoded.warps), len(numbers), np.int64)  # Warps of failed runs come last.
        for place, number in enumerate(numbers):
            grid_of_warp[grids[number].warps] = place
        grid_of_record = grid_of_warp[decoded.records["slice"]]
        order = np.argsort(grid_of_record, kind="stable")
        bounds = np.searchsorted(grid_of_record[order], np.arange(len(numbers) + 1))
        for place, number in enumerate(numbers):
            rows[number] = order[bounds[place] : bounds[place + 1]]
    return rows


def _observed_accesses(grid: Grid, site: IntArray, columns: Mapping[str, npt.NDArray[Any]]) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return for each row the index of the access that the target observed within it, -1 for none, and these accesses."""
    nothing = np.full(len(site), -1, np.int64), np.zeros(0, ACCESS_DTYPE)
    if grid.observation is None or grid.observation.accesses is None or not len(grid.observation.accesses):
        return nothing
    record, seen = grid.record, grid.observation.accesses
    sites = _sites_by_position(record)
    seen = seen[seen["instruction"] < len(sites)]  # Instructions of called functions follow those of the kernel.
    of_site = sites[seen["instruction"]]
    copies = np.array([one.kind == "copy" for one in record.probed.traced.sites], bool)
    # The stores of a copy to shared memory are observed later than its loads, and would match its next execution.
    mine = (of_site >= 0) & ~(copies[of_site] & (seen["space"] == _SHARED))
    seen, of_site = seen[mine], of_site[mine]
    if not len(seen):
        return nothing
    n_sites, n_warps = len(record.probed.traced.sites), record.launch.warps_per_block
    match = match_by_time(
        (columns["block"].astype(np.int64) * n_warps + columns["warp"]) * n_sites + site,
        columns["start"],
        columns["end"],
        (seen["block"].astype(np.int64) * n_warps + seen["warp"]) * n_sites + of_site,
        seen["issue"],
    )
    return match, seen


def _transactions(observed: tuple[IntArray, npt.NDArray[Any]], rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return sectors and wavefronts of each row whose access the target observed; -1 elsewhere."""
    match, seen = observed
    if not len(seen):
        unknown = np.full(rows, -1, np.int32)
        return unknown, unknown
    # The state space that the access led to, which the site of a generic address does not give.
    space = np.where(match >= 0, seen["space"][match], _NOWHERE)
    sectors = np.where(space == _GLOBAL, seen["sectors"][match].astype(np.int64), -1)
    wavefronts = np.where(space == _SHARED, seen["wavefronts"][match].astype(np.int64), -1)
    return sectors, wavefronts


def _windows(
    observed: tuple[IntArray, npt.NDArray[Any]],
    site: IntArray,
    columns: Mapping[str, npt.NDArray[Any]],
    sites: Sequence[Site],
    later: npt.NDArray[np.bool_],
) -> dict[str, float]:
    """Return by scheme the fewest cycles by which a record is longer than its access, where both are known.

    `later`: whether the records of each site end at the first use of the value.
    """
    match, seen = observed
    found: dict[str, float] = {}
    if not len(seen):
        return found
    longer = columns["end"] - columns["start"] - (seen["complete"] - seen["issue"])[match]
    least = np.full(len(sites), np.inf)
    np.minimum.at(least, site[match >= 0], longer[match >= 0])
    for number in np.flatnonzero(np.isfinite(least)).tolist():
        one = sites[number]
        if one.completeness == COMPLETE and one.kind == "load" and not later[number]:
            found[one.scheme] = min(found.get(one.scheme, np.inf), float(least[number]))
    return {scheme: cycles for scheme, cycles in found.items() if cycles > 0}


def _sites_by_position(record: LaunchRecord) -> IntArray:
    """Return the site number of each instruction of the instrumented kernel, -1 for instructions without a site."""
    positions = record.probed.traced.positions.get(record.launch.kernel.name, {})
    table = np.full(max(positions.values(), default=-1) + 1, -1, np.int64)
    for site, position in positions.items():
        table[position] = site
    return table


def _launch_info(number: int, grid: Grid, scheme: str, table: _SiteTable) -> LaunchInfo:
    """Return what the trace records of one run of a launch."""
    launch = grid.record.launch
    numbers = table.numbers[grid.record.probed]
    counts: tuple[SiteCounts, ...] = ()
    branches: tuple[BranchCounts, ...] = ()
    if grid.observation is not None:
        places = grid.record.probed.places(launch.kernel.name)
        counts = counts_of_sites(summed_counts(grid.observation, places), {site: table.sites[numbers[site]] for site in places})
        branches = branch_counts(grid.observation, launch.kernel)
    elif grid.record.counted is not None:
        found = grid.record.counted
        counts = tuple(replace(one, site=table.sites[numbers[one.site.id]]) for one in found.sites if numbers[one.site.id] >= 0)
        branches = found.branches
    resident, unknown = resident_blocks_of(launch)
    return replace(
        launch_info(number, launch, scheme),
        lost=int(grid.warp_rows["lost"].sum()) + grid.dropped_without_slice,
        counts=counts,
        branches=branches,
        sample=grid.record.probed.sampling.sample(grid.record.chosen),
        accesses_not_kept=0 if grid.observation is None else grid.observation.accesses_not_kept,
        perturbation=perturbation_of(launch, grid.record.probed, grid.record.times),
        failed=grid.failure,
        staging=replace(grid.record.probed.staging(launch), unknown=unknown),
        resident_blocks=resident,
        has_barriers=grid.observation is not None and grid.observation.waits is not None,
        time=None if grid.observation is None else grid.observation.time,
    )


_NAMES = ("launch", "site", "block", "warp", "sm", "mask", "start", "end", "exposed", "sectors", "wavefronts")


def _concatenated(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of all parts, concatenated."""
    if len(parts) == 1:
        return dict(parts[0])
    names = parts[0] if parts else _NAMES  # All parts have the same columns.
    return {name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, np.int64) for name in names}
