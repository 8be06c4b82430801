"""Find reloaded sectors: an access loads each sector of its array many times, mostly from L1, near where it was used before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.chip import SECTOR_BYTES, Chip
from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import CALIBRATION, COUNTS, ORIGINS, TIMES, WHOLE, Evidence, Numbers
from memlane.diagnose.reuse import Reuse, reuses
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import percent, plural, rounded, size

MIN_TIMES = 4.0
"""Minimum loads of each sector to report."""
MIN_TIMES_OF_NEIGHBOURS = 8.0
"""Minimum if no single instruction loads each sector twice: L1 serves stencils of five or seven points well enough."""
MIN_FROM_L1 = 0.5
"""Minimum share of accesses served by L1; below it, `cache-thrashing` applies."""
CONSTANT_BYTES = 1 << 16
"""Size of constant memory."""
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
            Cost(
                staged,
                float(beyond[: found.certain].sum()),
                found.cycles * (1 - 1 / found.times),
                f"{len(found.again):,} of {plural(found.requests, 'load')} repeat a sector, assumed to be the fastest ones: their time "
                f"above the {plural(round(chip.latency.shared), 'cycle')} of shared memory, with {percent(share)} of their wait in L1, "
                "which is the share of repeated sectors in all sectors; upper bound: with the whole wait",
            ),
            (
                f"each sector of its array is loaded {rounded(found.times)} times or more, and L1 serves {percent(found.from_l1)} of "
                "the loads"
            ),
            "the threads of a multiprocessor load the same data again and again",
            _remedy(found, evidence),
            found.requests,
            found.about,
            **{"loads of a sector": found.times, "share served by L1": found.from_l1, "cycles per access": found.mean},
        )


def _is_repeated(found: Reuse) -> bool:
    return found.times >= (MIN_TIMES_OF_NEIGHBOURS if found.of_neighbours else MIN_TIMES)


def _remedy(found: Reuse, evidence: Evidence) -> str:
    """Return what to do, which for an array that fits into constant memory and of which all lanes read the same element is to keep it
    there."""
    stage = "oad it once into shared memory, or into registers for several results of a thread, and use it from there."
    seen = [example for site in found.about for example in evidence.worst_examples(site)]
    lanes = [{address for lane, address in enumerate(one.addresses) if one.active_mask >> lane & 1} for one in seen]
    nbytes = (evidence.array_sectors(found.site) or 0) * SECTOR_BYTES
    if seen and all(len(one) == 1 for one in lanes) and 0 < nbytes <= CONSTANT_BYTES:
        return f"Keep it in `__constant__` memory, because all lanes read the same element ({size(round(nbytes))} in all). Or l{stage}"
    return f"L{stage}"


def _saved(found: Reuse, chip: Chip, share: float) -> Numbers:
    """Return the cycles that each repeated load takes above a load from shared memory.

    Time above the latency of L1 is a wait for other accesses; of that, the `share` of repeated loads in all sectors is saved.
    """
    waited = np.maximum(found.again - chip.latency.l1, 0.0)
    return np.maximum(found.again - chip.latency.shared, 0.0) - waited * (1.0 - share)


RULE = Rule("sectors-reloaded", "the same sectors loaded again", examine, (COUNTS, TIMES, ORIGINS, CALIBRATION, WHOLE))
