"""What the page shows, as plain data: the template and the script of the page read nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """A place that an access may be served from, and how long that takes by the chip's file."""

    name: str
    cycles: float
    source: str
    """Where the number comes from, as the chip's file says it."""


@dataclass(frozen=True)
class Histogram:
    """Accesses by cycles, in bins of `Bins` that all histograms of a page share."""

    first: int
    """The bin that the first of `counts` is of."""
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """One operation on one source line of one kernel: the numbers of its `LineSummary` and what is drawn of them."""

    id: int
    kernel: str
    """For people: without parameters."""
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
    """Of the cycles, those that the first consumer waited; None in this and the next two where no record tells."""
    hidden_p50: int | None
    exposed_share: float | None
    lifetime_share: float | None
    share: float
    """Of the cycles of all accesses of the trace, 0 to 1: the heat."""
    ends: dict[str, int]
    """Accesses by what is known of their end: `complete`, `issue-only`, ..."""
    histogram: Histogram
    levels: tuple[Level, ...]
    """Those that may serve it; with the empty window of its probe, where that is known."""
    spark: str
    """The histogram as the path of a small drawing."""
    facts: tuple[tuple[str, str], ...]
    """What else is known of it, each with its name."""


@dataclass(frozen=True)
class SourceLine:
    """A line of the listing."""

    number: int
    text: str = ""
    share: float = 0.0
    operations: tuple[Operation, ...] = ()
    findings: tuple[int, ...] = ()
    """Ranks of the findings here."""
    picture: str = ""
    """The column that holds one access of the line, drawn as SVG; empty if there is none."""


@dataclass(frozen=True)
class Stretch:
    """Lines that follow one another."""

    lines: tuple[SourceLine, ...]
    folded: bool = False
    """Whether they are folded away at first: no access is near."""
    left_out: int = 0
    """So many lines that are not in the page at all."""


@dataclass(frozen=True)
class SourceFile:
    """One file with its accesses."""

    number: int
    name: str
    short: str
    stretches: tuple[Stretch, ...]
    note: str = ""
    """What is missing, and how to get it."""


@dataclass(frozen=True)
class FindingCard:
    """A finding in the parts that people read it in."""

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
    """The one number: the share of time that it costs, or else what is moved in vain."""
    cause: str
    launch: str
    """How much shorter the launches would be without it; empty if that was not predicted."""
    fix: str
    derivation: tuple[tuple[str, str], ...]
    """How its cost was found: text with its name."""
    drawing: str = ""
    """One access as SVG; empty if there is none."""


@dataclass(frozen=True)
class Facts:
    """A titled list of facts about the trace."""

    title: str
    rows: tuple[tuple[str, str], ...]
