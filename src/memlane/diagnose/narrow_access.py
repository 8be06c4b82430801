"""Find narrow accesses: contiguous lanes from a sector boundary on, with only one or two bytes per lane.

A request costs its warp the same wait whether it moves 32 bytes or 128, so a thread that takes two or four neighbours at once (`short2`,
`uchar4`) waits half or a quarter as often for the same data. A row that does not start at a sector boundary is `misaligned-base` first,
since wide accesses must be aligned. A byte that a whole warp reads counts as one sector, just like 32 contiguous bytes; the number of loads
per array sector distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlane.chip import SECTOR_BYTES
from memlane.diagnose.cost import MIN_NOTICEABLE, Cost, at_barriers, untimed_reason
from memlane.diagnose.evidence import COUNTS, ORIGINS, Evidence
from memlane.diagnose.rule import VERBS, Rule, Verdict, in_cycles
from memlane.number_format import percent, plural
from memlane.record import Place, Site, SiteCounts

WIDTH = 4
"""Bytes per lane from which an access is not narrow: a request then fills a line of 128 bytes."""
MIN_FULL = 0.9
"""Minimum share of active lanes per warp, and of requested bytes per sector, or per block row if that is shorter than a sector."""
SHORTEST_ROW = 16
"""Minimum bytes of a block row; shorter rows leave so much of each sector unused that they are the finding `partial-sectors`."""
MAX_TIMES = 2.0
"""Maximum loads or stores of each array sector per launch at which lanes must be contiguous: lanes at one address would give more."""
MIN_SHARE = 0.02
"""Minimum cost as a share of the warps' lifetimes; for counts alone, minimum share of the kernel's requests."""


_VECTORS = {1: "`uchar4`; `uint4` for sixteen", 2: "`half2` or `short2`; `uint4` for eight"}
"""Element size in bytes -> vector types of CUDA C++ that hold several."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the narrow accesses of a kernel."""
    narrow: dict[Place, SiteCounts] = {}
    about: dict[Place, list[Site]] = {}
    for one in evidence.by_arrays:
        place = one.site.place
        if _side_by_side(one, evidence):
            about.setdefault(place, []).append(one.site)
            narrow[place] = narrow[place].plus(one) if place in narrow else one
    for entry in narrow.values():
        site = entry.site
        fewer = 1 - site.nbytes / WIDTH
        found = _cost(evidence, entry, fewer)
        if found.cycles < _least(evidence, found.measured):
            continue
        width = plural(site.nbytes, "byte")
        yield in_cycles(
            site,
            found.cycles / fewer,
            found,
            f"a request moves {plural(entry.bytes / entry.requests, 'byte')} of a possible {WIDTH * evidence.lanes_per_warp()} "
            f"({plural(entry.requests, 'request')})",
            f"each thread {_verb(site.kind)} only {width} at a time",
            f"Let each thread {VERBS[site.kind]} {WIDTH // site.nbytes} neighbouring elements at once, or more "
            f"({_VECTORS[site.nbytes]}), with correspondingly fewer threads or iterations.",
            entry.requests,
            tuple(about[site.place]),
            **{"bytes of a lane": float(site.nbytes), "bytes of a request": entry.bytes / entry.requests},
        )


def _least(evidence: Evidence, measured: bool) -> float:
    """Return the minimum warp cycles to report; lower without measured completion, as for stores, whose cost after issue is unknown."""
    if not evidence.life:
        return MIN_SHARE * evidence.requests
    return (MIN_SHARE if measured else MIN_NOTICEABLE) * evidence.life


def _verb(kind: str) -> str:
    return "stores" if kind == "store" else "loads"


def _side_by_side(entry: SiteCounts, evidence: Evidence) -> bool:
    """Return whether an access to global memory loads or stores narrow rows that fill their sectors."""
    site = entry.site
    if (
        site.kind not in ("load", "store")
        or site.space != "global"
        or site.is_of_compiler
        or not 0 < site.nbytes < WIDTH
        or not entry.requests
    ):
        return False
    sectors, array = entry.sectors or 0, evidence.array_sectors(site)
    row = evidence.row_bytes(site.nbytes) or SECTOR_BYTES
    row = row if SHORTEST_ROW <= row < SECTOR_BYTES else SECTOR_BYTES
    full = entry.lanes >= MIN_FULL * evidence.lanes_per_warp() * entry.requests and entry.bytes >= MIN_FULL * sectors * row
    times = sectors * row / SECTOR_BYTES / max(len(evidence.launches), 1)
    return full and bool(array) and times < MAX_TIMES * (array or 0.0)


def _cost(evidence: Evidence, entry: SiteCounts, fewer: float) -> Cost:
    """Return the cost of the accesses that would be saved, or of their issue alone if no completion is known."""
    net = evidence.cycles(entry.site)
    least = entry.requests * fewer
    if not len(net):
        return Cost(least, least, None, f"one cycle for each request that would be saved; {untimed_reason(evidence.chip)}", measured=False)
    cycles = float(net.mean()) * least
    alone = Cost(
        max(cycles, least),
        least,
        max(cycles, least),
        f"the mean of {plural(round(net.mean()), 'cycle')} for the {percent(fewer)} of the accesses that would be saved",
    )
    return at_barriers(evidence, alone, evidence.excess(entry.site, net))


RULE = Rule("narrow-access", "narrow accesses", examine, (COUNTS, ORIGINS))
