"""The same sector loaded again: an access loads each sector of its array many times, mostly from L1, that is, near where it was used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import CALIBRATION, COUNTS, ORIGINS, TIMES, WHOLE, Evidence
from memlane.diagnose.reuse import reuses
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import percent, rounded

MIN_TIMES = 4.0
"""Loads of each sector from which on it is worth a word."""
MIN_FROM_L1 = 0.5
"""Share of the accesses that L1 serves; where it is less, `cache-thrashing` looks."""
MIN_SHARE = 0.01
"""Cost over the lifetimes of the kernel's warps."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """See the module."""
    chip = evidence.chip
    if chip is None:
        return
    for found in reuses(evidence):
        if found.times < MIN_TIMES or found.from_l1 < MIN_FROM_L1:
            continue
        beyond = np.maximum(found.again - chip.latency.shared, 0.0)
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
                f"what the loads beyond the first of each sector, {len(found.again):,} of {found.requests:,}, took over the "
                f"{chip.latency.shared:.0f} cycles of shared memory, the quickest being taken for them; registers would save all of it",
            ),
            f"each sector of its array is loaded {rounded(found.times)} times or more, {percent(found.from_l1)} of the loads from L1",
            "threads of a multiprocessor load the same data over and over",
            "Load it once into shared memory, or into registers for several results of a thread, and use it from there.",
            found.requests,
            found.about,
            **{"loads of a sector": found.times, "share served by L1": found.from_l1, "cycles per access": found.mean},
        )


RULE = Rule("sectors-reloaded", "the same sectors loaded again", examine, (COUNTS, TIMES, ORIGINS, CALIBRATION, WHOLE))
