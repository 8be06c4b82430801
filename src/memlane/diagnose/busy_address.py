"""An address, or a line of 128 bytes, that updates of many warps keep busy: nothing of it shows in a single request.

How many updates an address or a line gets follows from the number of updates and the size of the array, whatever the addresses are; so it
is the least that is certain. The emulator's model of time knows the busiest line too. An address takes one update in a cycle, at best; a
line takes what the chip's file says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memlane.chip import SECTOR_BYTES
from memlane.chip.floors import ATOMICS_OF_ONE_LINE, ModelledTime
from memlane.diagnose.evidence import Evidence
from memlane.record import SiteCounts

MIN_BUSY = 0.25
"""Updates of an address over the cycles that the launch takes, from which on it is worth a word."""
MIN_LINE_BUSY = 0.3
"""Cycles that a line needs for its updates over those that the launch takes, from which on it is worth a word."""
LINE_BYTES = 128


@dataclass(frozen=True)
class Busy:
    """The updates of one place of global memory."""

    updates: int
    """Of the mean launch; lanes of a request at one address count as one."""
    addresses: float
    """That they may go to."""
    share: float
    """Of the cycles of the launch for which each address is busy, at least."""


def busy(evidence: Evidence, entry: SiteCounts) -> Busy | None:
    """None where a place is no such thing, or the size of its array or the time of the launch is not known."""
    site = entry.site
    duration = _duration(evidence)
    sectors = evidence.array_sectors(site) if _is_global(entry) else None
    if not sectors or not duration or not entry.addresses:
        return None
    addresses = addresses_of(sectors, entry)
    updates = entry.addresses / len(evidence.launches)
    share = updates / addresses / duration
    return Busy(round(updates), addresses, share) if share >= MIN_BUSY else None


@dataclass(frozen=True)
class BusyLine:
    """The updates of one line of global memory."""

    sectors: float
    """Of the requests that update it, in the mean launch."""
    rate: float
    """Sectors of such requests that a line takes in a clock."""
    share: float
    """Of the cycles of the launch for which the line is busy, at least."""
    addresses: float
    """Of the array; those of the line where the array is not known."""


def busy_line(evidence: Evidence, entry: SiteCounts) -> BusyLine | None:
    """The busiest line that a place updates. None where it is not busy, or nobody knows."""
    duration, chip = _duration(evidence), evidence.chip
    rate = None if chip is None else chip.bandwidth.line_atomic
    if rate is None or not duration or not _is_global(entry) or not entry.sectors:
        return None
    array = evidence.array_sectors(entry.site)
    lines = max((array or 0) * SECTOR_BYTES / LINE_BYTES, 1.0)
    least = entry.sectors / len(evidence.launches) / lines if array else 0.0
    cycles = max(least / rate, _modelled(evidence, _line_floor) if _updates_most(evidence, entry) else 0.0)
    addresses = addresses_of(array or LINE_BYTES / SECTOR_BYTES, entry)
    taken = max(duration, _modelled(evidence, lambda time: float(time.cycles)))
    return BusyLine(cycles * rate, rate, cycles / taken, addresses) if cycles >= MIN_LINE_BUSY * taken else None


def addresses_of(sectors: float, entry: SiteCounts) -> float:
    """How many elements lie in so many sectors."""
    return max(sectors * SECTOR_BYTES / entry.site.nbytes, 1.0)


def _is_global(entry: SiteCounts) -> bool:
    return entry.site.is_atomic and entry.site.space in ("global", "generic")


def _updates_most(evidence: Evidence, entry: SiteCounts) -> bool:
    """Whether no other place updates more sectors: the model of time does not say which place the busiest line belongs to."""
    return (entry.sectors or 0) == max((one.sectors or 0 for one in evidence.accesses if _is_global(one)), default=0)


def _line_floor(time: ModelledTime) -> float:
    """Cycles that the busiest line needs."""
    return next((one.cycles for one in time.floors if one.name == ATOMICS_OF_ONE_LINE), 0.0)


def _modelled(evidence: Evidence, cycles: Callable[[ModelledTime], float]) -> float:
    """Cycles of the mean launch by the emulator's model of time; 0 on a GPU."""
    return sum(cycles(launch.time) for launch in evidence.launches if launch.time) / max(len(evidence.launches), 1)


def _duration(evidence: Evidence) -> float:
    """Cycles of the mean launch: of the multiprocessor that was at work longest. 0 where nobody knows."""
    lives = evidence.lives
    if lives is None or not len(lives) or not evidence.launches:
        return 0.0
    taken = []
    for launch in np.unique(lives["launch"]):
        own = lives[lives["launch"] == launch]
        taken.append(
            max(
                float(one["end_cycles"].max()) - float(one["begin_cycles"].min())
                for one in (own[own["sm"] == sm] for sm in np.unique(own["sm"]))
            )
        )
    return float(np.mean(taken))
