"""Count the wide accesses that ptxas formed from several narrow ones, next to the narrow ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlane.instrument import MergedLoads, add_merged_loads, site_table
from memlane.launch import Launch, LoadedModule, Observation
from memlane.measure.observed_counts import site_counts
from memlane.measure.twin import Twin, load_twin, rebound_to
from memlane.measure.verdicts import merged_sites
from memlane.ptx import once_for_each
from memlane.record import SiteCounts


@once_for_each
def with_merged_loads(loaded: LoadedModule) -> MergedLoads | None:
    """Return the module with wide loads added, made once; None if ptxas merged nothing that can be counted this way."""
    return add_merged_loads(loaded.module, merged_sites(loaded))


@dataclass(frozen=True, eq=False)
class MergedLoadsTwin:
    """Copy of a loaded module with wide loads added, for a target that observes."""

    merged_loads: MergedLoads
    twin: Twin

    def plain(self, launch: Launch, seen: Observation) -> tuple[Observation, tuple[SiteCounts, ...]]:
        """Return the observation that the original of `launch` would have given, and the counts of the wide accesses, from an observation
        of the copy."""
        name = launch.kernel.name
        before = self.twin.preceding[name]
        kept, wide = self.merged_loads.kept[name], self.merged_loads.wide.get(name, {})
        merged = site_counts(seen, {before + index: site for index, site in wide.items()})
        counts = {kept[index - before]: fields for index, fields in seen.counts.items() if index - before in kept}
        executed = seen.thread_instructions
        if executed is not None:
            threads = launch.block[0] * launch.block[1] * launch.block[2] * launch.blocks
            executed -= before * threads + sum(one.lanes for one in merged)
        return replace(seen, launch=launch, counts=counts, thread_instructions=executed), merged


@once_for_each
def merged_loads_twin(loaded: LoadedModule) -> MergedLoadsTwin | None:
    """Return the copy with wide loads, loaded once; None if ptxas merged nothing that can be counted this way."""
    merged_loads = with_merged_loads(loaded)
    return None if merged_loads is None else MergedLoadsTwin(merged_loads, load_twin(loaded, rebound_to(loaded, merged_loads.module)))


def split_counts(
    loaded: LoadedModule, merged_loads: MergedLoads, kernel: str, counts: tuple[SiteCounts, ...]
) -> tuple[tuple[SiteCounts, ...], ...]:
    """Split counts by the sites of the module with wide loads into those of the original sites and those of the wide accesses."""
    originals = site_table(loaded.module).of_kernel[kernel]
    kept, wide = merged_loads.kept[kernel], merged_loads.wide.get(kernel, {})
    plain = tuple(replace(one, site=originals[kept[one.site.instruction]]) for one in counts if one.site.instruction not in wide)
    return plain, tuple(replace(one, site=wide[one.site.instruction]) for one in counts if one.site.instruction in wide)
