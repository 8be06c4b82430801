"""Find reloaded sectors: an access loads each sector of its array many times, mostly from L1, near where it was used before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.chip import Chip
from memlane.diagnose.cost import Cost, at_barriers
from memlane.diagnose.evidence import CALIBRATION, COUNTS, ORIGINS, TIMES, WHOLE, Evidence, Numbers
from memlane.diagnose.reuse import Reuse, reuses
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import percent, plural, rounded

MIN_TIMES = 4.0
"""Minimum loads of each sector to report."""
MIN_TIMES_OF_NEIGHBOURS = 8.0
"""Minimum if no single instruction loads each sector twice: L1 serves stencils of five or seven points well enough."""
MIN_FROM_L1 = 0.5
"""Minimum share of accesses served by L1; below it, `cache-thrashing` applies."""
MIN_SHARE = 0.01
"""Minimum cost as a share of the warps' lifetimes."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the accesses of a kernel that reload sectors."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    repeated = [found for found in reuses(evidence) if _is_repeated(found)]
    share = min(1.0, sum(found.ideal_sectors for found in repeated) / max(evidence.sectors, 1))
    for found in repeated:
        if found.from_l1 < MIN_FROM_L1:
            continue
        beyond = _saved(found, chip, share)
        staged = float(beyond.sum())
        if staged < MIN_SHARE * evidence.life:
            continue
        yield in_cycles(
            found.site,
            found.cycles,
            at_barriers(
                evidence,
                Cost(
                    staged,
                    float(beyond[: found.certain].sum()),
                    found.cycles * (1 - 1 / found.times),
                    f"{len(found.again):,} of {plural(found.requests, 'load')} repeat a sector, assumed to be the fastest ones: their time "
                    f"above the {plural(round(chip.latency.shared), 'cycle')} of shared memory, with {percent(share)} of their wait in L1, "
                    "which is the share of repeated sectors in all sectors; upper bound: with the whole wait",
                ),
                np.where(found.records & (rows.cycles <= found.again[-1]), rows.cycles, 0.0),
            ),
            (
                f"each sector of its array is loaded {rounded(found.times)} times or more, and L1 serves {percent(found.from_l1)} of "
                "the loads"
            ),
            "the threads of a multiprocessor load the same data again and again",
            "Load it once into shared memory, or into registers for several results of a thread, and use it from there.",
            found.requests,
            found.about,
            **{"loads of a sector": found.times, "share served by L1": found.from_l1, "cycles per access": found.mean},
        )


def _is_repeated(found: Reuse) -> bool:
    return found.times >= (MIN_TIMES_OF_NEIGHBOURS if found.of_neighbours else MIN_TIMES)


def _saved(found: Reuse, chip: Chip, share: float) -> Numbers:
    """Return the cycles that each repeated load takes above a load from shared memory.

    Time above the latency of L1 is a wait for other accesses; of that, the `share` of repeated loads in all sectors is saved.
    """
    waited = np.maximum(found.again - chip.latency.l1, 0.0)
    return np.maximum(found.again - chip.latency.shared, 0.0) - waited * (1.0 - share)


RULE = Rule("sectors-reloaded", "the same sectors loaded again", examine, (COUNTS, TIMES, ORIGINS, CALIBRATION, WHOLE))
