"""Which run of which launch the warps in a trace buffer belong to."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass
class LaunchRecord:
    """One traced launch: how it was asked for, what carried the probes, and what the target saw of its runs by itself.

    A launch in a graph runs as often as the graph is started, any other once.
    """

    launch: Launch
    """The plain one."""
    probed: ProbedModule
    tag: int
    """The number by which its warps name it, from 1."""
    observations: dict[int, Observation] = field(default_factory=dict)
    """Of runs that ended well, by the number of the grid; where the target observes."""
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
            self.observations[observation.grid] = observation

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


def grids_of(records: Sequence[LaunchRecord], decodings: Sequence[Decoded]) -> list[Grid]:
    """The runs that the warps in the buffers of one module belong to.

    A warp says of which launch it is by the tag that the host gave that, and of which run by the number of the grid. A graph that is
    started again may use the same number again: then a warp of the same block comes a second time, later. So a run is a tag, a grid, and
    how often its warp came before.

    Where launches run one by one, runs with warps that never left their kernel, and that are not known to have broken off, are left
    out. (On a GPU no launch survives a failed one, and such warps left from within a function that has no probes.)
    """
    by_tag = {record.tag: record for record in records}
    found: list[Grid] = []
    for decoded in decodings:
        for tag, gridid, warps in _slots(decoded):
            record = by_tag.get(tag)
            if record is None:
                continue  # nobody here sent it out
            if gridid in record.failures:
                found.append(Grid(record, None, decoded, warps, failure=record.failures[gridid]))
            elif not record.launch.kernel.target.observes:
                found.append(Grid(record, None, decoded, warps))
            elif gridid in record.observations and decoded.warps["end_cycles"][warps].all():
                found.append(Grid(record, record.observations[gridid], decoded, warps))
    for decoded in decodings:
        last = max((grid for grid in found if grid.decoded is decoded), key=lambda grid: grid.began, default=None)
        if last is not None and decoded.homeless_records:
            found[found.index(last)] = replace(last, homeless=decoded.homeless_records)
    return found


def _slots(decoded: Decoded) -> list[tuple[int, int, IntArray]]:
    """Tag, grid id and warps of each run in a buffer, in the order of the tags, the grid ids and their repetitions."""
    warps = decoded.warps
    if not len(warps):
        return []
    occurrence = _occurrences(warps)
    order = np.lexsort((np.arange(len(warps)), occurrence, warps["gridid"], warps["tag"]))
    keys = np.stack([warps["tag"].astype(np.int64), warps["gridid"].astype(np.int64), occurrence])[:, order]
    starts = np.flatnonzero(np.concatenate(([True], (keys[:, 1:] != keys[:, :-1]).any(axis=0))))
    parts = np.split(order, starts[1:])
    return [(int(warps["tag"][part[0]]), int(warps["gridid"][part[0]]), part) for part in parts]


def _occurrences(warps: npt.NDArray[Any]) -> IntArray:
    """For each warp how many warps of the same launch, grid id, block and number began before it."""
    names = ("tag", "gridid", "block", "warp")
    order = np.lexsort((warps["begin_ns"], *(warps[name] for name in reversed(names))))
    rows = warps[order]
    repeats = np.zeros(len(rows), np.int64)
    if len(rows) > 1:
        same = np.logical_and.reduce([rows[name][1:] == rows[name][:-1] for name in names])
        starts = np.flatnonzero(np.concatenate(([True], ~same)))
        repeats = np.arange(len(rows)) - np.repeat(starts, np.diff(np.append(starts, len(rows))))
    result = np.empty(len(rows), np.int64)
    result[order] = repeats
    return result
