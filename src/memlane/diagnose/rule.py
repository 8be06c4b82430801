"""Define a rule, which examines the evidence of one kernel and yields verdicts."""

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
"""Kind of site -> verb for what its lanes do to an address."""


@dataclass(frozen=True)
class Verdict:
    """A problem that a rule found at one place. Its texts are parts of one paragraph."""

    site: Site
    """One of the sites of the place."""
    unit: str
    """Unit of the count: `sectors`, `wavefronts`, `lanes` or `warp cycles`."""
    transactions: int
    ideal: int
    """Minimum number of transactions."""
    what: str
    """Clause that says what the problem is, after the place."""
    cause: str
    """Why: a clause that follows `because`."""
    remedy: str
    """What to do: full sentences."""
    cost: Cost
    requests: int = 0
    bytes_requested: int = 0
    transaction_bytes: int | None = None
    """Bytes moved per transaction; None if they do not depend on the number of transactions."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The evidence, by name with unit."""
    line: int | None = None
    """Line of the finding, if it is not that of the site."""
    about: tuple[Site, ...] = ()
    """Sites concerned, if they are not those of the access that contains `site`."""
    is_of_access: bool = False
    """Whether the verdict is about an access alone, so that equal ones of the same array are one finding."""
    retell: Callable[[int], str] | None = None
    """Function from the requests of several lines to `what`, if that names them."""
    lines: tuple[int, ...] = ()
    """Lines of the finding, if there may be several."""


@dataclass(frozen=True)
class Rule:
    """A check for one kind of inefficiency."""

    id: str
    """Stable identifier for machines."""
    title: str
    examine: Callable[[Evidence], Iterable[Verdict]]
    """Function from the evidence of a kernel to verdicts; called only if all `needs` are known."""
    needs: tuple[str, ...] = ()
    """Required evidence: names of `memlane.diagnose.evidence`."""


def per_request(transactions: int, requests: int) -> str:
    """Return transactions per request in words, such as `32`, or `31.2` if requests differ."""
    mean = transactions / requests
    return rounded(mean)


def of_sectors(counts: SiteCounts, cost: Cost, what: str, cause: str, remedy: str, **numbers: float) -> Verdict:
    """Return a verdict on the sectors of one access."""
    sectors, ideal = counts.sectors or 0, counts.ideal_sectors or 0
    given = {"sectors per request": sectors / counts.requests, "ideal sectors per request": ideal / counts.requests, **numbers}
    moved = (counts.requests, counts.bytes, SECTOR_BYTES)
    return Verdict(counts.site, "sectors", sectors, ideal, what, cause, remedy, cost, *moved, given, is_of_access=True)


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
    """Return a verdict on the time of one place, or of those of its sites in `about`."""
    taken = max(round(measured), round(cost.cycles) + 1)
    return Verdict(site, CYCLES, taken, taken - round(cost.cycles), what, cause, remedy, cost, requests, numbers=numbers, about=about)
