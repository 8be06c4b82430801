"""Find partial warps: blocks smaller than a warp, or with a partial last warp, so that lanes have no thread."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.chip import LANES
from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import TIMES, Evidence
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import percent, plural
from memlane.record import LaunchInfo

MIN_EMPTY = 0.25
"""Minimum share of lanes without a thread, over all warps of the launches."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield a verdict if many lanes of a kernel's warps have no thread."""
    assert evidence.rows is not None
    # A single block, or fewer threads than a warp, cannot be regrouped into full warps.
    launches = [one for one in evidence.launches if np.prod(one.grid) > 1 and _threads(one) * np.prod(one.grid) >= LANES]
    warps = sum(one.warps_per_block * int(np.prod(one.grid)) for one in launches)
    threads = sum(_threads(one) * int(np.prod(one.grid)) for one in launches)
    if not launches or len(launches) < len(evidence.launches) or 1 - threads / (warps * LANES) < MIN_EMPTY:
        return
    empty = 1 - threads / (warps * LANES)
    rows = evidence.rows
    totals = np.bincount(rows.site, rows.cycles * rows.weight, len(evidence.sites))
    site = evidence.sites[int(totals.argmax())]
    *few, most = sorted({_threads(one) for one in launches})
    sizes = " or ".join([*map(str, few), plural(most, "thread")])
    yield in_cycles(
        site,
        evidence.life,
        Cost(
            empty * evidence.life,
            0.0,
            empty * evidence.life,
            "the lifetimes of all warps times the share of lanes without a thread: full warps would be fewer by that share",
        ),
        f"{percent(empty)} of the lanes of the whole kernel have no thread, and warps wait longest here",
        f"blocks have {sizes}, and a warp takes as long as one with {LANES}",
        f"Give each block a multiple of {LANES} threads: merge several blocks into one, or give each thread less work.",
        int(rows.of([site.id]).sum()),
        **{"lanes without a thread, share": empty},
    )


def _threads(launch: LaunchInfo) -> int:
    return int(np.prod(launch.block))


RULE = Rule("partial-warps", "warps that are not full", examine, (TIMES,))
