"""Find addresses, and lines of 128 bytes, kept busy by updates of many warps, which no single request shows.

The number of updates and the size of the array give a lower bound on the updates per address or line, whatever the addresses are. The
emulator's time model also includes the busiest line. An address takes at most one update per cycle; the chip file gives the rate of a line.
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
"""Minimum updates per address, divided by the launch's cycles, to report."""
MIN_LINE_BUSY = 0.3
"""Minimum share of the launch's cycles that a line needs for its updates, to report."""
LINE_BYTES = 128


@dataclass(frozen=True)
class Busy:
    """Updates of one array in global memory by one access."""

    updates: int
    """Updates per launch on average; lanes of a request at one address count as one."""
    addresses: float
    """Number of addresses that the updates may go to."""
    share: float
    """Lower bound of the share of the launch's cycles for which each address is busy, on average over the addresses."""


def busy(evidence: Evidence, entry: SiteCounts) -> Busy | None:
    """Return the updates per address of an access; None if they are too few, or if the array's size or the launch's time is unknown."""
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
    """Updates of one line of global memory."""

    sectors: float
    """Sectors of the requests that update the line, per launch on average."""
    rate: float
    """Sectors of such requests that a line serves per cycle."""
    share: float
    """Lower bound of the share of the launch's cycles for which the line is busy."""
    addresses: float
    """Number of addresses in the array, or in the line if the array is unknown."""


def busy_line(evidence: Evidence, entry: SiteCounts) -> BusyLine | None:
    """Return the busiest line that an access updates; None if no line is known to be busy."""
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
    """Return the number of elements in `sectors` sectors."""
    return max(sectors * SECTOR_BYTES / entry.site.nbytes, 1.0)


def _is_global(entry: SiteCounts) -> bool:
    return entry.site.is_atomic and entry.site.space in ("global", "generic")


def _updates_most(evidence: Evidence, entry: SiteCounts) -> bool:
    """Return whether no other access updates more sectors: the time model does not say which access the busiest line belongs to."""
    return (entry.sectors or 0) == max((one.sectors or 0 for one in evidence.accesses if _is_global(one)), default=0)


def _line_floor(time: ModelledTime) -> float:
    """Return the cycles that the busiest line needs."""
    return next((one.cycles for one in time.floors if one.name == ATOMICS_OF_ONE_LINE), 0.0)


def _modelled(evidence: Evidence, cycles: Callable[[ModelledTime], float]) -> float:
    """Return cycles per launch on average by the emulator's time model; 0 on a GPU."""
    return sum(cycles(launch.time) for launch in evidence.launches if launch.time) / max(len(evidence.launches), 1)


def _duration(evidence: Evidence) -> float:
    """Return cycles per launch on average, of the multiprocessor that was busy longest; 0 if unknown."""
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
