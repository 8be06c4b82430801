"""Count on a target that cannot observe, by kernels that reduce the addresses of their accesses themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memlane.instrument import COUNTERS, Counted, read_counters
from memlane.instrument import count as instrument
from memlane.launch import Launch, LoadedModule
from memlane.measure.merged_accesses import split_counts, with_merged_loads
from memlane.measure.twin import Twin, load_twin, rebound_to
from memlane.measure.verdicts import judge_of
from memlane.record import Counts, SiteCounts


@dataclass(frozen=True, eq=False)
class _CountingLaunch:
    """One counting launch and its counters."""

    number: int
    launch: Launch
    twin: Twin
    counters: int
    owner: object


class DeviceCounters:
    """Counting copies of one loaded module.

    Each launch gets a copy of its own, so that its counters are separate even if launches overlap or are captured in a graph (where every
    run adds to the same counters).
    """

    def __init__(self, loaded: LoadedModule, *, merged: bool = False) -> None:
        """`merged`: also count the wide accesses that ptxas formed from several sites."""
        self._loaded, self._target = loaded, loaded.target
        self._merged_loads = with_merged_loads(loaded) if merged else None
        module = loaded.module if self._merged_loads is None else self._merged_loads.module
        self._counted: Counted = instrument(module, loaded.target.chip)
        self._rebound = rebound_to(loaded, self._counted.module)
        self._launches: list[_CountingLaunch] = []

    def counting_launch(self, number: int, launch: Launch) -> Launch:
        """Return the launch that counts in place of `launch`, the `number`-th observed one."""
        twin = load_twin(self._loaded, self._rebound)
        twin.copy_constants()
        address, owner = self._target.allocate(max(8, self._counted.nbytes))
        self._target.clear(address, self._counted.nbytes)
        twin.set_pointer(COUNTERS, address)
        self._launches.append(_CountingLaunch(number, launch, twin, address, owner))
        return replace(launch, kernel=twin.loaded[launch.kernel.name])

    def collect(self) -> list[tuple[int, Counts]]:
        """Return the counts of each launch since the last call with its number, after all of them have finished. Later runs (of a graph)
        count nothing."""
        launches, self._launches = self._launches, []
        return [(one.number, self._counts(one)) for one in launches]

    def _counts(self, one: _CountingLaunch) -> Counts:
        """Read the counters of a launch."""
        counters = np.empty(self._counted.nbytes, np.uint8)
        one.twin.set_pointer(COUNTERS, 0)
        self._target.read(one.counters, counters)
        kernel = one.launch.kernel
        sites, branches = read_counters(self._counted, counters, kernel.title)
        merged: tuple[SiteCounts, ...] = ()
        if self._merged_loads is not None:
            sites, merged = split_counts(self._loaded, self._merged_loads, kernel.name, sites)
        return Counts(
            chip=self._target.chip.name,
            target=self._target.name,
            kernel=kernel.title,
            grid=one.launch.grid,
            block=one.launch.block,
            sites=sites,
            branches=branches,
            how="counted on the device",
            skipped=tuple(one for one in self._counted.skipped if kernel.title in one.kernels),
            judge=judge_of(self._loaded),
            merged=merged,
        )
