"""Find cache thrashing: a multiprocessor loads the same sectors again, but L1 serves few of these loads because more data is loaded in
between than it holds.

The level that serves a load is estimated from its latency and the calibration of the chip.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.diagnose.cost import Cost, at_barriers, level_of
from memlane.diagnose.evidence import CALIBRATION, COUNTS, ORIGINS, TIMES, WHOLE, Evidence
from memlane.diagnose.reloaded_sectors import MIN_FROM_L1
from memlane.diagnose.reuse import reuses
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import percent, plural, rounded

MIN_TIMES = 1.5
"""Minimum loads of each sector by one multiprocessor."""
MIN_SHARE = 0.05
"""Minimum cost as a share of the warps' lifetimes."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the accesses of a kernel that thrash L1."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    for found in reuses(evidence):
        times = found.times_per_sm
        if times < MIN_TIMES or found.not_from_l2 >= MIN_FROM_L1 or found.fits_l1:
            continue
        again = 1 - 1 / times
        needed = min(1.0, found.ideal_sectors / max(found.sectors, 1))
        cycles = max(0.0, found.mean - chip.latency.l1) * found.requests * again * needed
        if cycles < MIN_SHARE * evidence.life:
            continue
        level = level_of(chip, found.mean)
        yield in_cycles(
            found.site,
            found.cycles,
            at_barriers(
                evidence,
                Cost(
                    cycles,
                    0.0,
                    found.cycles * again,
                    (
                        f"the mean of {plural(round(found.mean), 'cycle')} minus the {chip.latency.l1:.0f} of an L1 hit, for every load of "
                        f"a sector after the first{_scale_clause(needed)}"
                    ),
                ),
                np.where(found.records, rows.cycles, 0.0),
            ),
            f"a multiprocessor loads each sector {rounded(times)} times or more, but L1 serves only {percent(found.not_from_l2)} of these "
            f"loads; the mean of {plural(round(found.mean), 'cycle')} points to {level}",
            "between two loads of a sector, more data is loaded than L1 holds, so the sector is evicted before it is used again",
            "Work on one part of the data at a time that fits in the cache (blocking), or keep data that is used again in shared memory.",
            found.requests,
            found.about,
            **{"loads of a sector by a multiprocessor": times, "share served by L1": found.not_from_l2, "cycles per access": found.mean},
        )


def _scale_clause(needed: float) -> str:
    """Return the clause that scales the cost to the sectors that contiguous lanes would touch; the other sectors belong to another
    finding."""
    return f", times the {percent(needed)} of the sectors that contiguous lanes would touch" if needed < 1 else ""


RULE = Rule("cache-thrashing", "cache thrashing", examine, (COUNTS, TIMES, ORIGINS, CALIBRATION, WHOLE))
