"""Represent the probes of a kernel as data, which the passes of a trace build and change before `printing` prints them as PTX.

    Probe           an access between its clock reads, with its record
    WindowStart     a load whose window stays open; WindowEnds closes such windows before a consumer
    KernelExit      an exit of the kernel, before which the warp closes its slice
    NestedBlock     a block of the kernel's own, with its contents
    OriginalBody    the unmodified body, for warps that are not traced

`ProbeLines` holds the positions of the parts of a probe in the traced kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memlane.instrument.schemes import ClockRead, DeferredReads, Stamps
from memlane.ptx import Function, Guard, Instruction, Location, Statement
from memlane.record import Site

# -- where the parts of a probe stand ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowEndLines:
    """Instructions that close a window in one place, as indices into the traced kernel."""

    wait: int | None
    """The clock read before the wait; None where nothing consumes the value."""
    end: int
    times: int
    labels: int
    certain: bool
    """Whether every lane that gets here has executed the load."""

    def moved(self, by: int) -> WindowEndLines:
        """Return the indices after `by` instructions were inserted before the kernel's first."""
        wait = None if self.wait is None else self.wait + by
        return replace(self, wait=wait, end=self.end + by, times=self.times + by, labels=self.labels + by)


@dataclass(frozen=True, slots=True)
class ProbeLines:
    """Instructions of a probe, as indices into the traced kernel."""

    start: int
    """The first clock read."""
    access: int
    end: int
    """The second clock read."""
    times: int
    """The store of start, end and site."""
    labels: int
    """The store of the other fields; the same index as `times` if there is only one store."""
    witness: int | None = None
    """The load or fence that shows that a store is visible to other threads, for stores timed until then."""
    window_ends: tuple[WindowEndLines, ...] = ()
    """Places where a deferred window closes; empty otherwise. The fields other than `start` and `access` are those of the first place."""

    def moved(self, by: int) -> ProbeLines:
        """Return the indices after `by` instructions were inserted before the kernel's first."""
        return ProbeLines(
            self.start + by,
            self.access + by,
            self.end + by,
            self.times + by,
            self.labels + by,
            None if self.witness is None else self.witness + by,
            tuple(one.moved(by) for one in self.window_ends),
        )


# -- the parts of a kernel that is being instrumented -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SingleReservation:
    """Reserve the place of a record before its access, and store the record after it."""

    counted: bool = False
    """Whether executions are counted, and only those in the window are recorded."""


@dataclass(frozen=True, slots=True)
class PollReservation:
    """Reserve the place after the second clock read, for the lanes whose barrier wait succeeded; the others poll again."""

    predicate: str
    """Predicate register with the result of the wait."""
    counted: bool = False


@dataclass(frozen=True, slots=True)
class RunReservation:
    """Reserve the places of several probes in straight-line code together, at the first of them."""

    turn: int
    """Index of this probe in the run, from 0."""
    length: int
    before: int | None
    """Site of the previous probe, whose record is stored after this probe's second clock read; None if it is already stored."""
    staged: bool
    """Whether records go through the stage of the warp, if it has one; each is then stored at once."""

    @property
    def is_last(self) -> bool:
        """Whether this is the last probe of the run."""
        return self.turn + 1 == self.length


@dataclass(frozen=True, slots=True)
class Probe:
    """An access between its clock reads, with its record."""

    site: int
    access: Instruction
    """The instruction without its guard."""
    guard: Guard | None
    """Guard of the access and of the whole probe; None for all lanes."""
    location: Location | None
    stamps: Stamps
    reservation: SingleReservation | PollReservation | RunReservation
    """When the place of the record is reserved, and when the record is stored."""


@dataclass(frozen=True, slots=True)
class WindowStart:
    """A load whose window stays open until an instruction consumes its value."""

    site: int
    access: Instruction
    guard: Guard | None
    location: Location | None
    start: ClockRead
    counted: bool


@dataclass(frozen=True, slots=True)
class WindowEnd:
    """Windows that close together."""

    sites: Sequence[tuple[int, bool]]
    """Their site numbers, each with whether the window may be closed in some lanes."""
    registers: Sequence[tuple[str, str]]
    """Registers that hold the value, with their types."""
    consumed: bool
    direct: bool
    """Whether one word of each register shows that the load is complete."""
    tied: Sequence[tuple[str, str]] = ()
    """Registers among these that must not be read before the wait has begun."""
    signed: bool = False
    """Whether the upper halves of these registers are a sign extension."""


@dataclass(frozen=True, slots=True)
class WindowEnds:
    """Windows that close before one instruction: first all waits, then all records.

    The record of one window must not hide the wait of the next.
    """

    key: str
    """Makes the labels unique."""
    windows: tuple[WindowEnd, ...]
    reads: DeferredReads
    counted: bool
    location: Location | None


@dataclass(frozen=True, slots=True)
class KernelExit:
    """An exit of the kernel, before which windows close and the end of the warp is stored."""

    number: int
    """Index of the exit among the instructions of the kernel; makes its label unique."""
    exit: Instruction
    """The exit without its guard."""
    guard: Guard | None
    window_ends: WindowEnds | None
    staged: bool


@dataclass(frozen=True, slots=True)
class NestedBlock:
    """A block that contains parts."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class OriginalBody:
    """The unmodified body."""

    statements: tuple[Statement, ...]
    sites: Sequence[tuple[int, int]]
    """Numbers of the timed sites, each with the index of its access in the body."""


Node = Statement | Probe | WindowStart | WindowEnds | KernelExit | NestedBlock | OriginalBody
"""A part of a kernel that is being instrumented."""


@dataclass(frozen=True)
class Draft:
    """A kernel that is being instrumented."""

    kernel: Function
    """The original kernel."""
    nodes: tuple[Node, ...]
    """The parts of its present body."""
    prefix: str
    """Prefix of the names that probes define."""
    sites: tuple[Site, ...] = ()
    """Timed sites with the properties of their probes, in program order."""
    consumers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Indices, in the original kernel, of the instructions that may be the first to wait for the value of a site, by site number."""

    def with_front(self, front: Iterable[Statement], nodes: Iterable[Node]) -> Draft:
        """Return the kernel with its parts replaced by `front` followed by `nodes`."""
        return replace(self, nodes=(*front, *nodes))
