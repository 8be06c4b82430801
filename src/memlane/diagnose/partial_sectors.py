"""Find partly used sectors: lanes share sectors but use only part of each, such as every second element or one field of a small
structure."""

from __future__ import annotations

from collections.abc import Iterator

from memlane.chip import SECTOR_BYTES
from memlane.diagnose import cost
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.rule import Rule, Verdict, of_sectors, per_request
from memlane.diagnose.spacing import lane_stride, spacing_of
from memlane.diagnose.uncoalesced import is_wasteful, shares_sectors
from memlane.number_format import percent, plural
from memlane.record import Site

_SKIPPING = (
    "the lanes skip the data between the elements that they access",
    "Store data that is used together side by side (an array for each field instead of an array of structures), or let each thread "
    "use the data that it skips now.",
)


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the accesses of a kernel that use their sectors partly."""
    for entry in evidence.accesses:
        if not is_wasteful(entry, evidence) or not shares_sectors(entry, evidence):
            continue
        sectors, ideal = entry.sectors or 0, entry.ideal_sectors or 1
        used = ideal / sectors
        rows, row_bytes = evidence.rows_per_warp(entry.site.nbytes), evidence.row_bytes(entry.site.nbytes)
        if (lane_stride(entry.site, evidence) or 0) > entry.site.nbytes:
            cause, remedy = _of_skipping(entry.site, evidence)
        else:
            cause, remedy = _cause_and_remedy(row_bytes, rows, sectors / entry.requests)
        touched, enough = (per_request(number, entry.requests) for number in (sectors, ideal))
        yield of_sectors(
            entry,
            cost.of_sectors(evidence, entry),
            f"only {percent(used)} of the moved bytes are used: each request touches {touched} where {enough} would do",
            cause,
            remedy,
            **{"used share": used},
        )


def _cause_and_remedy(row_bytes: int | None, rows: int, per_request: float) -> tuple[str, str]:
    """Return cause and remedy. `rows`: block rows per warp.

    If each row touches no more sectors than its alignment explains, no data is skipped in it.
    """
    if row_bytes is not None and row_bytes < SECTOR_BYTES:
        return (
            f"a row of its block has at most {plural(row_bytes, 'contiguous byte')}, and a sector has {SECTOR_BYTES}",
            "Make the block wider and lower, so that its rows fill sectors.",
        )
    if row_bytes is not None and rows > 1 and per_request <= rows * (row_bytes // SECTOR_BYTES + 1):
        return (
            f"a warp covers {plural(rows, 'row')} of its block, which begin inside a sector or have inactive lanes",
            "Let each row begin at a multiple of 32 bytes, and make the block wider and lower, so that a warp covers fewer rows.",
        )
    return _SKIPPING


def _of_skipping(site: Site, evidence: Evidence) -> tuple[str, str]:
    """Return cause and remedy of lanes between whose elements others lie, which each thread may access by other instructions."""
    found = spacing_of(site, evidence)
    if found is None or not found.is_whole:
        return _SKIPPING
    cause = (
        f"each thread {site.kind}s {found.elements} neighbouring elements one by one, so the lanes of one request lie {found.stride} bytes "
        "apart"
    )
    if found.vector:
        return cause, f"Let each thread {site.kind} the {found.elements} elements at once, as {found.vector}."
    return cause, (
        f"Store each of the {found.elements} in an array of its own, or let neighbouring lanes copy neighbouring words to shared memory "
        "first, and use them from there."
    )


RULE = Rule("partial-sectors", "partly used sectors", examine, (COUNTS,))
