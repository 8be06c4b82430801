"""From what the probes recorded, and the launches as they were sent out, to one trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.instrument import Decoded
from memlane.launch import Launch, Observation, Target
from memlane.measure.join import IntArray, match_by_time
from memlane.measure.observed import site_counts
from memlane.measure.probed import ProbedModule
from memlane.record import WARP_DTYPE, LaunchInfo, Site, SiteCounts, Trace, build_trace


@dataclass
class LaunchRecord:
    """One traced launch: how it was asked for, what carried the probes, and what the target saw of it by itself."""

    launch: Launch
    """The plain one."""
    probed: ProbedModule
    observation: Observation | None = None

    def observed(self, observation: Observation) -> None:
        """What the emulator reports when the launch has finished."""
        self.observation = observation


@dataclass(frozen=True)
class Grid:
    """One run of a launch on the device, as its warps reported it."""

    record: LaunchRecord
    warps: npt.NDArray[Any]
    """Rows of the decoded warps, and where they stand among them."""
    indices: npt.NDArray[Any]
    decoded: Decoded
    homeless: int = 0
    """Records of warps that found no slice in the buffer; nobody knows their launch, so the last run in it answers for them."""

    @property
    def began_ns(self) -> int:
        return int(self.warps["begin_ns"].min())


def assemble_trace(
    target: Target, scheme: str, records: Sequence[LaunchRecord], collected: Mapping[ProbedModule, Sequence[Decoded]]
) -> Trace:
    """The trace of all launches.

    Its launches are the runs on the device in the order in which they began: a graph that was started three times counts three times,
    one that was never started not at all.
    """
    grids: list[Grid] = []
    for probed, decodings in collected.items():
        mine = [record for record in records if record.probed is probed]
        grids += [grid for decoded in decodings for grid in _grids(decoded, mine, probed)]
    grids.sort(key=lambda grid: grid.began_ns)
    sites, first_site = _site_table(list(collected))
    parts = [_columns(number, grid, first_site[grid.record.probed]) for number, grid in enumerate(grids)]
    return build_trace(
        _concatenated([part.columns for part in parts]),
        sites=sites,
        launches=[_launch_info(number, grid, scheme, sites, first_site[grid.record.probed]) for number, grid in enumerate(grids)],
        warps=np.concatenate([part.warps for part in parts]) if parts else np.zeros(0, WARP_DTYPE),
        chip=target.chip.name,
        target=target.name,
        modelled=target.modelled,
        sources={name: text for probed in collected for name, text in probed.original.module.sources.items()},
    )


def _site_table(modules: Sequence[ProbedModule]) -> tuple[list[Site], dict[ProbedModule, int]]:
    """The sites of all modules under one numbering, and the number of the first of each module."""
    sites: list[Site] = []
    first: dict[ProbedModule, int] = {}
    for probed in modules:
        first[probed] = len(sites)
        sites += [replace(site, id=len(sites) + site.id) for site in probed.traced.sites]
    return sites, first


def _grids(decoded: Decoded, records: Sequence[LaunchRecord], probed: ProbedModule) -> list[Grid]:
    """The runs that the warps of one buffer belong to.

    `%gridid` tells launches apart and grows from launch to launch, but a graph that is started again uses the same ones again: then a
    warp of the same block comes a second time, later. So a run is a grid id and how often its warp came before.
    """
    warps = decoded.warps
    occurrence = _occurrences(warps)
    runs: list[Grid] = []
    for kernel in np.unique(warps["kernel"]):
        name = probed.traced.kernels[kernel]
        launches = [record for record in records if record.launch.kernel.name == name]
        of_kernel = warps["kernel"] == kernel
        for position, gridid in enumerate(np.unique(warps["gridid"][of_kernel])):
            record = launches[min(position, len(launches) - 1)]
            of_grid = of_kernel & (warps["gridid"] == gridid)
            for turn in range(int(occurrence[of_grid].max()) + 1):
                indices = np.flatnonzero(of_grid & (occurrence == turn))
                runs.append(Grid(record, warps[indices], indices, decoded))
    runs.sort(key=lambda run: run.began_ns)
    if runs:
        runs[-1] = replace(runs[-1], homeless=decoded.homeless_records)
    return runs


def _occurrences(warps: npt.NDArray[Any]) -> IntArray:
    """For each warp how many warps of the same grid id, block and number began before it."""
    order = np.lexsort((warps["begin_ns"], warps["warp"], warps["block"], warps["gridid"]))
    rows = warps[order]
    repeats = np.zeros(len(rows), np.int64)
    if len(rows) > 1:
        same = (
            (rows["gridid"][1:] == rows["gridid"][:-1])
            & (rows["block"][1:] == rows["block"][:-1])
            & (rows["warp"][1:] == rows["warp"][:-1])
        )
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        repeats = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    result = np.empty(len(rows), np.int64)
    result[order] = repeats
    return result


@dataclass(frozen=True)
class _Part:
    columns: dict[str, npt.NDArray[Any]]
    warps: npt.NDArray[Any]


def _columns(number: int, grid: Grid, first_site: int) -> _Part:
    """The rows of one run."""
    records = grid.decoded.records
    warp_of = np.full(len(grid.decoded.warps), -1, np.int64)
    warp_of[grid.indices] = np.arange(len(grid.indices))
    own = warp_of[records["slice"]] >= 0
    rows, warp = records[own], warp_of[records["slice"][own]]
    columns: dict[str, npt.NDArray[Any]] = {
        "launch": np.full(len(rows), number, np.int64),
        "site": rows["site"].astype(np.int64) + first_site,
        "block": grid.warps["block"][warp].astype(np.int64),
        "warp": grid.warps["warp"][warp].astype(np.int64),
        "sm": grid.warps["sm"][warp].astype(np.int64),
        "mask": rows["active_mask"],
        "start": rows["start"].astype(np.int64),
        "end": rows["end"].astype(np.int64),
    }
    columns["sectors"], columns["wavefronts"] = _transactions(grid.record, rows["site"].astype(np.int64), columns)
    warps = np.zeros(len(grid.warps), WARP_DTYPE)
    for name in WARP_DTYPE.names or ():
        if name != "launch":
            warps[name] = grid.warps[name]
    warps["launch"] = number
    return _Part(columns, warps)


def _transactions(record: LaunchRecord, site: IntArray, columns: Mapping[str, npt.NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Sectors and wavefronts of each row where the target saw the very access; -1 elsewhere."""
    unknown = np.full(len(site), -1, np.int64)
    if record.observation is None or record.observation.accesses is None:
        return unknown, unknown
    seen = record.observation.accesses
    sites = _sites_by_position(record)
    of_site = sites[np.minimum(seen["instruction"], len(sites) - 1)]
    seen, of_site = seen[of_site >= 0], of_site[of_site >= 0]
    n_sites, n_warps = len(record.probed.traced.sites), record.launch.warps_per_block
    match = match_by_time(
        (columns["block"] * n_warps + columns["warp"]) * n_sites + site,
        columns["start"],
        columns["end"],
        (seen["block"].astype(np.int64) * n_warps + seen["warp"]) * n_sites + of_site,
        seen["issue"],
    )
    is_shared = np.array([one.space == "shared" for one in record.probed.traced.sites])[site]
    found = match >= 0
    sectors = np.where(found & ~is_shared, seen["sectors"][match] if len(seen) else -1, -1)
    wavefronts = np.where(found & is_shared, seen["wavefronts"][match] if len(seen) else -1, -1)
    return sectors.astype(np.int64), wavefronts.astype(np.int64)


def _sites_by_position(record: LaunchRecord) -> IntArray:
    """By index of an instruction in the instrumented kernel: the number of the site whose access it is, or -1."""
    positions = record.probed.traced.positions.get(record.launch.kernel.name, {})
    table = np.full(max(positions.values(), default=0) + 2, -1, np.int64)
    for site, position in positions.items():
        table[position] = site
    return table


def _launch_info(number: int, grid: Grid, scheme: str, sites: Sequence[Site], first_site: int) -> LaunchInfo:
    launch = grid.record.launch
    counts: tuple[SiteCounts, ...] = ()
    if grid.record.observation is not None:
        positions = grid.record.probed.traced.positions.get(launch.kernel.name, {})
        counts = site_counts(grid.record.observation, {position: sites[first_site + site] for site, position in positions.items()})
    return LaunchInfo(
        id=number,
        kernel=launch.kernel.title,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        stream=launch.stream.number,
        arguments=tuple(argument.text for argument in launch.arguments),
        scheme=scheme,
        lost=int(grid.warps["lost"].sum()) + grid.homeless,
        counts=counts,
    )


def _concatenated(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    names = ("launch", "site", "block", "warp", "sm", "mask", "start", "end", "sectors", "wavefronts")
    return {name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, np.int64) for name in names}
