"""What a rule is: it looks at the counts of one place and says what is wrong there, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memlane.record import SiteCounts

VERBS = {"load": "read", "store": "store to", "atomic": "update", "reduction": "update"}
"""What the lanes do to an address, by the kind of the site."""


@dataclass(frozen=True)
class KernelTotals:
    """All transactions of one kernel, to tell what matters in it."""

    sectors: int
    """Of global memory; those of local memory are a hint that nothing is measured against."""
    wavefronts: int

    @classmethod
    def of(cls, counts: Iterable[SiteCounts]) -> KernelTotals:
        entries = list(counts)
        sectors = sum(entry.sectors or 0 for entry in entries if entry.site.space != "local")
        return cls(sectors, sum(entry.wavefronts or 0 for entry in entries))


@dataclass(frozen=True)
class Verdict:
    """What a rule found at one place. The texts are parts of one paragraph."""

    unit: str
    """What is counted: `sectors` or `wavefronts`."""
    transactions: int
    ideal: int
    """Transactions that would do."""
    transaction_bytes: int | None
    """Bytes that one transaction moves, None where they do not vary with the number of transactions."""
    what: str
    """What happens: a clause that follows the name of the place."""
    cause: str
    """Why: a clause that follows `because`."""
    remedy: str
    """What to do: full sentences."""


@dataclass(frozen=True)
class Rule:
    """One thing that can be wrong with memory accesses."""

    id: str
    """For machines; does not change."""
    title: str
    examine: Callable[[SiteCounts, KernelTotals], Verdict | None]
    """The counts of one place, and of its whole kernel -> what is wrong, None if nothing is."""


def per_request(transactions: int, requests: int) -> str:
    """`32`, or `31.2` where requests differ."""
    mean = transactions / requests
    return str(round(mean)) if transactions % requests == 0 else f"{mean:.3g}"
