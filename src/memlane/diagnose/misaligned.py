"""Find misaligned bases: lanes are contiguous, but their row does not start at a sector boundary, so each request touches one sector more.

Accesses to the neighbours of elements that are read at their own place too (stencils) are not reported: no base aligns all of them. They
are recognised by an aligned access of the same kind to the same array or through the same parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlane.chip import SECTOR_BYTES
from memlane.diagnose import cost
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.rule import Rule, Verdict, of_sectors, per_request
from memlane.record import Site, SiteCounts

MIN_PER_REQUEST, MAX_PER_REQUEST = 0.4, 1.0
"""Range of the excess sectors per request, for each block row that a warp covers."""
MIN_SHARE = 0.02
"""Minimum excess as a share of all sectors of the kernel."""
MIN_COST = 0.005
"""Minimum measured cost as a share of the warps' lifetimes: the upper bound alone depends on which level of memory served the quickest
accesses, a guess that two cycles may turn over."""
MIN_LANES = 24
"""Minimum active lanes per request, on average.

Single lanes at the edge of a tile do not form rows, and the lanes of one side of a divergent branch may span more than a sector wherever
they begin.
"""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the misaligned accesses of a kernel."""
    aligned = {_key(entry.site) for entry in evidence.by_site.values() if entry.requests and _excess(entry) == 0}
    for entry in evidence.accesses:
        excess = _excess(entry)
        rows = evidence.rows_per_warp(entry.site.nbytes)
        if excess is None or not MIN_PER_REQUEST <= excess / (entry.requests * rows) <= MAX_PER_REQUEST:
            continue
        if excess < MIN_SHARE * evidence.sectors or entry.lanes < MIN_LANES * entry.requests:
            continue
        if (evidence.row_bytes(entry.site.nbytes) or SECTOR_BYTES) < SECTOR_BYTES:
            continue  # block rows are shorter than a sector
        if any(_key(one) in aligned for one in evidence.sites_of_access(entry.site)):
            continue
        found = cost.of_sectors(evidence, entry)
        if not cost.is_noticeable(evidence, found) or (found.measured and found.cycles < MIN_COST * evidence.life):
            continue
        touched, enough = (per_request(number or 0, entry.requests) for number in (entry.sectors, entry.ideal_sectors))
        yield of_sectors(
            entry,
            found,
            f"each request touches {touched} sectors where {enough} would do",
            "its rows do not begin at a multiple of 32 bytes",
            "Start each row at a multiple of 32 bytes: pad the pitch, round the offset, or move the data that precedes it elsewhere.",
        )


def _excess(entry: SiteCounts) -> int | None:
    """Return the excess sectors of an access to global memory; None if it does not apply."""
    if (
        entry.site.space not in ("global", "generic")
        or entry.site.is_of_compiler
        or entry.site.is_atomic
        or not entry.requests
        or not entry.ideal_sectors
    ):
        return None
    return entry.excess_sectors


def _key(site: Site) -> tuple[object, ...]:
    """Return a key that is equal for accesses to the same array, as far as known."""
    if site.argument is not None:
        return site.kind, site.op, (site.argument,), site.array
    return (site.kind, site.op, site.address_parameters) if site.address_parameters else (site.kind, site.instruction)


RULE = Rule("misaligned-base", "misaligned base", examine, (COUNTS,))
