"""Count the transactions of a launch by site, and sum them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from memlane.chip import SECTOR_BYTES
from memlane.record.site import EXACT, HINT, MERGED, NOT_CHECKED, Place, Site, Skipped
from memlane.titles import kernel_label


class _Derived:
    """Properties derived from the numbers of both `SiteCounts` and `Totals`."""

    requests: int
    lanes: int
    sectors: int | None
    ideal_sectors: int | None
    wavefronts: int | None
    ideal_wavefronts: int | None

    @property
    def lanes_per_request(self) -> float | None:
        """Active lanes per request on average, 1 to 32; None without a request."""
        return self.lanes / self.requests if self.requests else None

    @property
    def bytes_moved(self) -> int | None:
        """Bytes of the transferred sectors, whole sectors always."""
        return None if self.sectors is None else self.sectors * SECTOR_BYTES

    @property
    def excess_sectors(self) -> int | None:
        """Sectors in excess of the ideal."""
        return None if self.sectors is None or self.ideal_sectors is None else self.sectors - self.ideal_sectors

    @property
    def conflicts(self) -> int | None:
        """Wavefronts in excess of the ideal: bank conflicts, and lanes of an atomic that are serialised at one word."""
        return None if self.wavefronts is None or self.ideal_wavefronts is None else self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True)
class SiteCounts(_Derived):
    """Transactions of one site, summed over a launch. None where a count has no meaning for the space of the site."""

    site: Site
    requests: int
    """Executions by a warp with at least one active lane."""
    lanes: int
    """Active lanes, summed over the requests."""
    bytes: int
    """Bytes that the lanes requested."""
    sectors: int | None = None
    """Sectors of `SECTOR_BYTES` transferred, summed over the requests; on chips that transfer more at once (lines, segments), all of it.

    For local memory: as if each access of the PTX were one access, with the lanes' copies interleaved by words of 4 bytes. ptxas may keep
    local variables in registers and spill others, so it is a hint.
    """
    ideal_sectors: int | None = None
    """Sectors that the distinct bytes would fill."""
    wavefronts: int | None = None
    """Passes through the banks of shared memory."""
    ideal_wavefronts: int | None = None
    """Wavefronts that the distinct bytes would need without bank conflicts."""
    addresses: int | None = None
    """Distinct addresses of each request of an atomic or a reduction, summed over the requests."""
    most_lanes_at_address: int | None = None
    """Maximum number of lanes of one request at one address, 1 to 32, for atomics and reductions."""

    exactness: str = NOT_CHECKED
    """Whether the SASS accesses memory as counted here: `exact`, `merged`, `hint` or `not checked`; see `Counts.checked`."""
    exactness_reason: str = ""
    """Reason why it is not exact."""
    assembled: str = ""
    """SASS accesses that implement the site or contain it, such as `1 x 16 B shared load`; empty if there is none or it was not read."""
    merged: tuple[int, ...] = ()
    """Numbers of the sites that were merged into one access with this one, by their addresses; empty if the addresses do not show them."""

    @property
    def is_full(self) -> bool:
        """Whether every request had all lanes of its warp."""
        return self.lanes == self.site.full_lanes * self.requests

    @property
    def lanes_per_address(self) -> float | None:
        """Lanes of atomics and reductions per distinct address of a request, on average."""
        return self.lanes / self.addresses if self.addresses else None

    def of_known_memory(self) -> SiteCounts:
        """Return the counts with unknown sectors and wavefronts, not 0, if a generic access led to constants or to another block of its
        cluster, where nothing is counted."""
        if self.site.space not in ("generic", "shared::cluster") or not self.lanes or self.sectors or self.wavefronts:
            return self
        return replace(self, sectors=None, ideal_sectors=None, wavefronts=None, ideal_wavefronts=None)

    def of_products(self) -> SiteCounts:
        """Return the counts of a product with its wavefronts, which follow from its requests; other counts are unchanged."""
        if self.site.kind != "product":
            return self
        wavefronts = self.site.product_wavefronts(self.requests)
        return replace(self, wavefronts=wavefronts, ideal_wavefronts=wavefronts)

    def __post_init__(self) -> None:
        if self.exactness not in _WEAKNESS:
            raise ValueError(f"exactness is {self.exactness!r}, not one of {', '.join(_WEAKNESS)}")

    def plus(self, other: SiteCounts) -> SiteCounts:
        """Return the sum of both, under the site of the first: for another launch, or another site of the same source line."""
        most = [one for one in (self.most_lanes_at_address, other.most_lanes_at_address) if one is not None]
        return replace(
            self,
            requests=self.requests + other.requests,
            lanes=self.lanes + other.lanes,
            bytes=self.bytes + other.bytes,
            sectors=_both(self.sectors, other.sectors),
            ideal_sectors=_both(self.ideal_sectors, other.ideal_sectors),
            wavefronts=_both(self.wavefronts, other.wavefronts),
            ideal_wavefronts=_both(self.ideal_wavefronts, other.ideal_wavefronts),
            addresses=_both(self.addresses, other.addresses),
            most_lanes_at_address=max(most) if most else None,
            exactness=max(self.exactness, other.exactness, key=_WEAKNESS.index),
            exactness_reason=_joined(self.exactness_reason, other.exactness_reason),
            assembled=_joined(self.assembled, other.assembled),
        )

    def as_row(self) -> dict[str, Any]:
        """Return the properties of the site, the fields of the counts and the derived values."""
        site = {column: getattr(self.site, name) for column, name in _SITE_COLUMNS.items()}
        return {**site, **{name: value for name, value in _plain(self).items() if name != "site"}, **self.derived()}

    def derived(self) -> dict[str, Any]:
        """Return the derived values by name."""
        return {name: getattr(self, name) for name in DERIVED}


_SITE_COLUMNS = {
    **{name: name for name in ("kernel", "file", "line", "column", "instruction", "called", "op", "kind", "space")},
    "bytes_per_lane": "nbytes",
}
"""Fields of a site in a table of counts, by column name."""

DERIVED = ("lanes_per_request", "bytes_moved", "excess_sectors", "conflicts", "lanes_per_address")
"""Properties of `SiteCounts` that tables and documents show next to its fields."""


def total_by_place(counts: Iterable[SiteCounts]) -> dict[Place, SiteCounts]:
    """Return the counts of each place, summed over its sites (an unrolled loop has several) and over launches."""
    totals: dict[Place, SiteCounts] = {}
    for entry in counts:
        place = entry.site.place
        totals[place] = totals[place].plus(entry) if place in totals else entry
    return totals


def _both(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


_WEAKNESS = (EXACT, MERGED, HINT, NOT_CHECKED)
"""Exactness from the strongest to the weakest; several sites together have the weakest of theirs."""


def _joined(one: str, other: str) -> str:
    return "; ".join(dict.fromkeys(text for joined in (one, other) for text in joined.split("; ") if text))


@dataclass(frozen=True)
class Exactness:
    """Verdict of the SASS on one site: the fields of `SiteCounts` with the same names."""

    exactness: str
    exactness_reason: str = ""
    assembled: str = ""
    merged: tuple[int, ...] = ()
    exact_if_full: bool = False
    """Whether a hint is exact in a launch in which every request of the site had all lanes of its warp."""

    def of(self, entry: SiteCounts) -> SiteCounts:
        """Return the counts of the site in one launch with this verdict."""
        if self.exact_if_full and entry.is_full:
            return replace(entry, exactness=EXACT, exactness_reason="", assembled=self.assembled)
        said = {name: value for name, value in _plain(self).items() if name != "exact_if_full"}
        return replace(entry, **said)


def _plain(entry: Any) -> dict[str, Any]:
    return {one.name: getattr(entry, one.name) for one in fields(entry)}


@dataclass(frozen=True)
class BranchCounts:
    """Counts of one branch instruction, summed over a launch, in PTX (ptxas may predicate it away)."""

    kernel: str
    file: str
    line: int
    executions: int
    """Executions by a warp."""
    divergent: int
    """Executions in which the active lanes diverged."""


@dataclass(frozen=True)
class Totals(_Derived):
    """Counts of a kernel, or a part of it, over all its sites and branches. 0 if it has none of a kind."""

    requests: int
    lanes: int
    bytes: int
    """Bytes that the lanes requested, in any space."""
    sectors: int
    """Sectors of global memory, and of local memory accessed through generic addresses."""
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int
    local_requests: int
    """Requests that name local memory; a hint, as their sectors are."""
    local_sectors: int
    atomic_requests: int
    """Requests that are atomics or reductions."""
    atomic_lanes: int
    addresses: int
    """Distinct addresses of each atomic request, summed."""
    most_lanes_at_address: int
    branches: int
    """Conditional branches executed by a warp, in PTX."""
    divergent_branches: int
    """Branches in which the active lanes diverged."""

    @property
    def lanes_per_address(self) -> float | None:
        """Lanes of atomics per distinct address of a request, on average; None without atomics."""
        return self.atomic_lanes / self.addresses if self.addresses else None

    @property
    def local_bytes_moved(self) -> int:
        """Bytes of the sectors of local memory; `bytes_moved` is without them."""
        return self.local_sectors * SECTOR_BYTES

    @classmethod
    def of(cls, sites: Iterable[SiteCounts], branches: Iterable[BranchCounts] = ()) -> Totals:
        """Return the totals of some sites and branches."""
        sites, branches = list(sites), list(branches)
        local = [one for one in sites if one.site.space == "local"]
        elsewhere = [one for one in sites if one.site.space != "local"]
        atomic = [one for one in sites if one.site.is_atomic]
        return cls(
            requests=sum(one.requests for one in sites),
            lanes=sum(one.lanes for one in sites),
            bytes=sum(one.bytes for one in sites),
            sectors=sum(one.sectors or 0 for one in elsewhere),
            ideal_sectors=sum(one.ideal_sectors or 0 for one in elsewhere),
            wavefronts=sum(one.wavefronts or 0 for one in sites),
            ideal_wavefronts=sum(one.ideal_wavefronts or 0 for one in sites),
            local_requests=sum(one.requests for one in local),
            local_sectors=sum(one.sectors or 0 for one in local),
            atomic_requests=sum(one.requests for one in atomic),
            atomic_lanes=sum(one.lanes for one in atomic),
            addresses=sum(one.addresses or 0 for one in atomic),
            most_lanes_at_address=max((one.most_lanes_at_address or 0 for one in atomic), default=0),
            branches=sum(one.executions for one in branches),
            divergent_branches=sum(one.divergent for one in branches),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the derived values by name."""
        return {**_plain(self), **{name: getattr(self, name) for name in (*DERIVED, "local_bytes_moved")}}


def source_line(sources: Mapping[str, str], file: str, line: int) -> str:
    """Return a line of a source file without its indentation; empty if its text is not known. `sources`: texts by the names of files."""
    lines = sources.get(file, "").splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


@dataclass(frozen=True, repr=False)
class Counts:
    """The transactions of one launch, by site. A site is one memory instruction of the PTX.

    counts = ml.count(kernel[grid, block], out, a, n)
    counts.total().sectors                              # 32-byte sectors of global and local memory, of the whole launch
    for line in counts.by_line():
        print(line.site.line, line.site.op, line.requests, line.sectors, line.ideal_sectors, line.conflicts)
    pandas.DataFrame(counts.to_table())

    `how` is the origin of the numbers: `emulated`, or `counted on the device`; `chip` is the chip whose rules apply. Numbers are sums over
    the launch; None where a number has no meaning, such as sectors of shared memory. `checked` compares with the SASS, and `exact_share` is
    the share that agrees.
    """

    chip: str
    target: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sites: tuple[SiteCounts, ...]
    branches: tuple[BranchCounts, ...] = ()
    how: str = "emulated"
    thread_instructions: int | None = None
    """PTX instructions executed by active lanes; known only on the emulator."""
    skipped: tuple[Skipped, ...] = ()
    """Accesses of the kernel that are not sites, and so not counted."""
    merged: tuple[SiteCounts, ...] = ()
    """If requested: the wide accesses that ptxas formed from merged sites, each under the first of those sites. The narrow ones are in
    `sites` too."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Texts of the source files, by the names that the sites use, if known."""
    judge: Callable[[], Mapping[int, Exactness]] | None = field(default=None, compare=False, repr=False)
    """Returns the verdicts of the SASS by site number; it may take a second, so it is called on demand."""

    @property
    def order_dependent(self) -> frozenset[int]:
        """Numbers of the sites whose counts may depend on the order in which threads run (`Site.order_dependent`)."""
        return frozenset(one.site.id for one in self.sites if one.site.order_dependent)

    @cached_property
    def checked(self) -> Counts:
        """Return these counts with `exactness` at every site: whether the assembled code accesses memory as is counted.

        Branches, the number of instructions and local memory are always hints. A site is `not checked`, with the reason, if the code cannot
        be read: there is no assembler for the chip, or none is installed.
        """
        if self.judge is None:
            return self
        verdicts = self.judge()
        sites = tuple(verdicts[one.site.id].of(one) if one.site.id in verdicts else one for one in self.sites)
        return replace(self, sites=sites, judge=None)

    @property
    def exact_share(self) -> float | None:
        """Share of the counted sites that are exact, 0 to 1; None if none could be checked."""
        found = [one.exactness for one in self.checked.sites]
        return found.count(EXACT) / len(found) if set(found) - {NOT_CHECKED} else None

    def total(self) -> Totals:
        """Return the sums over all sites of the launch."""
        return Totals.of(self.sites, self.branches)

    def by_line(self) -> list[SiteCounts]:
        """Return one entry for each source line, operation and space, ordered by file and line. The sites of an unrolled loop are
        summed."""
        entries = total_by_place(self.sites).values()
        return sorted(entries, key=lambda entry: (entry.site.file, entry.site.line, entry.site.instruction))

    def to_table(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each site, for `pandas.DataFrame(counts.to_table())`: the chip whose rules apply, the site, the
        fields of `SiteCounts`, the derived values, and the source line. None where a number has no meaning for the site."""
        head = {"chip": self.chip, "how": self.how}
        sites = self.checked.sites
        return [{**head, **one.as_row(), "source": source_line(self.sources, one.site.file, one.site.line)} for one in sites]

    def __repr__(self) -> str:
        return f"<Counts: {self}>"

    def __str__(self) -> str:
        """Return a summary in one line; `memlane.report.render_counts` returns the table."""
        total = self.total()
        counted = f"requests: {total.requests:,}, sectors: {total.sectors:,}, wavefronts: {total.wavefronts:,}"
        return f"{kernel_label(self.kernel)}; sites: {len(self.sites)}; {counted}; {self.how}, by the rules of {self.chip} ({self.target})"
