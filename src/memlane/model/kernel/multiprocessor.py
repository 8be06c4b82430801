"""The time of the multiprocessors for themselves, as the clock layer simulates them warp by warp.

An in-order scoreboard for each warp, issue slots and pipes of each scheduler, the passes of the load-store unit and arrivals at barriers
give the cycle in which each block ends. Where only some blocks ran, the others follow at the pace of those in the middle of the run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from memlane.chip import Chip, Events

WINDOWS = 4
"""Parts of the run of a sample between which its pace is compared."""


@dataclass(frozen=True)
class Part:
    """How long one part of the chip is busy with a launch, by itself."""

    name: str
    cycles: float
    moved: str = ""
    """How much it did, in words."""


@dataclass(frozen=True)
class Sampled:
    """What was seen of a launch with warm caches, and how it stands for the whole."""

    events: Events
    dram_scale: float = 1.0
    """DRAM traffic of the whole launch over that of the blocks that ran: lines that many blocks use are fetched once."""

    @property
    def scale(self) -> float:
        """Blocks of the grid over those that ran."""
        return 1 / self.events.fraction

    @property
    def is_whole(self) -> bool:
        return len(self.events.finishes) == self.events.blocks


def whole_cycles(chip: Chip, events: Events) -> tuple[float, float]:
    """Return until when the whole grid would run, in cycles, and the spread of that over parts of the sample (0 where all blocks ran)."""
    finishes = events.finishes
    each = events.blocks / chip.sm_count - len(finishes) / events.sms
    if len(finishes) < 2 * WINDOWS or each < 0.5:
        return float(events.cycles), 0.0
    marks = [len(finishes) // 4 + number * (len(finishes) // 2) // WINDOWS for number in range(WINDOWS + 1)]
    paces = [(int(finishes[last]) - int(finishes[first])) / ((last - first) / events.sms) for first, last in pairwise(marks)]
    return events.cycles + statistics.fmean(paces) * each, statistics.pstdev(paces) * each


def parts_of(chip: Chip, sampled: Sampled) -> Iterator[Part]:
    """For how many cycles each part of a multiprocessor is busy, on average over those that ran."""
    events, scale = sampled.events, sampled.scale
    ports = chip.sm_count * chip.schedulers
    issued = float(events.issued.sum()) * scale
    yield Part("issue slots", issued / ports * chip.issue_interval("issue"), f"{issued:,.0f} machine instructions")
    for pipe, cycles in events.pipe_cycles.items():
        yield Part(f"{pipe} pipe", float(cycles.sum()) * scale / ports)
    wavefronts = events.traffic.total("wavefronts") * scale
    yield Part("L1 and shared memory", wavefronts * events.traffic.wavefront_cycles / chip.sm_count, f"{wavefronts:,.0f} wavefronts")
    yield Part("barriers", float(events.barrier_cycles.sum()) * scale / chip.sm_count)
