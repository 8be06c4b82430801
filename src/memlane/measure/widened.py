"""Count the wide accesses that ptxas formed from several narrow ones, next to the narrow ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlane.instrument import Widened, site_table, widen
from memlane.launch import Launch, LoadedModule, Observation
from memlane.measure.judging import merged_sites
from memlane.measure.observed import site_counts
from memlane.measure.twin import Twin, load_twin, rebound_to
from memlane.ptx import once_for_each
from memlane.record import SiteCounts


@once_for_each
def widened_of(loaded: LoadedModule) -> Widened | None:
    """Return the module with wide loads added, made once; None if ptxas merged nothing that can be counted this way."""
    return widen(loaded.module, merged_sites(loaded))


@dataclass(frozen=True, eq=False)
class WidenedTwin:
    """Copy of a loaded module with wide loads added, for a target that observes."""

    widened: Widened
    twin: Twin

    def plain(self, launch: Launch, seen: Observation) -> tuple[Observation, tuple[SiteCounts, ...]]:
        """Return the observation that the original of `launch` would have given, and the counts of the wide accesses, from an observation
        of the copy."""
        name = launch.kernel.name
        before = self.twin.preceding[name]
        kept, wide = self.widened.kept[name], self.widened.wide.get(name, {})
        merged = site_counts(seen, {before + index: site for index, site in wide.items()})
        counts = {kept[index - before]: fields for index, fields in seen.counts.items() if index - before in kept}
        executed = seen.thread_instructions
        if executed is not None:
            threads = launch.block[0] * launch.block[1] * launch.block[2] * launch.blocks
            executed -= before * threads + sum(one.lanes for one in merged)
        return replace(seen, launch=launch, counts=counts, thread_instructions=executed), merged


@once_for_each
def widened_twin(loaded: LoadedModule) -> WidenedTwin | None:
    """Return the copy with wide loads, loaded once; None if there is nothing to widen."""
    widened = widened_of(loaded)
    return None if widened is None else WidenedTwin(widened, load_twin(loaded, rebound_to(loaded, widened.module)))


def split(loaded: LoadedModule, widened: Widened, kernel: str, counts: tuple[SiteCounts, ...]) -> tuple[tuple[SiteCounts, ...], ...]:
    """Split counts by the sites of the widened module into those of the original sites and those of the wide accesses."""
    originals = site_table(loaded.module).of_kernel[kernel]
    kept, wide = widened.kept[kernel], widened.wide.get(kernel, {})
    plain = tuple(replace(one, site=originals[kept[one.site.instruction]]) for one in counts if one.site.instruction not in wide)
    return plain, tuple(replace(one, site=wide[one.site.instruction]) for one in counts if one.site.instruction in wide)
