"""Hold everything known about one kernel for the rules: transactions, times, residency and the chip's numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, SECTOR_BYTES, Chip, load
from memlane.errors import ChipError
from memlane.record import AccessExample, BranchCounts, Change, LaunchInfo, Site, SiteCounts, access_groups
from memlane.record.accesses import SAME as SAME

MIN_COMMON = 0.5
"""Minimum share of instructions that a predicted change and an access have in common, so that the prediction is about the access."""
Numbers = npt.NDArray[np.float64]

COUNTS, TIMES, BRANCHES, CALIBRATION, RESIDENCY, ORIGINS, WHOLE = (
    "transaction counts",
    "times",
    "counts of branches",
    "the measured latencies of the chip",
    "how many blocks fit on a multiprocessor",
    "where addresses come from",
    "all warps of the launch",
)
"""Kinds of evidence that a rule may require."""
HOW_TO_GET = {
    COUNTS: "record it with `memlane trace --counts`",
    TIMES: "record a trace (`memlane trace`) with a scheme that waits for the access, such as dependent",
    BRANCHES: "record it with `memlane trace --counts`",
    CALIBRATION: "measure them with `memlane lab latency`",
    RESIDENCY: "record a trace with this version of memlane",
    ORIGINS: "record a trace with this version of memlane",
    WHOLE: "trace the whole launch, without --every, --blocks, --warps, --sms or --executions",
}


@dataclass(frozen=True, eq=False)
class Rows:
    """The records of one kernel whose ends were read after completion or issue, one element per record."""

    site: npt.NDArray[np.int64]
    launch: npt.NDArray[np.int64]
    block: npt.NDArray[np.int64]
    warp: npt.NDArray[np.int64]
    sm: npt.NDArray[np.int64]
    lanes: npt.NDArray[np.int64]
    execution: npt.NDArray[np.int64]
    cycles: Numbers
    """Cycles from start to end minus the empty window of the scheme, at least 0."""
    weight: Numbers
    """Number of accesses of the launch that the record represents."""
    complete: npt.NDArray[np.bool_]
    """Whether the end was read after the access had completed."""
    end: npt.NDArray[np.int64]
    """Clock of the multiprocessor at the end."""

    def of(self, sites: Iterable[int], complete: bool | None = None) -> npt.NDArray[np.bool_]:
        """Return a mask of the records of these sites; `complete` restricts it to complete, or to incomplete, records."""
        chosen = np.isin(self.site, list(sites))
        return chosen if complete is None else chosen & (self.complete == complete)

    def placed(self, chosen: npt.NDArray[np.bool_], values: Numbers) -> Numbers:
        """Return a number for each record: `values` for the chosen ones in their order, 0 for all others."""
        found = np.zeros(len(self.site))
        found[chosen] = values
        return found

    def total(self, chosen: npt.NDArray[np.bool_] | None = None) -> float:
        """Return the weighted sum of the cycles."""
        cycles = self.cycles * self.weight
        return float(cycles.sum() if chosen is None else cycles[chosen].sum())


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything known about one kernel on one chip, over all its launches."""

    kernel: str
    """The kernel's title."""
    chip_name: str
    how: str
    """Source of the counts: `emulated` or `counted on the device`."""
    entries: tuple[SiteCounts, ...] = ()
    """Counts by site, one launch after the other."""
    branches: tuple[BranchCounts, ...] = ()
    launches: tuple[LaunchInfo, ...] = ()
    rows: Rows | None = None
    lives: npt.NDArray[Any] | None = None
    """Rows of the warps, in `WARP_DTYPE`."""
    barriers: npt.NDArray[Any] | None = None
    """Waits of the warps at barriers, in `BARRIER_DTYPE`; None unless known for all launches and all warps."""
    sites: tuple[Site, ...] = ()
    """Sites of the whole trace, indexed by the numbers in the rows."""
    sources: Mapping[str, str] = field(default_factory=dict)
    modelled: bool = True
    """Whether times come from the emulator's clock."""
    clock_mhz: float = 0.0
    examples: tuple[AccessExample, ...] = ()
    """Single accesses with the addresses of their lanes; none from a GPU."""

    @cached_property
    def chip(self) -> Chip | None:
        """The chip; None if no file describes it."""
        try:
            return load(self.chip_name)
        except ChipError:
            return None

    @cached_property
    def accesses(self) -> tuple[SiteCounts, ...]:
        """Counts of each access, over all launches, with the sites merged as in `sites_of_access`."""
        groups = dict.fromkeys(self._access_groups[number] for number in self.by_site)
        return tuple(reduce(SiteCounts.plus, [self.by_site[one] for one in group if one in self.by_site]) for group in groups)

    @cached_property
    def by_arrays(self) -> tuple[SiteCounts, ...]:
        """Counts of each place and array, over all launches: `y[i] = a * x[i] + y[i]` loads from two arrays at one place."""
        found: dict[Hashable, SiteCounts] = {}
        for entry in self.by_site.values():
            key = entry.site.place, entry.site.array, entry.site.address_parameters
            found[key] = found[key].plus(entry) if key in found else entry
        return tuple(found.values())

    @cached_property
    def _access_groups(self) -> Mapping[int, tuple[int, ...]]:
        """Index of each instruction -> indices of the instructions that form one access with it, itself included."""
        groups = access_groups(self.own_sites, self.by_site)
        return {number: tuple(group) for group in groups for number in group}

    @cached_property
    def own_accesses(self) -> tuple[Site, ...]:
        """First site of each access of the kernel, counted or not, in instruction order."""
        firsts = {group[0] for group in self._access_groups.values()}
        return tuple(one for one in self.own_sites if one.instruction in firsts)

    def sites_of_access(self, site: Site) -> tuple[Site, ...]:
        """Return the sites that form one access with `site`, itself included, in instruction order."""
        group = set(self._access_groups.get(site.instruction, (site.instruction,)))
        return tuple(one for one in self.own_sites if one.instruction in group)

    @cached_property
    def by_site(self) -> Mapping[int, SiteCounts]:
        """Index of the instruction -> its counts over all launches."""
        found: dict[int, SiteCounts] = {}
        for entry in self.entries:
            number = entry.site.instruction
            found[number] = found[number].plus(entry) if number in found else entry
        return found

    @cached_property
    def own_sites(self) -> tuple[Site, ...]:
        """Sites of the kernel, in instruction order, from the trace and from the counts."""
        known = {one.instruction: one for one in self.sites if one.kernel == self.kernel}
        known |= {entry.site.instruction: entry.site for entry in self.entries}
        return tuple(known[number] for number in sorted(known))

    @cached_property
    def sectors(self) -> int:
        """Sectors of global memory; those of local memory are estimates, so they are left out."""
        return sum(entry.sectors or 0 for entry in self.entries if entry.site.space != "local")

    @cached_property
    def wavefronts(self) -> int:
        return sum(entry.wavefronts or 0 for entry in self.entries)

    @cached_property
    def requests(self) -> int:
        return sum(entry.requests for entry in self.entries)

    @cached_property
    def life(self) -> float:
        """Summed lifetimes of the kernel's warps in cycles, scaled up to untraced warps; 0 if unknown."""
        if self.lives is None or not len(self.lives) or any(launch.failed for launch in self.launches):
            return 0.0
        weights = np.zeros(max(launch.id for launch in self.launches) + 1)
        for launch in self.launches:
            weights[launch.id] = 1.0 if launch.sample is None else launch.sample.weight
        lived = np.maximum(self.lives["end_cycles"] - self.lives["begin_cycles"], 0)
        return float((lived * weights[self.lives["launch"]]).sum())

    def launch_us(self, sites: Sequence[Site]) -> tuple[float, float] | None:
        """Return the predicted time of the launches, and how much shorter it would be with contiguous lanes at these sites, in us.

        Returns None unless all launches were predicted.
        """
        wanted = frozenset(one.instruction for one in sites)
        total = saved = 0.0
        for launch in self.launches:
            change = None if launch.predicted is None else _nearest_change(launch.predicted.changes, wanted)
            if launch.predicted is None or change is None:
                return None
            total += launch.predicted.us
            saved += launch.predicted.us - change.us
        return (total, max(0.0, saved)) if self.launches else None

    @property
    def memory_share(self) -> float:
        """Cycles in accesses, which the probe serialises, divided by the lifetimes; 0 to 0.99."""
        return 0.0 if self.rows is None or not self.life else min(self.rows.total() / self.life, 0.99)

    def worst_examples(self, site: Site) -> list[AccessExample]:
        """Return the worst recorded access of each site of the access that contains `site`; empty if no addresses were recorded."""
        numbers = set(self.numbers(site))
        return [one for one in self.examples if one.worst and one.site in numbers]

    def cycles(self, site: Site, complete: bool = True) -> Numbers:
        """Return net cycles of the complete (or issue-only) records of the access that contains `site`; empty if there are none."""
        if self.rows is None:
            return np.zeros(0)
        return self.rows.cycles[self.rows.of(self.numbers(site), complete)]

    def excess(self, site: Site, values: Numbers) -> Numbers:
        """Return a number for each record: `values` for the complete records of the access that contains `site`, as in `cycles`."""
        assert self.rows is not None
        return self.rows.placed(self.rows.of(self.numbers(site), complete=True), values)

    def numbers(self, site: Site) -> list[int]:
        """Return the site numbers, as in the rows, of the access that contains `site`."""
        group = set(self._access_groups.get(site.instruction, ()))
        return [one.id for one in self.sites if one.kernel == self.kernel and one.instruction in group]

    def lanes_of_warps(self) -> npt.NDArray[np.int64]:
        """Return the threads of each row's warp: fewer than 32 in blocks smaller than a warp, and in the last warp of others."""
        if self.rows is None or not self.launches:
            return np.zeros(0, np.int64)
        threads = np.full(max(launch.id for launch in self.launches) + 1, LANES)
        for launch in self.launches:
            threads[launch.id] = int(np.prod(launch.block))
        return np.clip(threads[self.rows.launch] - LANES * self.rows.warp, 1, LANES)

    def lanes_per_warp(self) -> int:
        """Return the threads of a block's first warp: fewer than 32 if all blocks are smaller than a warp."""
        return max((min(LANES, int(np.prod(launch.block))) for launch in self.launches), default=LANES)

    def rows_per_warp(self, nbytes: int) -> int:
        """Return the block rows that one warp covers, if accesses of `nbytes` per lane fill whole sectors in each row; else 1."""
        widths = {launch.block[0] for launch in self.launches if int(np.prod(launch.block[1:])) > 1}
        if len(widths) != 1 or not self.launches:
            return 1
        (width,) = widths
        return self.lanes_per_warp() // width if width < LANES and width * nbytes % SECTOR_BYTES == 0 else 1

    def has_narrow_rows(self) -> bool:
        """Return whether a warp covers several rows of its block, in any launch."""
        return any(launch.block[0] < LANES and int(np.prod(launch.block[1:])) > 1 for launch in self.launches)

    def row_bytes(self, nbytes: int) -> int | None:
        """Return the bytes accessed by one row of a block with `nbytes` per thread; None if blocks have one row, or rows of several
        lengths."""
        widths = {launch.block[0] for launch in self.launches if int(np.prod(launch.block[1:])) > 1}
        return nbytes * widths.pop() if len(widths) == 1 else None

    def warps_per_block(self) -> float:
        """Return the warps per block, on average over the launches."""
        return float(np.mean([launch.warps_per_block for launch in self.launches]))

    def resident_warps(self) -> tuple[float, bool] | None:
        """Return the resident warps per multiprocessor, on average over the launches, and whether blocks had to wait; None if unknown."""
        if self.chip is None or not self.launches:
            return None
        warps, waited = [], []
        for launch in self.launches:
            fits = _resident_blocks(launch)
            if not fits:
                return None
            blocks = int(np.prod(launch.grid))
            here = min(fits, -(-blocks // self.chip.sm_count))
            warps.append(here * launch.warps_per_block)
            waited.append(blocks > fits * self.chip.sm_count)
        return float(np.mean(warps)), all(waited)

    def array_sectors(self, site: Site) -> float | None:
        """Return the sectors of the arrays that a site's address may point into, in the largest launch; None if a size is unknown."""
        sizes = []
        for launch in self.launches:
            arrays = [one.nbytes for one in launch.arrays if one.parameter in site.address_parameters]
            if not any(arrays):
                return None
            sizes.append(sum(arrays) / SECTOR_BYTES)
        return max(sizes) if sizes else None

    def array_bytes(self) -> int:
        """Return the bytes of all arrays among the arguments, in the largest launch."""
        return max((sum(one.nbytes for one in launch.arrays) for launch in self.launches), default=0)

    def missing(self, need: str) -> bool:
        """Return whether something that a rule needs is unknown."""
        if need == COUNTS:
            return not self.entries
        if need == BRANCHES:
            return not self.entries or (not self.launches and not self.branches)
        if need == TIMES:
            return self.rows is None or not len(self.rows.site) or not self.life
        if need == CALIBRATION:
            return self.chip is None
        if need == RESIDENCY:
            return self.resident_warps() is None
        if need == ORIGINS:
            return not any(one.address_parameters or one.address_loads for one in self.own_sites)
        return any(launch.sample is not None for launch in self.launches)


def _nearest_change(changes: Sequence[Change], wanted: frozenset[int]) -> Change | None:
    """Return the change that is about these instructions: the one that has most in common with them, at least one of two."""

    def common(one: Change) -> float:
        return len(wanted & set(one.instructions)) / len(wanted | set(one.instructions))

    nearest = max(changes, key=common, default=None)
    return nearest if nearest is not None and common(nearest) >= MIN_COMMON else None


def _resident_blocks(launch: LaunchInfo) -> int | None:
    if launch.resident_blocks is None and launch.perturbation is not None and launch.perturbation.plain is not None:
        return launch.perturbation.plain.resident_blocks
    return launch.resident_blocks
