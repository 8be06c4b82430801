"""Counts: what the accesses of a launch cost in transactions, by site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from memlane.chip import SECTOR_BYTES
from memlane.record.site import EXACT, HINT, MERGED, NOT_CHECKED, Place, Site, Skipped
from memlane.titles import kernel_label


class _Derived:
    """What follows from the numbers of `SiteCounts` and `Totals` alike."""

    requests: int
    lanes: int
    sectors: int | None
    ideal_sectors: int | None
    wavefronts: int | None
    ideal_wavefronts: int | None

    @property
    def lanes_per_request(self) -> float | None:
        """Active lanes of the mean request, 1 to 32; None without a request."""
        return self.lanes / self.requests if self.requests else None

    @property
    def bytes_moved(self) -> int | None:
        """Bytes of the sectors that moved, whole sectors always."""
        return None if self.sectors is None else self.sectors * SECTOR_BYTES

    @property
    def excess_sectors(self) -> int | None:
        """Sectors beyond the ideal."""
        return None if self.sectors is None or self.ideal_sectors is None else self.sectors - self.ideal_sectors

    @property
    def conflicts(self) -> int | None:
        """Wavefronts beyond the ideal: bank conflicts, and lanes of an atomic that wait for each other at one word."""
        return None if self.wavefronts is None or self.ideal_wavefronts is None else self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True)
class SiteCounts(_Derived):
    """The transactions of one site, summed over a launch. None where the count has no meaning for the space of the site."""

    site: Site
    requests: int
    """Executions by a warp with at least one active lane."""
    lanes: int
    """Active lanes, summed over the requests."""
    bytes: int
    """Bytes that the lanes asked for."""
    sectors: int | None = None
    """Sectors of `SECTOR_BYTES` that moved, summed over the requests; where a chip moves more at once (lines, segments), all of it.

    Of local memory: as if each access of the PTX were one, the lanes' copies interleaved by words of 4 bytes. The assembler may keep local
    variables in registers and put others there, so take it for a hint.
    """
    ideal_sectors: int | None = None
    """Sectors that the distinct bytes would fill."""
    wavefronts: int | None = None
    """Shared memory: passes through the banks."""
    ideal_wavefronts: int | None = None
    """Wavefronts that the distinct bytes would need if no two lanes met in a bank."""
    addresses: int | None = None
    """Atomics and reductions: the different addresses of each request, summed over the requests."""
    most_lanes_at_address: int | None = None
    """Atomics and reductions: the most lanes that one request had at one address, 1 to 32."""

    exactness: str = NOT_CHECKED
    """Whether the hardware accesses memory as is counted here: `exact`, `merged`, `hint` or `not checked`; see `Counts.checked`."""
    exactness_reason: str = ""
    """Why it is not exact, in words."""
    assembled: str = ""
    """The assembled accesses of which the site is made or part, as `1 x 16 B shared load`; empty where there is none or it was not read."""
    merged: tuple[int, ...] = ()
    """Of a merged site: the numbers of the sites that became one access, by their addresses; empty where these do not show."""

    @property
    def is_full(self) -> bool:
        """Whether every request had all lanes of its warp."""
        return self.lanes == self.site.full_lanes * self.requests

    @property
    def lanes_per_address(self) -> float | None:
        """Atomics and reductions: lanes that one address has to serve in a request, on average."""
        return self.lanes / self.addresses if self.addresses else None

    def of_known_memory(self) -> SiteCounts:
        """Of an access that came to no global, local or shared memory of its block, but to constants or to another block of its cluster:
        nothing was counted there, so sectors and wavefronts are unknown, not 0."""
        if self.site.space not in ("generic", "shared::cluster") or not self.lanes or self.sectors or self.wavefronts:
            return self
        return replace(self, sectors=None, ideal_sectors=None, wavefronts=None, ideal_wavefronts=None)

    def of_products(self) -> SiteCounts:
        """Return the counts of a product with its wavefronts, which follow from its requests; other counts as they are."""
        if self.site.kind != "product":
            return self
        wavefronts = self.site.product_wavefronts(self.requests)
        return replace(self, wavefronts=wavefronts, ideal_wavefronts=wavefronts)

    def __post_init__(self) -> None:
        if self.exactness not in _WEAKNESS:
            raise ValueError(f"exactness is {self.exactness!r}, not one of {', '.join(_WEAKNESS)}")

    def plus(self, other: SiteCounts) -> SiteCounts:
        """Both together, under the site of the first: another launch, or another site of the same source line."""
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
        """What the site is, the fields of the counts and what follows from them, side by side."""
        site = {column: getattr(self.site, name) for column, name in _SITE_COLUMNS.items()}
        return {**site, **{name: value for name, value in _plain(self).items() if name != "site"}, **self.derived()}

    def derived(self) -> dict[str, Any]:
        """What follows from the fields, by name."""
        return {name: getattr(self, name) for name in DERIVED}


_SITE_COLUMNS = {
    **{name: name for name in ("kernel", "file", "line", "column", "instruction", "called", "op", "kind", "space")},
    "bytes_per_lane": "nbytes",
}
"""Of a site, what a table of counts shows, by its name there."""

DERIVED = ("lanes_per_request", "bytes_moved", "excess_sectors", "conflicts", "lanes_per_address")
"""Properties of `SiteCounts` that tables and documents show beside its fields."""


def total_by_place(counts: Iterable[SiteCounts]) -> dict[Place, SiteCounts]:
    """The counts of each place, summed over its sites (an unrolled loop has several) and over launches."""
    totals: dict[Place, SiteCounts] = {}
    for entry in counts:
        place = entry.site.place
        totals[place] = totals[place].plus(entry) if place in totals else entry
    return totals


def _both(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


_WEAKNESS = (EXACT, MERGED, HINT, NOT_CHECKED)
"""Of several sites the last of these is said."""


def _joined(one: str, other: str) -> str:
    return "; ".join(dict.fromkeys(text for joined in (one, other) for text in joined.split("; ") if text))


@dataclass(frozen=True)
class Exactness:
    """What the assembled code says of one site: the fields of the same names of `SiteCounts`."""

    exactness: str
    exactness_reason: str = ""
    assembled: str = ""
    merged: tuple[int, ...] = ()
    exact_if_full: bool = False
    """Whether a hint is exact in a launch in which every request of the site had all lanes of its warp."""

    def of(self, entry: SiteCounts) -> SiteCounts:
        """The counts of the site in one launch, with what is said of them."""
        if self.exact_if_full and entry.is_full:
            return replace(entry, exactness=EXACT, exactness_reason="", assembled=self.assembled)
        said = {name: value for name, value in _plain(self).items() if name != "exact_if_full"}
        return replace(entry, **said)


def _plain(entry: Any) -> dict[str, Any]:
    return {one.name: getattr(entry, one.name) for one in fields(entry)}


@dataclass(frozen=True)
class BranchCounts:
    """One branch instruction, summed over a launch, at the level of PTX (the assembler may predicate it away)."""

    kernel: str
    file: str
    line: int
    executions: int
    """By a warp."""
    divergent: int
    """Executions whose active lanes went two ways."""


@dataclass(frozen=True)
class Totals(_Derived):
    """A kernel, or part of it: all its sites and branches together. 0 where it has none of a kind."""

    requests: int
    lanes: int
    bytes: int
    """Bytes that the lanes asked for, in any space."""
    sectors: int
    """Of global memory, and of local memory reached through generic addresses."""
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int
    local_requests: int
    """Of the requests, those that name local memory; a hint, as their sectors are."""
    local_sectors: int
    atomic_requests: int
    """Of the requests, atomics and reductions."""
    atomic_lanes: int
    addresses: int
    """Different addresses of each atomic request, summed."""
    most_lanes_at_address: int
    branches: int
    """Conditional branches executed by a warp, in PTX."""
    divergent_branches: int
    """Of those, how many sent the active lanes two ways."""

    @property
    def lanes_per_address(self) -> float | None:
        """Lanes of atomics that one address has to serve in a request, on average; None without atomics."""
        return self.atomic_lanes / self.addresses if self.addresses else None

    @property
    def local_bytes_moved(self) -> int:
        """Bytes of the sectors of local memory; `bytes_moved` is without them."""
        return self.local_sectors * SECTOR_BYTES

    @classmethod
    def of(cls, sites: Iterable[SiteCounts], branches: Iterable[BranchCounts] = ()) -> Totals:
        """The totals of some sites and branches."""
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
        """The fields and what follows from them, by name."""
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

    `how` says where the numbers come from: `emulated`, or `counted on the device`; `chip` by whose rules. Numbers are sums over the launch;
    None where one has no meaning, as sectors of shared memory. `checked` compares with the assembled code, and `exact_share` says how much
    of it agrees.
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
    """PTX instructions executed by active lanes; only the emulator knows."""
    skipped: tuple[Skipped, ...] = ()
    """Accesses of the kernel that are no sites, so that nothing here tells of them."""
    merged: tuple[SiteCounts, ...] = ()
    """Where asked for: the accesses that the assembler made of merged sites, counted as the wide accesses that they are, under the first of
    those sites. What they replace is in `sites` too."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Texts of the source files, by the names that the sites use, where they are known."""
    judge: Callable[[], Mapping[int, Exactness]] | None = field(default=None, compare=False, repr=False)
    """What reads the assembled code, by the numbers of the sites; it may take a second, so it is asked when somebody wants to know."""

    @property
    def order_dependent(self) -> frozenset[int]:
        """The numbers of the sites whose counts may depend on the order in which threads run (`Site.order_dependent`)."""
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
        """The share of the counted sites that are exact, 0 to 1; None if none could be checked."""
        found = [one.exactness for one in self.checked.sites]
        return found.count(EXACT) / len(found) if set(found) - {NOT_CHECKED} else None

    def total(self) -> Totals:
        """Return the sums over all sites of the launch."""
        return Totals.of(self.sites, self.branches)

    def by_line(self) -> list[SiteCounts]:
        """Return one entry for each source line, operation and space, ordered by file and line. The sites of an unrolled loop are added
        up."""
        entries = total_by_place(self.sites).values()
        return sorted(entries, key=lambda entry: (entry.site.file, entry.site.line, entry.site.instruction))

    def to_table(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each site, for `pandas.DataFrame(counts.to_table())`: the chip whose rules count, the site, the
        fields of `SiteCounts`, what follows from them, and the source line. None stands where a number has no meaning for the site."""
        head = {"chip": self.chip, "how": self.how}
        sites = self.checked.sites
        return [{**head, **one.as_row(), "source": source_line(self.sources, one.site.file, one.site.line)} for one in sites]

    def __repr__(self) -> str:
        return f"<Counts: {self}>"

    def __str__(self) -> str:
        """What it holds, in one line; `memlane.report.render_counts` gives the table."""
        total = self.total()
        counted = f"requests: {total.requests:,}, sectors: {total.sectors:,}, wavefronts: {total.wavefronts:,}"
        return f"{kernel_label(self.kernel)}; sites: {len(self.sites)}; {counted}; {self.how}, by the rules of {self.chip} ({self.target})"
