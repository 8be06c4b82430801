"""Assign the warps in a trace buffer to runs of launches."""

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
from memlane.measure.instrumented_module import InstrumentedModule
from memlane.measure.join import IntArray
from memlane.measure.observed_counts import summed_counts
from memlane.record import Counts, Perturbation

Extent = tuple[int, int]


@dataclass
class LaunchRecord:
    """One traced launch: the plain launch, the instrumented module, and what the target observed of its runs.

    A launch in a graph runs as often as the graph is launched, any other once.
    """

    launch: Launch
    """The plain launch."""
    probed: InstrumentedModule
    tag: int
    """Number by which its warps identify it, from 1."""
    observations: dict[int, Observation] = field(default_factory=dict)
    """Observations of runs that succeeded, by grid number; empty on targets that do not observe."""
    failures: dict[int, str] = field(default_factory=dict)
    """Reasons of runs that broke off, by grid number, on a target that survives that."""
    counted: Counts | None = None
    """Counts from a counting launch, by the sites of the original module; None on targets that observe."""
    times: Perturbation | None = None
    """Times without and with probes; None unless requested."""

    def layers(self, max_accesses: int) -> Layers:
        """Return the layers that the traced launch requests from a target that observes, for itself and for earlier observers."""
        theirs = self.launch.layers
        report = None if theirs.report is None else self._as_plain
        mine = Layers(counts=True, accesses=True, max_accesses=max_accesses, report=self._observed, failed=self._failed)
        return replace(theirs, report=report).merged(mine)

    def _observed(self, observation: Observation) -> None:
        """Keep the observation of a finished run. For a failed run a target may give only the checker's reports."""
        if observation.accesses is not None:
            self.observations[observation.grid] = observation

    def _failed(self, number: int, error: MemlaneError) -> None:
        """Keep the reason why a run broke off."""
        self.failures[number] = str(error).partition("\n")[0]

    def _as_plain(self, observation: Observation) -> None:
        """Report to earlier observers the observation of the plain launch at the timed sites; counts of other instructions are not those of
        the plain launch."""
        traced, places = self.probed.traced, self.probed.places(self.launch.kernel.name)
        summed = summed_counts(observation, places)
        counts = {traced.sites[site].instruction: fields for site, fields in summed.items()}
        assert self.launch.layers.report is not None
        self.launch.layers.report(Observation(self.launch, counts, reports=observation.reports, broke_off=observation.broke_off))

    @cached_property
    def chosen(self) -> Chosen:
        """Which part of the launch is traced."""
        return self.probed.chosen(self.launch)

    @property
    def extent(self) -> Extent:
        """Traced blocks of the grid and traced warps per block, as upper bounds."""
        return self.chosen.extent


@dataclass(frozen=True, eq=False)
class Grid:
    """One run of a launch on the device, as reported by its warps."""

    record: LaunchRecord
    observation: Observation | None
    decoded: Decoded
    warps: IntArray
    """Indices of the decoded warps of this run, in the order of the buffer."""
    dropped_without_slice: int = 0
    """Records dropped by warps that found no slice in the buffer. Their launch is unknown, so the last run in the buffer reports them."""
    failure: str = ""
    """Reason why the run broke off; empty if it did not."""

    @property
    def warp_rows(self) -> npt.NDArray[Any]:
        """Rows of the decoded warps of this run."""
        return self.decoded.warps[self.warps]

    @property
    def began(self) -> tuple[int, int]:
        """Time at which the first warp began, and the grid number to order runs that began at the same time."""
        rows = self.warp_rows
        return int(rows["begin_ns"].min()), int(rows["gridid"][0])


def grids_of(records: Sequence[LaunchRecord], decodings: Sequence[Decoded]) -> list[Grid]:
    """Return the runs that the warps in the buffers of one module belong to.

    A warp stores the tag that the host gave its launch and the grid number of its run. A graph that is launched again may reuse the grid
    number: then a warp of the same block appears a second time, later. So a run is identified by tag, grid number and the number of earlier
    appearances of its warps.

    On targets that run launches one at a time, runs with warps that never exited, and that are not known to have broken off, are left out.
    (On a GPU no launch survives a failed one, and such warps exited inside a function without probes.)
    """
    by_tag = {record.tag: record for record in records}
    found: list[Grid] = []
    for decoded in decodings:
        for tag, gridid, warps in _slots(decoded):
            record = by_tag.get(tag)
            if record is None:
                continue  # not a launch of this tracer
            if gridid in record.failures:
                found.append(Grid(record, None, decoded, warps, failure=record.failures[gridid]))
            elif not record.launch.kernel.target.observes:
                found.append(Grid(record, None, decoded, warps))
            elif gridid in record.observations and decoded.warps["end_cycles"][warps].all():
                found.append(Grid(record, record.observations[gridid], decoded, warps))
    for decoded in decodings:
        last = max((grid for grid in found if grid.decoded is decoded), key=lambda grid: grid.began, default=None)
        if last is not None and decoded.dropped_without_slice:
            found[found.index(last)] = replace(last, dropped_without_slice=decoded.dropped_without_slice)
    return found


def _slots(decoded: Decoded) -> list[tuple[int, int, IntArray]]:
    """Return tag, grid number and warps of each run in a buffer, ordered by tag, grid number and repetition."""
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
    """Return for each warp how many warps of the same launch, grid number, block and warp number began before it."""
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
