"""What a rule is: it looks at all that is known of one kernel and says what is wrong where, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from memlane.chip import SECTOR_BYTES
from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import Evidence
from memlane.diagnose.finding import CYCLES
from memlane.number_format import rounded
from memlane.record import Site, SiteCounts

VERBS = {"load": "read", "store": "store to", "atomic": "update", "reduction": "update", "copy": "copy from"}
"""What the lanes do to an address, by the kind of the site."""


@dataclass(frozen=True)
class Verdict:
    """What a rule found at one place. The texts are parts of one paragraph."""

    site: Site
    """Where: one of the sites of the place."""
    unit: str
    """What is counted: `sectors`, `wavefronts`, `lanes` or `warp cycles`."""
    transactions: int
    ideal: int
    """That would do."""
    what: str
    """What happens: a clause that follows the name of the place."""
    cause: str
    """Why: a clause that follows `because`."""
    remedy: str
    """What to do: full sentences."""
    cost: Cost
    requests: int = 0
    bytes_requested: int = 0
    transaction_bytes: int | None = None
    """Bytes that one transaction moves, None where they do not vary with the number of transactions."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The evidence, by name with its unit."""
    line: int | None = None
    """Where the finding is, if not at the line of the site."""
    about: tuple[Site, ...] = ()
    """The sites that it is about, if those are not the sites of the access of `site`."""


@dataclass(frozen=True)
class Rule:
    """One thing that can be wrong with memory accesses."""

    id: str
    """For machines; does not change."""
    title: str
    examine: Callable[[Evidence], Iterable[Verdict]]
    """What is known of a kernel -> what is wrong in it. It is only asked where all that it needs is known."""
    needs: tuple[str, ...] = ()
    """What must be known: names of `memlane.diagnose.evidence`."""


def per_request(transactions: int, requests: int) -> str:
    """`32`, or `31.2` where requests differ."""
    mean = transactions / requests
    return rounded(mean)


def of_sectors(counts: SiteCounts, cost: Cost, what: str, cause: str, remedy: str, **numbers: float) -> Verdict:
    """A verdict on the sectors of one place."""
    sectors, ideal = counts.sectors or 0, counts.ideal_sectors or 0
    given = {"sectors per request": sectors / counts.requests, "ideal sectors per request": ideal / counts.requests, **numbers}
    return Verdict(counts.site, "sectors", sectors, ideal, what, cause, remedy, cost, counts.requests, counts.bytes, SECTOR_BYTES, given)


def in_cycles(
    site: Site,
    measured: float,
    cost: Cost,
    what: str,
    cause: str,
    remedy: str,
    requests: int,
    about: tuple[Site, ...] = (),
    /,
    **numbers: float,
) -> Verdict:
    """A verdict on the time of one place, or of those of its sites that it is `about`."""
    taken = max(round(measured), round(cost.cycles) + 1)
    return Verdict(site, CYCLES, taken, taken - round(cost.cycles), what, cause, remedy, cost, requests, numbers=numbers, about=about)
