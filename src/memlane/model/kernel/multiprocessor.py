"""Compute the time of the multiprocessors by themselves, as the clock layer simulates them warp by warp.

An in-order scoreboard per warp, issue slots and pipes of each scheduler, passes of the load-store unit and arrivals at barriers give the
cycle in which each block ends. If only some blocks ran, the others follow at the pace of those in the middle of the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from memlane.chip import Chip, Events

WINDOWS = 4
"""Windows of a sample's run whose paces are compared."""


@dataclass(frozen=True)
class Part:
    """The load of one part of the chip by a launch."""

    name: str
    cycles: float
    moved: str = ""
    """Work done, in words."""


@dataclass(frozen=True)
class Sampled:
    """Events of a launch, or of a sample of its blocks, with warm caches."""

    events: Events
    dram_scale: float = 1.0
    """DRAM traffic of the whole launch divided by that of the sample: lines that many blocks use are fetched once."""

    @property
    def scale(self) -> float:
        """Blocks of the grid divided by sampled blocks."""
        return 1 / self.events.fraction

    @property
    def is_whole(self) -> bool:
        return len(self.events.finishes) == self.events.blocks


def whole_cycles(chip: Chip, events: Events) -> tuple[float, float]:
    """Return the extrapolated cycles of the whole grid, and their spread over windows of the sample (0 if all blocks ran)."""
    finishes = events.finishes
    each = events.blocks / chip.sm_count - len(finishes) / events.sms
    if len(finishes) < 2 * WINDOWS or each < 0.5:
        return float(events.cycles), 0.0
    marks = [len(finishes) // 4 + number * (len(finishes) // 2) // WINDOWS for number in range(WINDOWS + 1)]
    paces = [(int(finishes[last]) - int(finishes[first])) / ((last - first) / events.sms) for first, last in pairwise(marks)]
    return events.cycles + statistics.fmean(paces) * each, statistics.pstdev(paces) * each


def parts_of(chip: Chip, sampled: Sampled) -> Iterator[Part]:
    """Yield the cycles for which each part of a multiprocessor is busy, on average over the sampled ones."""
    events, scale = sampled.events, sampled.scale
    ports = chip.sm_count * chip.schedulers
    issued = float(events.issued.sum()) * scale
    yield Part("issue slots", issued / ports * chip.issue_interval("issue"), f"{issued:,.0f} machine instructions")
    for pipe, cycles in events.pipe_cycles.items():
        yield Part(f"{pipe} pipe", float(cycles.sum()) * scale / ports)
    wavefronts = events.traffic.total("wavefronts") * scale
    yield Part("L1 and shared memory", wavefronts * events.traffic.wavefront_cycles / chip.sm_count, f"{wavefronts:,.0f} wavefronts")
    yield Part("barriers", float(events.barrier_cycles.sum()) * scale / chip.sm_count)
