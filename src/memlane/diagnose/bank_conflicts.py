"""Find bank conflicts: requests to shared memory that take more wavefronts than their bytes need, because lanes use different words of one
bank.

Atomics in which many lanes update one address are the finding `contended-atomics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from memlane.chip import Chip
from memlane.chip.model import AccessKind
from memlane.compile.extents import Rows, is_dynamic, written_rows
from memlane.diagnose import cost
from memlane.diagnose.contended_atomics import is_contended
from memlane.diagnose.evidence import COUNTS, SAME, Evidence
from memlane.diagnose.rule import VERBS, Rule, Verdict, per_request
from memlane.layout.padding import LaneDistances, least_padding, padded_wavefronts
from memlane.number_format import plural, rounded
from memlane.record import AccessExample, Site, SiteCounts

MIN_RATIO = 1.25
"""Minimum ratio of wavefronts to ideal wavefronts to report."""

_WHOLE = 0.02
"""Largest difference from a whole number at which a ratio is rounded to it."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the bank conflicts of a kernel. Selects by the counts, not by the space, since a generic access may reach shared memory."""
    for entry in evidence.accesses:
        if entry.requests == 0 or entry.wavefronts is None or not entry.ideal_wavefronts or is_contended(entry):
            continue
        excess = entry.wavefronts - entry.ideal_wavefronts
        ratio = entry.wavefronts / entry.ideal_wavefronts
        if ratio < MIN_RATIO or _updates_one_word(entry):
            continue
        costs = cost.of_wavefronts(evidence, entry)
        negligible = cost.is_negligible_share(evidence, costs, excess / max(evidence.wavefronts, 1))
        if negligible or not cost.is_noticeable(evidence, costs):
            continue
        taken, enough = (per_request(number, entry.requests) for number in (entry.wavefronts, entry.ideal_wavefronts))
        yield Verdict(
            site=entry.site,
            unit="wavefronts",
            transactions=entry.wavefronts,
            ideal=entry.ideal_wavefronts,
            what=f"{_ways(entry, ratio)}: each request takes {taken} wavefronts where {enough} would do",
            cause=_cause(entry),
            remedy=_remedy_from_examples(evidence, entry) or _remedy(entry, evidence.has_narrow_rows(), _widest(evidence, entry.site)),
            cost=costs,
            requests=entry.requests,
            bytes_requested=entry.bytes,
            is_of_access=True,
            numbers={
                "wavefronts per request": entry.wavefronts / entry.requests,
                "ideal wavefronts per request": entry.ideal_wavefronts / entry.requests,
            },
        )


def _updates_one_word(entry: SiteCounts) -> bool:
    """Return whether all lanes of each request update one word, so that they serialise there but no two words share a bank."""
    return entry.site.is_atomic and entry.addresses == entry.requests


def _ways(entry: SiteCounts, ratio: float) -> str:
    if entry.site.kind == "copy":
        return "lanes of a copy wait for each other"
    if abs(ratio - round(ratio)) < _WHOLE:
        return f"{round(ratio)}-way bank conflict"
    return f"bank conflicts, {rounded(ratio)}-way on average"


def _cause(counts: SiteCounts) -> str:
    if counts.site.kind == "copy":
        return "lanes use the same bank where they read or where they write, or the two sides are aligned differently"
    asked = VERBS[counts.site.kind] if counts.site.is_atomic else "access"
    cause = f"lanes {asked} different words of the same bank"
    if (counts.lanes_per_address or 1) <= 1:
        return cause
    # Atomics on one word mostly serialise lane by lane; some are combined, so either may be the cause.
    return f"{cause}, or the same word one after another ({plural(counts.lanes_per_address, 'lane')} per address on average)"


def _widest(evidence: Evidence, site: Site) -> int:
    """Return the bytes of the kernel's widest known access to the same array."""
    same = [one.nbytes for one in evidence.own_sites if one.has_wavefronts and site.array and one.array == site.array]
    return max(same, default=site.nbytes)


def _remedy_from_examples(evidence: Evidence, entry: SiteCounts) -> str:
    """Return a remedy computed from recorded lane addresses; empty if there are none or they are inconclusive."""
    site = entry.site
    if site.kind == "copy" or site.is_atomic or not entry.requests or evidence.chip is None:
        return ""
    own = [one for one in evidence.worst_examples(site) if one.space == "shared"]
    if not own:
        return ""
    counted = {one.id: evidence.by_site[one.instruction] for one in evidence.sites if one.instruction in evidence.by_site}
    seen = sum(one.transactions * counted[one.site].requests for one in own if one.site in counted)
    if abs(seen - (entry.wavefronts or 0)) > SAME * seen:
        return "Its accesses differ, so one padding of its rows may not suit all of them: `memlane fix` tries paddings and swizzles."
    text = evidence.sources.get(site.file, "")
    rows = written_rows(text, evidence.kernel, site.array) if site.array else None
    of_array = {one.id for one in evidence.own_sites if one.array == site.array and one.kind != "copy"}
    several = [one for one in evidence.examples if one.worst and one.space == "shared" and one.site in of_array and one.site in counted]
    if not several:
        return ""
    seen_all = [(one, counted[one.site].requests) for one in several]
    advice = _padding(evidence.chip, rows, seen_all, {one.site for one in own}, site.array)
    # The launch sets the length of a dynamic array, so `fix` cannot pad it.
    return advice.replace("tries that, and swizzles", "tries swizzles") if site.array and is_dynamic(text, site.array) else advice


def _padding(chip: Chip, rows: Rows | None, seen: Sequence[tuple[AccessExample, int]], own: set[int], array: str) -> str:
    """Return the padding that suits all accesses of an array, and its effect on the sites `own`.

    For an array with unknown rows, the usual padding is tried: one unused element after as many as fill the banks once.
    """
    element = (rows.element_bytes if rows else None) or min(one.nbytes for one, _ in seen)
    columns = rows.columns if rows else chip.banks.banks * chip.banks.bank_bytes // element
    vector = max(1, max(one.nbytes for one, _ in seen) // element)
    lanes = {one.site: _distances(one, requests, element) for one, requests in seen}
    pad = least_padding(list(lanes.values()), columns, element, vector, chip) if rows else vector
    mine = [lanes[number] for number in lanes if number in own]
    requests = sum(one.weight for one in mine)
    now, then = (padded_wavefronts(mine, columns, more, element, chip) / requests for more in (0, pad))
    aligned = f" that keeps its accesses of {plural(vector * element, 'byte')} aligned" if vector > 1 else ""
    named = f"`{array}`" if array else "the shared array"
    if then >= (1 - SAME) * now:
        of_rows = f"of the rows of {named}" if rows else f"of {named}"
        return f"Swizzle the index (`memlane fix` tries several swizzles): no padding {of_rows}{aligned} reduces the wavefronts."
    more = plural(pad, "element")
    longer = f"Pad each row of {named} by {more}, from {columns} to {columns + pad}"
    if rows is None:
        longer = f"Leave {more} of {named} unused after every {columns} (index i + {f'{pad} * ' if pad > 1 else ''}(i / {columns}))"
    least = sum(one.weight * ideal for one, ideal in zip(mine, _ideals(seen, own), strict=True)) / requests
    if then <= (1 + SAME) * least:
        return f"{longer}, so that its lanes use different banks. `memlane fix` tries that, and swizzles."
    return (
        f"{longer}, which takes {plural(then, 'wavefront')} per request instead of {rounded(now)}, or swizzle the index; `memlane fix` "
        "tries both."
    )


def _distances(example: AccessExample, requests: int, element: int) -> LaneDistances:
    active = [address for lane, address in enumerate(example.addresses) if example.active_mask >> lane & 1]
    elements = (np.array(example.addresses, np.int64) - min(active)) // element
    kind: AccessKind = "store" if example.access == "store" else "load"
    return LaneDistances(elements, example.active_mask, example.nbytes, kind, requests)


def _ideals(seen: Sequence[tuple[AccessExample, int]], own: set[int]) -> list[int]:
    return list({one.site: one.ideal for one, _ in seen if one.site in own}.values())


def _remedy(counts: SiteCounts, narrow_rows: bool, widest: int) -> str:
    """Return a remedy for the general case.

    `narrow_rows`: a warp covers several rows of its block, so one padding element per row may move a conflict rather than end it. `widest`:
    bytes of the widest access to the array, which must stay aligned.
    """
    if counts.site.kind == "copy":
        return (
            "Let neighbouring lanes copy whole 128-byte lines, with the same offset within 32 bytes on both sides. If lanes conflict "
            "in shared memory, pad its rows by whole copies or swizzle the index."
        )
    if not counts.site.is_atomic and narrow_rows:
        return (
            "Choose the length of a row of the shared array so that the rows of one warp fall in different banks (padding by one "
            "element may not be enough), or swizzle the index."
        )
    if not counts.site.is_atomic and widest > counts.site.nbytes:
        return (
            f"Swizzle the index, or pad each row of the shared array by {plural(widest // counts.site.nbytes, 'element')}, so that the "
            f"lanes fall in different banks and its accesses of {plural(widest, 'byte')} stay aligned; `memlane fix` tries both."
        )
    if not counts.site.is_atomic:
        return "Pad each row of the shared array by one element, or swizzle the index, so that the lanes fall in different banks."
    return "Pad or permute the array so that elements updated together lie in different banks, or give groups of lanes their own copies."


RULE = Rule("bank-conflict", "shared-memory bank conflict", examine, (COUNTS,))
