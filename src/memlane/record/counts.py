"""Counts: what the accesses of a launch cost in transactions, by site."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memlane.record.site import Place, Site, Skipped, kernel_label

SECTOR_BYTES = 32


@dataclass(frozen=True)
class SiteCounts:
    """The transactions of one site, summed over a launch. None where the count has no meaning for the space of the site."""

    site: Site
    requests: int
    """Executions by a warp with at least one active lane."""
    lanes: int
    """Active lanes, summed over the requests."""
    bytes: int
    """Bytes that the lanes asked for."""
    sectors: int | None = None
    """Sectors of `SECTOR_BYTES` touched, summed over the requests."""
    ideal_sectors: int | None = None
    """Sectors that the distinct bytes would fill."""
    wavefronts: int | None = None
    """Shared memory: passes through the banks."""
    ideal_wavefronts: int | None = None
    """Wavefronts that the distinct bytes would need if no two lanes met in a bank."""

    @property
    def conflicts(self) -> int | None:
        """Wavefronts beyond the ideal: bank conflicts."""
        return None if self.wavefronts is None or self.ideal_wavefronts is None else self.wavefronts - self.ideal_wavefronts

    def plus(self, other: SiteCounts) -> SiteCounts:
        """Both together, under the site of the first: another launch, or another site of the same source line."""
        return SiteCounts(
            site=self.site,
            requests=self.requests + other.requests,
            lanes=self.lanes + other.lanes,
            bytes=self.bytes + other.bytes,
            sectors=_both(self.sectors, other.sectors),
            ideal_sectors=_both(self.ideal_sectors, other.ideal_sectors),
            wavefronts=_both(self.wavefronts, other.wavefronts),
            ideal_wavefronts=_both(self.ideal_wavefronts, other.ideal_wavefronts),
        )


def total_by_place(counts: Iterable[SiteCounts]) -> dict[Place, SiteCounts]:
    """The counts of each place, summed over its sites (an unrolled loop has several) and over launches."""
    totals: dict[Place, SiteCounts] = {}
    for entry in counts:
        place = entry.site.place
        totals[place] = totals[place].plus(entry) if place in totals else entry
    return totals


def _both(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


@dataclass(frozen=True)
class BranchCounts:
    """One branch instruction, summed over a launch, at the level of PTX (the assembler may predicate it away)."""

    kernel: str
    file: str
    line: int
    executions: int
    """By a warp."""
    divergent: int
    """Executions whose active lanes went two ways."""


@dataclass(frozen=True, repr=False)
class Counts:
    """What one launch cost. `how` says where the numbers come from: `emulated`, or `counted on the device`."""

    chip: str
    target: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sites: tuple[SiteCounts, ...]
    branches: tuple[BranchCounts, ...] = ()
    how: str = "emulated"
    thread_instructions: int | None = None
    """PTX instructions executed by active lanes; only the emulator knows."""
    skipped: tuple[Skipped, ...] = ()
    """Accesses of the kernel that are no sites, so that nothing here tells of them."""

    def __repr__(self) -> str:
        return f"<Counts: {self}>"

    def __str__(self) -> str:
        """What it holds, in one line; `memlane.report.render_counts` gives the table."""
        totals = [("requests", sum(entry.requests for entry in self.sites))]
        totals += [("sectors", sum(entry.sectors or 0 for entry in self.sites)), ("wavefronts", sum(e.wavefronts or 0 for e in self.sites))]
        counted = ", ".join(f"{name}: {total:,}" for name, total in totals)
        return f"{kernel_label(self.kernel)}; sites: {len(self.sites)}; {counted}; {self.how}, by the rules of {self.chip} ({self.target})"
