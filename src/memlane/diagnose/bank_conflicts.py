"""Bank conflicts: a request to shared memory takes more wavefronts than its bytes need, because lanes wait for each other at a bank."""

from __future__ import annotations

from memlane.diagnose.rule import VERBS, KernelTotals, Rule, Verdict, per_request
from memlane.record import SiteCounts

MIN_RATIO = 1.25
"""Wavefronts over ideal from which on it is worth a word."""
MIN_SHARE = 0.01
"""Excess over all wavefronts of the kernel: less than this changes nothing that can be felt."""

_WHOLE = 0.02
"""A ratio so close to a whole number is called by it."""


def examine(counts: SiteCounts, kernel: KernelTotals) -> Verdict | None:
    """See the module. Goes by the counts, not by the space: a generic access may turn out to be to shared memory."""
    if counts.requests == 0 or counts.wavefronts is None or not counts.ideal_wavefronts:
        return None
    excess = counts.wavefronts - counts.ideal_wavefronts
    ratio = counts.wavefronts / counts.ideal_wavefronts
    if ratio < MIN_RATIO or excess < MIN_SHARE * kernel.wavefronts:
        return None
    taken, enough = (per_request(number, counts.requests) for number in (counts.wavefronts, counts.ideal_wavefronts))
    return Verdict(
        unit="wavefronts",
        transactions=counts.wavefronts,
        ideal=counts.ideal_wavefronts,
        transaction_bytes=None,
        what=f"{_ways(ratio)}: each request takes {taken} wavefronts where {enough} would do",
        cause=_cause(counts),
        remedy=_remedy(counts),
    )


def _ways(ratio: float) -> str:
    if abs(ratio - round(ratio)) < _WHOLE:
        return f"{round(ratio)}-way bank conflict"
    return f"bank conflicts, {ratio:.1f}-way on average"


def _cause(counts: SiteCounts) -> str:
    asked = "ask for" if counts.site.kind in ("load", "store") else VERBS[counts.site.kind]
    cause = f"lanes {asked} different words of the same bank"
    if (counts.lanes_per_address or 1) <= 1:
        return cause
    # Most atomics go to one word lane after lane; some are put together there, so it may be either.
    return f"{cause}, or the same word one after the other ({counts.lanes_per_address:.3g} lanes at an address on average)"


def _remedy(counts: SiteCounts) -> str:
    if counts.site.kind in ("load", "store"):
        return "Pad each row of the shared array by one element, or swizzle the index, so that the lanes fall in different banks."
    return "Pad or permute the array, so that what is updated together falls in different banks, or copy it for groups of lanes."


RULE = Rule("bank-conflict", "shared-memory bank conflict", examine)
