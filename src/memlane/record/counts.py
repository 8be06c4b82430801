"""Counts: what the accesses of a launch cost in transactions, by site."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.record.site import Site


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
    """32-byte sectors touched, summed over the requests."""
    ideal_sectors: int | None = None
    """Sectors that the distinct bytes would fill."""
    wavefronts: int | None = None
    """Shared memory: passes through the banks."""
    ideal_wavefronts: int | None = None

    @property
    def conflicts(self) -> int | None:
        """Wavefronts beyond the ideal: bank conflicts."""
        return None if self.wavefronts is None or self.ideal_wavefronts is None else self.wavefronts - self.ideal_wavefronts


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


@dataclass(frozen=True)
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
