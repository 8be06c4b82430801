"""An address that updates of many warps keep busy, one lane of each at a time: nothing of it shows in a single request.

How many updates an address gets follows from the number of updates and the size of the array, whatever the addresses are; so it is the
least that is certain. An address takes one update in a cycle, at best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlane.chip import SECTOR_BYTES
from memlane.diagnose.evidence import Evidence
from memlane.record import SiteCounts

MIN_BUSY = 0.25
"""Updates of an address over the cycles that the launch takes, from which on it is worth a word."""


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
    sectors = evidence.array_sectors(site) if site.is_atomic and site.space in ("global", "generic") else None
    if not sectors or not duration or not entry.addresses:
        return None
    addresses = max(sectors * SECTOR_BYTES / site.nbytes, 1.0)
    updates = entry.addresses / len(evidence.launches)
    share = updates / addresses / duration
    return Busy(round(updates), addresses, share) if share >= MIN_BUSY else None


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
