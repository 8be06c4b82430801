"""Find uncoalesced accesses: a request to global memory touches more sectors than its bytes would fill, and hardly two lanes share one.

Global memory moves in sectors of 32 bytes. 32 contiguous lanes with 4 bytes each fill 4 of them; if each lane has a sector of its own, 32
sectors move and seven of eight bytes are wasted. If at least two lanes share each sector, it is the finding `partial-sectors`.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlane.chip import LANES, SECTOR_BYTES
from memlane.diagnose import cost
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.finding import join_names
from memlane.diagnose.rule import VERBS, Rule, Verdict, of_sectors, per_request
from memlane.diagnose.spacing import is_repeated, lane_stride, spacing_of
from memlane.number_format import plural, rounded
from memlane.record import AccessExample, Site, SiteCounts

MIN_RATIO = 1.5
"""Minimum ratio of sectors to ideal sectors to report."""
MIN_EXCESS_PER_REQUEST = 1.0
"""Excess sectors per request and block row that alignment explains: a contiguous row that does not start at a sector boundary touches one
sector more, which is misalignment. A warp may cover several block rows."""
SHARED_BY = 2
"""Lanes per sector from which it is the finding `partial-sectors`."""
MIN_ISOLATED = 0.75
"""Minimum share of an access's sectors without touched neighbours that indicates that its lanes go down columns."""
EDGES = 0.05
"""Share of lanes that may be missing from shared sectors: at an edge, or where a loop starts later for one of them."""


def is_wasteful(entry: SiteCounts, evidence: Evidence) -> bool:
    """Return whether an access to global memory moves so many excess sectors that it is this finding or `partial-sectors`."""
    if (
        entry.site.space not in ("global", "generic")
        or entry.site.is_of_compiler
        or entry.requests == 0
        or entry.sectors is None
        or not entry.ideal_sectors
    ):
        return False
    excess = entry.sectors - entry.ideal_sectors
    ratio = entry.sectors / entry.ideal_sectors
    edges = MIN_EXCESS_PER_REQUEST * evidence.rows_per_warp(entry.site.nbytes) * entry.requests
    if ratio < MIN_RATIO or excess <= edges or _has_inactive_lanes(entry, evidence):
        return False
    costs = cost.of_sectors(evidence, entry)
    return cost.is_noticeable(evidence, costs) and not cost.is_negligible_share(evidence, costs, excess / max(evidence.sectors, 1))


def _has_inactive_lanes(entry: SiteCounts, evidence: Evidence) -> bool:
    """Return whether no more sectors move than for a full warp of contiguous lanes: then inactive lanes are the cause, and a different data
    layout would not help."""
    lanes = evidence.lanes_per_warp()
    return entry.lanes < lanes * entry.requests and (entry.sectors or 0) * SECTOR_BYTES <= entry.site.nbytes * lanes * entry.requests


def shares_sectors(entry: SiteCounts, evidence: Evidence) -> bool:
    """Return whether lanes share sectors, in those accesses of a place that touch too many.

    Atomics go where their data say, so no useful data lies between.
    """
    if entry.site.is_atomic:
        return False
    counted = [evidence.by_site[one.instruction] for one in evidence.sites_of_access(entry.site) if one.instruction in evidence.by_site]
    apart = [one for one in counted if one.excess_sectors]
    sectors = sum(one.sectors or 0 for one in apart)
    # Lanes with the same word count once: `ideal_sectors` is what the distinct words would fill.
    different = [min(one.lanes, (one.ideal_sectors or 0) * SECTOR_BYTES // max(one.site.nbytes, 1)) for one in apart]
    return sum(different) >= (1 - EDGES) * SHARED_BY * sectors and not _goes_down_columns(entry, evidence, sum(different) / max(sectors, 1))


def _goes_down_columns(entry: SiteCounts, evidence: Evidence, lanes_in_sector: float) -> bool:
    """Return whether lanes share a sector only because the block has several rows and each row goes down a column.

    Then no data lies between the lanes that could be stored elsewhere. Block rows shorter than a sector are another cause.
    """
    row_bytes = evidence.row_bytes(entry.site.nbytes)
    if row_bytes is not None and row_bytes < SECTOR_BYTES:
        return False
    seen = [_isolated_share(one) for one in evidence.worst_examples(entry.site) if one.space == "global"]
    if seen:
        return min(seen) >= MIN_ISOLATED
    return 1 < evidence.rows_per_warp(entry.site.nbytes) >= lanes_in_sector


def _isolated_share(example: AccessExample) -> float:
    """Return the share of an access's sectors of which neither neighbour is touched."""
    touched = {
        (address + byte) // SECTOR_BYTES
        for lane, address in enumerate(example.addresses)
        if example.active_mask >> lane & 1
        for byte in (0, example.nbytes - 1)
    }
    return sum(not {one - 1, one + 1} & touched for one in touched) / max(len(touched), 1)


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the uncoalesced accesses of a kernel."""
    for entry in evidence.accesses:
        if is_wasteful(entry, evidence) and not shares_sectors(entry, evidence):
            sectors, ideal = entry.sectors or 0, entry.ideal_sectors or 1
            touched, enough = (per_request(number, entry.requests) for number in (sectors, ideal))
            what = f"each request touches {touched} sectors where {enough} would do ({rounded(sectors / ideal)} times the traffic)"
            told = _of_spacing(entry.site, evidence) or _of_loaded(entry.site, evidence)
            cause, advice = told or (
                _cause(entry, sectors),
                _of_thread_indices(evidence) or remedy(entry.site, is_repeated(entry.site, evidence)),
            )
            yield of_sectors(entry, cost.of_sectors(evidence, entry), what, cause, advice)


def _of_spacing(site: Site, evidence: Evidence) -> tuple[str, str] | None:
    """Return cause and remedy of lanes with a thread's neighbouring elements, or fields of a structure, between them; None for others."""
    found = spacing_of(site, evidence)
    if found is None or (found.is_repeated and not found.is_walk and len(found.offsets) < 2):
        return None
    apart = f"the lanes of one request lie {found.stride} bytes apart"
    wide = f", or let each thread {site.kind} 16 bytes at once, as {found.part}" if found.part else ""
    if found.is_walk:
        return (
            f"each thread {site.kind}s neighbouring elements one after the other, so {apart}",
            f"Let thread i of n {site.kind} elements i, i + n, i + 2n and so on{wide}.",
        )
    number = plural(len(found.offsets), "element") if found.is_whole else f"{len(found.offsets)} of {found.elements} elements"
    return (
        f"each thread {site.kind}s {number} in {found.stride} bytes one by one, so {apart}",
        f"Store each in an array of its own (an array for each field instead of an array of structures){wide}.",
    )


def _of_loaded(site: Site, evidence: Evidence) -> tuple[str, str] | None:
    """Return cause and remedy of lanes whose addresses come from loaded indices and have no constant distance; None for others."""
    if site.is_atomic or not site.address_loads or lane_stride(site, evidence) is not None or not evidence.worst_examples(site):
        return None
    known = {one.instruction: one for one in evidence.own_sites}
    indices = [known[number] for number in site.address_loads if number in known and known[number].space == "global"]
    named = join_names(tuple(dict.fromkeys(name for one in indices if (name := one.array or one.array_label))))
    if not indices:
        return None
    return (
        f"the addresses come from values that were loaded before{f' ({named})' if named else ''}, and are not contiguous",
        f"Order these values, so that neighbouring threads {VERBS[site.kind]} neighbouring addresses, or store what one value selects side "
        "by side and let several lanes access it together.",
    )


def _of_thread_indices(evidence: Evidence) -> str:
    """Return a remedy if blocks have rows and no access of the kernel to global memory has contiguous lanes; else an empty string."""
    blocks = [launch.block for launch in evidence.launches]
    made = [one for one in evidence.accesses if one.requests and one.site.space == "global" and not one.site.is_of_compiler]
    if len(made) < 2 or not blocks or min(block[0] for block in blocks) < LANES or min(block[1] for block in blocks) < 2:
        return ""
    if any(one.site.is_atomic or not is_wasteful(one, evidence) for one in made):
        return ""
    return (
        "Let `threadIdx.x` count along neighbouring addresses: no access of the kernel does, so exchange the roles of the thread's "
        "indices in all of them."
    )


def _cause(counts: SiteCounts, sectors: int) -> str:
    if sectors == counts.lanes:
        return "each lane touches a different sector"
    words = (counts.ideal_sectors or 0) * SECTOR_BYTES / max(counts.site.nbytes, 1)
    lanes_per_word = counts.lanes / max(words, 1)
    if lanes_per_word >= SHARED_BY and not counts.site.is_atomic:
        return f"its lanes access few different elements, one per {plural(lanes_per_word, 'lane')}, which are not contiguous"
    return "the addresses of its lanes are not contiguous"


def remedy(site: Site, is_loop: bool = False) -> str:
    """Return the remedy for accesses with scattered lanes. `is_loop`: whether a thread makes several of them."""
    advice = f"Let neighbouring threads {VERBS[site.kind]} neighbouring addresses"
    if site.is_atomic:
        return f"{advice}, or collect the updates in shared memory first."
    if is_loop and site.kind == "load":
        advice += ", for example by giving what a thread reads to a whole warp"
        return f"{advice}, through a shared-memory tile, or by another layout of the array: `memlane fix` tries some."
    return f"{advice}, for example through a shared-memory tile, or by another layout of the array: `memlane fix` tries some."


RULE = Rule("uncoalesced-global", "uncoalesced global access", examine, (COUNTS,))
