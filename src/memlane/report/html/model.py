"""Define the plain data of the page: its template and its script read nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """A memory level that may serve an access, and its latency by the chip's file."""

    name: str
    cycles: float
    source: str
    """Origin of the number, as stated in the chip's file."""


@dataclass(frozen=True)
class Histogram:
    """Accesses by cycles, in bins of `Bins` that all histograms of a page share."""

    first: int
    """Number of the bin of the first of `counts`."""
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """One operation on one source line of one kernel: the numbers of its `LineSummary` and its drawings."""

    id: int
    kernel: str
    """Kernel label, without parameters."""
    file: str
    line: int
    op: str
    space: str
    accesses: int
    accesses_estimated: int
    requests: int | None
    sectors_per_request: float | None
    ideal_sectors_per_request: float | None
    wavefronts_per_request: float | None
    ideal_wavefronts_per_request: float | None
    cycles_p50: int | None
    cycles_p95: int | None
    cycles_p99: int | None
    cycles_max: int | None
    cycles_mean: float | None
    exposed_p50: int | None
    """Median of the cycles that the first consumer waited; None, as in the next two, where it was not recorded."""
    hidden_p50: int | None
    exposed_share: float | None
    lifetime_share: float | None
    share: float
    """Share of the cycles of all accesses of the trace, 0 to 1: the heat."""
    ends: dict[str, int]
    """Number of accesses by completeness of their end: `complete`, `issue-only`, ..."""
    histogram: Histogram
    levels: tuple[Level, ...]
    """Levels that may serve it, shifted by the empty window of its probe, where that is known."""
    spark: str
    """The histogram as the path of a small drawing."""
    facts: tuple[tuple[str, str], ...]
    """Further facts, each with its name."""


@dataclass(frozen=True)
class SourceLine:
    """A line of the listing."""

    number: int
    text: str = ""
    share: float = 0.0
    operations: tuple[Operation, ...] = ()
    findings: tuple[int, ...] = ()
    """Ranks of the findings on this line."""
    picture: str = ""
    """Name of the column that holds one access of the line, drawn as SVG; empty if there is none."""


@dataclass(frozen=True)
class Stretch:
    """A run of consecutive lines."""

    lines: tuple[SourceLine, ...]
    folded: bool = False
    """Whether the lines are folded initially, because no access is near."""
    left_out: int = 0
    """Number of lines that the page leaves out entirely."""


@dataclass(frozen=True)
class SourceFile:
    """One file with its accesses."""

    number: int
    name: str
    short: str
    stretches: tuple[Stretch, ...]
    note: str = ""
    """Text on missing data, and how to get it."""


@dataclass(frozen=True)
class FindingCard:
    """A finding in the parts in which the page shows it."""

    rank: int
    rule: str
    title: str
    kernel: str
    place: str
    op: str
    file: str
    line: int
    source: str
    headline: str
    """The most important number: the share of time that it costs, or else its excess traffic."""
    cause: str
    launch: str
    """How much shorter the launches would be without it; empty if that was not predicted."""
    fix: str
    derivation: tuple[tuple[str, str], ...]
    """Derivation of its cost: (name, text)."""
    drawing: str = ""
    """One access as SVG; empty if there is none."""


@dataclass(frozen=True)
class Facts:
    """A titled list of facts about the trace."""

    title: str
    rows: tuple[tuple[str, str], ...]
