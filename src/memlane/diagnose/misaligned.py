"""Misaligned base: lanes lie side by side, but their row does not begin at a sector, so that each request touches one sector more.

Accesses to the neighbours of elements that are read at their place anyway (stencils) are no finding: no base makes all of them aligned.
They are told by another access of the same kind, to the same array or through the same parameters, that is aligned.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlane.chip import SECTOR_BYTES
from memlane.diagnose import cost
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.rule import Rule, Verdict, of_sectors, per_request
from memlane.record import Site, SiteCounts

MIN_PER_REQUEST, MAX_PER_REQUEST = 0.4, 1.0
"""Excess sectors of the mean request, for each row of a block that the warp consists of."""
MIN_SHARE = 0.02
"""Excess over all sectors of the kernel."""
MIN_LANES = 24
"""Of the mean request: single lanes at the edge of a tile are no rows, and where the lanes of a warp take two ways, those of one way may
reach over more than a sector, wherever it begins."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """See the module."""
    aligned = {_key(entry.site) for entry in evidence.by_site.values() if entry.requests and _excess(entry) == 0}
    for entry in evidence.accesses:
        excess = _excess(entry)
        rows = evidence.rows_per_warp(entry.site.nbytes)
        if excess is None or not MIN_PER_REQUEST <= excess / (entry.requests * rows) <= MAX_PER_REQUEST:
            continue
        if excess < MIN_SHARE * evidence.sectors or entry.lanes < MIN_LANES * entry.requests:
            continue
        if (evidence.row_bytes(entry.site.nbytes) or SECTOR_BYTES) < SECTOR_BYTES:
            continue  # rows of the block are shorter than a sector, wherever they begin
        if any(_key(one) in aligned for one in evidence.together(entry.site)):
            continue
        if not cost.is_felt(evidence, cost.of_sectors(evidence, entry)):
            continue
        touched, enough = (per_request(number or 0, entry.requests) for number in (entry.sectors, entry.ideal_sectors))
        yield of_sectors(
            entry,
            cost.of_sectors(evidence, entry),
            f"each request touches {touched} sectors where {enough} would do",
            "its rows do not begin at a multiple of 32 bytes",
            "Start each row at a multiple of 32 bytes: pad the pitch, round the offset, or move the data that precedes it elsewhere.",
        )


def _excess(entry: SiteCounts) -> int | None:
    """Excess sectors of an access to global memory; None where nothing can be said."""
    if (
        entry.site.space not in ("global", "generic")
        or entry.site.is_of_compiler
        or entry.site.is_atomic
        or not entry.requests
        or not entry.ideal_sectors
    ):
        return None
    return entry.excess_sectors


def _key(site: Site) -> tuple[str, str, tuple[int, ...]] | tuple[str, int]:
    """Accesses with the same key lead to the same array, as far as is known."""
    if site.argument is not None:
        return site.kind, site.op, (site.argument,)
    return (site.kind, site.op, site.address_parameters) if site.address_parameters else (site.kind, site.instruction)


RULE = Rule("misaligned-base", "misaligned base", examine, (COUNTS,))
