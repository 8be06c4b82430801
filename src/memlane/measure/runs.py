"""Which run of which launch the warps in a trace buffer belong to."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import MemlaneError
from memlane.instrument import Chosen, Decoded
from memlane.launch import Launch, Layers, Observation
from memlane.measure.join import IntArray
from memlane.measure.observed import summed_counts
from memlane.measure.probed import ProbedModule
from memlane.record import Counts, Perturbation

Extent = tuple[int, int]

_turns = itertools.count()
"""Numbers the runs of all launches on targets that observe, in the order in which they ended: there launches run one after another."""


@dataclass
class LaunchRecord:
    """One traced launch: how it was asked for, what carried the probes, and what the target saw of its runs by itself.

    A launch in a graph runs as often as the graph is started, any other once.
    """

    launch: Launch
    """The plain one."""
    probed: ProbedModule
    observations: list[tuple[int, Observation]] = field(default_factory=list)
    """With the turn at which each was made."""
    failures: dict[int, str] = field(default_factory=dict)
    """Runs that broke off, on a target that survives that: by the number of the grid what went wrong."""
    counted: Counts | None = None
    """From a counting launch, under the sites of the original module; where the target cannot observe."""
    times: Perturbation | None = None
    """From launches that were timed without probes and with them; where somebody asked."""

    def layers(self, max_accesses: int) -> Layers:
        """What the traced launch asks of a target that observes, for itself and for those who asked for something before."""
        theirs = self.launch.layers
        report = None if theirs.report is None else self._as_plain
        mine = Layers(counts=True, accesses=True, max_accesses=max_accesses, report=self._observed, failed=self._failed)
        return replace(theirs, report=report).merged(mine)

    def _observed(self, observation: Observation) -> None:
        """A run of the launch has finished. Of one that failed a target may tell only what the checker found."""
        if observation.accesses is not None:
            self.observations.append((next(_turns), observation))

    def _failed(self, number: int, error: MemlaneError) -> None:
        self.failures[number] = str(error).partition("\n")[0]

    def _as_plain(self, observation: Observation) -> None:
        """Tell the others what they would have seen of the plain launch, at the timed sites: other instructions are not what they were."""
        traced, places = self.probed.traced, self.probed.places(self.launch.kernel.name)
        summed = summed_counts(observation, places)
        counts = {traced.sites[site].instruction: fields for site, fields in summed.items()}
        assert self.launch.layers.report is not None
        self.launch.layers.report(Observation(self.launch, counts, reports=observation.reports, broke_off=observation.broke_off))

    @cached_property
    def chosen(self) -> Chosen:
        """What of the launch is traced."""
        return self.probed.chosen(self.launch)

    @property
    def extent(self) -> Extent:
        """Blocks of the grid and warps of a block, as far as they are traced."""
        return self.chosen.extent


@dataclass(frozen=True, eq=False)
class Grid:
    """One run of a launch on the device, as its warps reported it."""

    record: LaunchRecord
    observation: Observation | None
    decoded: Decoded
    warps: IntArray
    """Which of the decoded warps are of this run, in the order of the buffer."""
    homeless: int = 0
    """Records of warps that found no slice in the buffer; nobody knows their launch, so the last run in it answers for them."""
    failure: str = ""
    """What broke the run off."""

    @property
    def warp_rows(self) -> npt.NDArray[Any]:
        return self.decoded.warps[self.warps]

    @property
    def began(self) -> tuple[int, int]:
        """When the first warp began, and the number of the grid where two began at once."""
        rows = self.warp_rows
        return int(rows["begin_ns"].min()), int(rows["gridid"][0])


_Run = tuple[LaunchRecord, Observation | None]


def grids_of(records: Sequence[LaunchRecord], decodings: Sequence[Decoded], kernels: Sequence[str]) -> list[Grid]:
    """The runs that the warps in the buffers of one module belong to.

    `%gridid` tells launches apart and grows from launch to launch, but a graph that is started again may use the same ones again: then a
    warp of the same block comes a second time, later. So a run is a grid id and how often its warp came before.

    Where launches run one by one, those that broke off are known by their grid, and other runs with warps that never left their kernel are
    left out. (On a GPU no launch survives a failed one, and such warps left from within a function that has no probes.)
    """
    survive = any(record.launch.kernel.target.observes for record in records)
    failed = {
        (kernels.index(record.launch.kernel.name), number): (record, text) for record in records for number, text in record.failures.items()
    }
    found: list[Grid] = []
    slots = []
    for decoded in decodings:
        for slot in _slots(decoded):
            if slot[:2] in failed:
                record, text = failed[slot[:2]]
                found.append(Grid(record, None, decoded, slot[2], failure=text))
            elif not survive or decoded.warps["end_cycles"][slot[2]].all():
                slots.append((decoded, *slot))
    for index, kernel in enumerate(kernels):
        mine = [slot for slot in slots if slot[1] == index]
        extents = [(gridid, _extent(decoded, warps), decoded.homeless_warps > 0) for decoded, _, gridid, warps in mine]
        runs = _matched(extents, _runs(records, kernel)) if mine else []
        found += [Grid(*run, decoded, warps) for run, (decoded, _, _, warps) in zip(runs, mine, strict=True) if run is not None]
    for decoded in decodings:
        last = max((grid for grid in found if grid.decoded is decoded), key=lambda grid: grid.began, default=None)
        if last is not None and decoded.homeless_records:
            found[found.index(last)] = replace(last, homeless=decoded.homeless_records)
    return found


def _slots(decoded: Decoded) -> list[tuple[int, int, IntArray]]:
    """Index of the kernel, grid id and warps of each run in one buffer, by grid id and then by time."""
    warps = decoded.warps
    if not len(warps):
        return []
    occurrence = _occurrences(warps)
    order = np.lexsort((np.arange(len(warps)), occurrence, warps["gridid"], warps["kernel"]))
    keys = np.stack([warps["kernel"].astype(np.int64), warps["gridid"].astype(np.int64), occurrence])[:, order]
    bounds = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    return [
        (int(warps["kernel"][part[0]]), int(warps["gridid"][part[0]]), part)
        for part in map(np.asarray, np.split(order.astype(np.int64), bounds))
    ]


def _extent(decoded: Decoded, warps: IntArray) -> Extent:
    """Blocks and warps of a block, as far as they show."""
    rows = decoded.warps[warps]
    return int(rows["block"].max()) + 1, int(rows["warp"].max()) + 1


def _runs(records: Sequence[LaunchRecord], kernel: str) -> list[_Run]:
    """The runs of a kernel that are known of: one of each launch, or all where the target observed them; in their order."""
    mine = [record for record in records if record.launch.kernel.name == kernel and record.chosen.warps]
    if any(record.observations for record in mine):
        seen = sorted(((turn, record, one) for record in mine for turn, one in record.observations), key=lambda run: run[0])
        return [(record, observation) for _, record, observation in seen]
    return [(record, None) for record in mine]


def _matched(slots: Sequence[tuple[int, Extent, bool]], runs: Sequence[_Run]) -> list[_Run | None]:
    """The run of each slot, given its grid id, its extent, and whether warps of it may be missing; None where there is none.

    Grid ids ascend in the order of the launches, so slots and runs correspond in order, but there may be launches that never ran and
    started again those that did. So a slot goes to the next run of its extent; where none is left, to the last before; a grid id that
    came already, to the run that it went to.
    """
    by_extent = _by_extent({extent for _, extent, _ in slots}, [record for record, _ in runs])
    observed = any(observation is not None for _, observation in runs)
    chosen: dict[int, int] = {}
    result: list[_Run | None] = [None] * len(slots)
    following = 0
    for position in sorted(range(len(slots)), key=lambda position: slots[position][0]):
        gridid, extent, partial = slots[position]
        if gridid in chosen and not observed:
            result[position] = runs[chosen[gridid]]
            continue
        fitting = by_extent.get(extent, [])
        if not fitting and not partial:
            continue
        place = bisect_left(fitting, following)
        # Without a run of this extent (a grid whose warps did not all find a slice) the order alone decides.
        index = fitting[min(place, len(fitting) - 1)] if fitting else min(following, len(runs) - 1)
        chosen[gridid] = index
        following = index + 1
        result[position] = runs[index]
    return result


def _by_extent(extents: Set[Extent], records: Sequence[LaunchRecord]) -> dict[Extent, list[int]]:
    """The launches that a run of each extent may be of. Where SMs were chosen, nobody knows which warps came: it is as large at most."""
    found: dict[Extent, list[int]] = {extent: [] for extent in extents}
    for index, record in enumerate(records):
        if record.probed.sampling.sms:
            fitting = [extent for extent in extents if extent[0] <= record.extent[0] and extent[1] <= record.extent[1]]
        else:
            fitting = [record.extent] if record.extent in found else []
        for extent in fitting:
            found[extent].append(index)
    return found


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
