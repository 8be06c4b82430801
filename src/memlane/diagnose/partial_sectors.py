"""Find partly used sectors: lanes share sectors but use only part of each, such as every second element or one field of a small
structure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memlane.chip import SECTOR_BYTES
from memlane.diagnose import cost
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.rule import Rule, Verdict, of_sectors, per_request
from memlane.diagnose.uncoalesced import is_wasteful, shares_sectors
from memlane.number_format import percent, plural
from memlane.record import Site

_SKIPPING = (
    "the lanes skip the data between the elements that they access",
    "Store data that is used together side by side (an array for each field instead of an array of structures), or let each thread "
    "use the data that it skips now.",
)
_VECTORS = {
    (1, 2): "`uchar2`",
    (1, 4): "`uchar4`",
    (1, 8): "`uint2`",
    (1, 16): "`uint4`",
    (2, 2): "`half2` or `short2`",
    (2, 4): "`uint2`",
    (2, 8): "`uint4`",
    (4, 2): "`float2` or `int2`",
    (4, 4): "`float4` or `int4`",
    (8, 2): "`double2`",
}
"""Bytes of an element and number of elements -> the vector of them."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the accesses of a kernel that use their sectors partly."""
    for entry in evidence.accesses:
        if not is_wasteful(entry, evidence) or not shares_sectors(entry, evidence):
            continue
        sectors, ideal = entry.sectors or 0, entry.ideal_sectors or 1
        used = ideal / sectors
        rows, row_bytes = evidence.rows_per_warp(entry.site.nbytes), evidence.row_bytes(entry.site.nbytes)
        skipped = _stride(entry.site, evidence) or 0
        if skipped > entry.site.nbytes:
            cause, remedy = _of_skipping(entry.site, skipped, evidence)
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


def _stride(site: Site, evidence: Evidence) -> int | None:
    """Bytes from one lane's element to the next one's in the worst accesses of a place, for most lanes; None where none were seen."""
    steps: Counter[int] = Counter()
    for example in evidence.worst_examples(site):
        seen = zip(example.addresses, example.addresses[1:], strict=False)
        for lane, (one, following) in enumerate(seen if example.space == "global" else ()):
            if example.active_mask >> lane & 3 == 3 and one != following:
                steps[abs(following - one)] += 1
    return steps.most_common(1)[0][0] if steps else None


def _of_skipping(site: Site, stride: int, evidence: Evidence) -> tuple[str, str]:
    """The cause and remedy of lanes between whose elements others lie: each thread may access those by other instructions of the kernel."""
    count, offsets = stride // site.nbytes, set[int]()
    for entry in evidence.accesses:
        one = entry.site
        alike = one.array == site.array and one.kind == site.kind and one.nbytes == site.nbytes
        if alike and one.array and _stride(one, evidence) == stride:
            offsets |= {min(example.addresses) % stride for example in evidence.worst_examples(one)}
    vector = _VECTORS.get((site.nbytes, count))
    if vector is None or site.kind not in ("load", "store") or stride % site.nbytes or len(offsets) < count:
        return _SKIPPING
    return (
        f"each thread {site.kind}s {count} neighbouring elements one by one, so the lanes of one request lie {stride} bytes apart",
        f"Let each thread {site.kind} the {count} elements at once, as {vector}.",
    )


RULE = Rule("partial-sectors", "partly used sectors", examine, (COUNTS,))
