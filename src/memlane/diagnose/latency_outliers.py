"""Latency outliers: few accesses of a line take most of its time, while the others are quick.

The first execution by a warp is left out where there are more: what is read for the first time is in no cache. Where each lane walks
through sectors of its own (`uncoalesced-global`, `partial-sectors`) every new one is a miss, which is no outlier but that finding. Nor is
it one where all lanes walk through the same sectors: then outliers come every so many turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from memlane.diagnose.cost import Cost, level_of
from memlane.diagnose.evidence import CALIBRATION, TIMES, Evidence, Rows
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.diagnose.uncoalesced import wasteful
from memlane.number_format import percent, plural
from memlane.record import Site

CACHED = ("global", "local", "generic")
"""Spaces with levels of which the calibration knows the latencies. Who waits for shared memory waits for other warps, and what a probe
makes a load of constants is an operand without it."""
MIN_ACCESSES = 64
TIMES_THE_MEDIAN = 4.0
"""From which on an access is an outlier."""
MAX_SHARE = 0.2
"""Outliers over all accesses: more are no outliers, but a second level."""
MIN_OF_PLACE = 0.25
"""The outliers' time beyond the median over all time of the place."""
REGULAR = 0.5
"""Steps between the outliers of a warp that are the same, from which on it walks through an array."""
LINE_BYTES = 128
MIN_SHARE = 0.05
"""Cost over the lifetimes of the kernel's warps."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """See the module."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    wasted = {evidence.together(one.site)[0] for one in evidence.accesses if wasteful(one, evidence)}
    for site in (one for one in evidence.own_accesses if one.kind == "load" and one.space in CACHED and one not in wasted):
        chosen = rows.of(evidence.numbers(site), complete=True)
        if chosen.any() and rows.execution[chosen].max() > 1:
            chosen &= rows.execution > 0
        if chosen.sum() < MIN_ACCESSES:
            continue
        cycles, weight = rows.cycles[chosen], rows.weight[chosen]
        median = float(np.median(cycles))
        outliers = cycles > TIMES_THE_MEDIAN * max(median, 1.0)
        if _of_one_sector(evidence, site) and _is_regular(rows, chosen, outliers, site.nbytes):
            continue
        excess = float(((cycles - median) * weight)[outliers].sum())
        total = float((cycles * weight).sum())
        if not 0 < outliers.mean() <= MAX_SHARE or excess < MIN_OF_PLACE * total or excess < MIN_SHARE * evidence.life:
            continue
        typical = float(np.median(cycles[outliers]))
        yield in_cycles(
            site,
            total,
            Cost(excess, 0.0, excess, "the time of the outliers above the median of the line"),
            f"{percent(float(outliers.mean()))} of the accesses take {percent(excess / total)} of the time: "
            f"{plural(round(typical), 'cycle')} against a median of {median:.0f}",
            (
                f"most accesses are served by {level_of(chip, median)}; these, judging by their latency, by {level_of(chip, typical)} "
                "or after a long wait"
            ),
            "Find out what these accesses read (`memlane show` draws single accesses). Then prefetch that data, store it next to data "
            "that is used often, or give it to other warps.",
            int(chosen.sum()),
            **{"median, cycles": median, "outliers' median, cycles": typical, "outliers, share": float(outliers.mean())},
        )


def _of_one_sector(evidence: Evidence, site: Site) -> bool:
    """Whether what the lanes of a request ask for would fit into one sector, so that the next may find its word there too."""
    counted = [evidence.by_site[one.instruction] for one in evidence.together(site) if one.instruction in evidence.by_site]
    requests = sum(one.requests for one in counted)
    return 0 < requests >= sum(one.ideal_sectors or 0 for one in counted)


def _is_regular(rows: Rows, chosen: npt.NDArray[np.bool_], outliers: npt.NDArray[np.bool_], nbytes: int) -> bool:
    """Whether the outliers of a warp come as regularly as it goes on to the next sector, or line, of an array that it walks through."""
    keys = [rows.site[chosen], rows.launch[chosen], rows.block[chosen], rows.warp[chosen], rows.execution[chosen]]
    slow = [key[outliers] for key in keys]
    order = np.lexsort(slow[::-1])
    ordered = [key[order] for key in slow]
    same = np.logical_and.reduce([np.diff(key) == 0 for key in ordered[:-1]]) if len(order) > 1 else np.zeros(0, bool)
    steps = np.diff(ordered[-1])[same]
    if not len(steps) or len(steps) < REGULAR * len(order):
        return False
    usual = int(np.bincount(steps).argmax())
    return usual <= LINE_BYTES // max(nbytes, 1) and float((steps == usual).mean()) >= REGULAR


RULE = Rule("latency-outliers", "latency outliers", examine, (TIMES, CALIBRATION))
