"""Find latency outliers: a few accesses of a line take most of its time, while the others are quick.

The first execution by each warp is skipped if there are more, since data read for the first time is in no cache. Accesses whose lanes each
walk through their own sectors (`uncoalesced-global`, `partial-sectors`) miss at every new sector, which belongs to those findings. Lanes
that walk together through the same sectors give outliers at regular steps, which do not count either.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from memlane.diagnose.cost import Cost, level_of
from memlane.diagnose.evidence import CALIBRATION, TIMES, Evidence, Rows
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.diagnose.uncoalesced import is_wasteful
from memlane.number_format import percent, plural
from memlane.record import Site

CACHED = ("global", "local", "generic")
"""Spaces with cache levels of known latency. Waits at shared memory are waits for other warps, and a load of constants in a probe is an
operand without it."""
MIN_ACCESSES = 64
TIMES_THE_MEDIAN = 4.0
"""Minimum ratio of an outlier to the median."""
MAX_SHARE = 0.2
"""Maximum share of outliers among the accesses: more would be a second latency level."""
MIN_OF_PLACE = 0.25
"""Minimum share of the place's time that outliers take above the median."""
REGULAR = 0.5
"""Minimum share of equal steps between a warp's outliers that indicates a walk through an array."""
LINE_BYTES = 128
MIN_SHARE = 0.05
"""Minimum cost as a share of the warps' lifetimes."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the accesses of a kernel with latency outliers."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    wasted = {evidence.sites_of_access(one.site)[0] for one in evidence.accesses if is_wasteful(one, evidence)}
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
    """Return whether a request's bytes would fit into one sector, so that the next request may hit the same sector."""
    counted = [evidence.by_site[one.instruction] for one in evidence.sites_of_access(site) if one.instruction in evidence.by_site]
    requests = sum(one.requests for one in counted)
    return 0 < requests >= sum(one.ideal_sectors or 0 for one in counted)


def _is_regular(rows: Rows, chosen: npt.NDArray[np.bool_], outliers: npt.NDArray[np.bool_], nbytes: int) -> bool:
    """Return whether a warp's outliers come at the regular steps at which it reaches a new sector or line of an array."""
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
