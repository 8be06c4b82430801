"""Narrow access: the lanes lie side by side from a sector's beginning on, but each asks for one byte or two.

A request costs its warp the same wait whether it moves 32 bytes or 128, so a thread that takes two or four neighbours at once (`short2`,
`uchar4`) waits a half or a quarter as often for the same data. A row that does not begin at a sector is `misaligned-base` first: what is
wide has to be aligned. A byte that a whole warp asks for fills a sector in the counts as 32 bytes side by side do; it is told by how often
the array is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlane.chip import SECTOR_BYTES
from memlane.diagnose.cost import MIN_FELT, Cost, unknown
from memlane.diagnose.evidence import COUNTS, ORIGINS, Evidence
from memlane.diagnose.rule import VERBS, Rule, Verdict, in_cycles
from memlane.number_format import percent, plural
from memlane.record import Place, Site, SiteCounts

WIDTH = 4
"""Bytes of a lane from which on an access is not narrow: with those a request fills a line of 128 bytes."""
MIN_FULL = 0.9
"""Lanes of the mean request over those of a warp, and bytes asked for over those of the sectors; of a row of the block if that is
shorter than a sector."""
SHORTEST_ROW = 16
"""Bytes of a row of the block, below which so much of each sector lies idle that it is the finding `partial-sectors`."""
MAX_TIMES = 2.0
"""Loads or stores of each sector of the array in a launch, below which lanes must lie side by side: at one address they would be more."""
MIN_SHARE = 0.02
"""Cost over the lifetimes of the kernel's warps, and of counts alone requests over all of the kernel."""


_VECTORS = {1: "`uchar4`; `uint4` for sixteen", 2: "`half2` or `short2`; `uint4` for eight"}
"""By the bytes of an element: types of CUDA C++ that take several."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """See the module."""
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
            f"each thread {_does(site.kind)} only {width} at a time",
            f"Let each thread {VERBS[site.kind]} {WIDTH // site.nbytes} neighbouring elements at once, or more "
            f"({_VECTORS[site.nbytes]}), with correspondingly fewer threads or iterations.",
            entry.requests,
            tuple(about[site.place]),
            **{"bytes of a lane": float(site.nbytes), "bytes of a request": entry.bytes / entry.requests},
        )


def _least(evidence: Evidence, measured: bool) -> float:
    """Warp cycles from which on it is worth a word. What a store costs beyond its issue nobody knows, so less of it will do."""
    if not evidence.life:
        return MIN_SHARE * evidence.requests
    return (MIN_SHARE if measured else MIN_FELT) * evidence.life


def _does(kind: str) -> str:
    return "stores" if kind == "store" else "loads"


def _side_by_side(entry: SiteCounts, evidence: Evidence) -> bool:
    """Whether a place of global memory loads or stores narrow rows that fill the sectors that they touch."""
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
    """Of the accesses that would not be made; issue alone where no completion is known."""
    net = evidence.cycles(entry.site)
    least = entry.requests * fewer
    if not len(net):
        return Cost(least, least, None, f"one cycle for each request that would be saved; {unknown(evidence.chip)}", measured=False)
    cycles = float(net.mean()) * least
    return Cost(
        max(cycles, least),
        least,
        max(cycles, least),
        f"the mean of {plural(round(net.mean()), 'cycle')} for the {percent(fewer)} of the accesses that would be saved",
    )


RULE = Rule("narrow-access", "narrow accesses", examine, (COUNTS, ORIGINS))
