"""Uncoalesced access: a request to global memory touches more sectors than its bytes would fill.

Global memory moves in sectors of 32 bytes. 32 lanes with 4 bytes each fill 4 of them when they lie side by side; when each lane has a
sector of its own, 32 sectors move and seven bytes in eight are for nothing.
"""

from __future__ import annotations

from memlane.diagnose.rule import VERBS, KernelTotals, Rule, Verdict, per_request
from memlane.record import SECTOR_BYTES, SiteCounts

MIN_RATIO = 1.5
"""Sectors over ideal from which on it is worth a word."""
MIN_EXCESS_PER_REQUEST = 1.0
"""A row of neighbouring addresses that does not start at a sector touches one sector more. That is misalignment, not this finding."""
MIN_SHARE = 0.01
"""Excess over all sectors of the kernel: less than this changes nothing that can be felt."""


def examine(counts: SiteCounts, kernel: KernelTotals) -> Verdict | None:
    """See the module."""
    if counts.site.space not in ("global", "generic") or counts.requests == 0 or counts.sectors is None or not counts.ideal_sectors:
        return None
    excess = counts.sectors - counts.ideal_sectors
    ratio = counts.sectors / counts.ideal_sectors
    if ratio < MIN_RATIO or excess <= MIN_EXCESS_PER_REQUEST * counts.requests or excess < MIN_SHARE * kernel.sectors:
        return None
    touched, enough = (per_request(number, counts.requests) for number in (counts.sectors, counts.ideal_sectors))
    return Verdict(
        unit="sectors",
        transactions=counts.sectors,
        ideal=counts.ideal_sectors,
        transaction_bytes=SECTOR_BYTES,
        what=f"each request touches {touched} sectors where {enough} would do ({ratio:.1f}x the traffic)",
        cause=_cause(counts, counts.sectors),
        remedy=_remedy(counts),
    )


def _cause(counts: SiteCounts, sectors: int) -> str:
    if sectors == counts.lanes:
        return "every lane touches a sector of its own"
    return "the addresses of its lanes do not lie side by side"


def _remedy(counts: SiteCounts) -> str:
    site = counts.site
    advice = f"Let neighbouring threads {VERBS[site.kind]} neighbouring addresses"
    if site.kind in ("load", "store"):
        return f"{advice}, for example through a shared-memory tile."
    return f"{advice}, or collect the updates in shared memory first."


RULE = Rule("uncoalesced-global", "uncoalesced global access", examine)
