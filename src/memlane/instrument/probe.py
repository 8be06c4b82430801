"""The probes of a kernel as data: what the passes of a trace make and change, before `printing` writes them as PTX.

    Probe       an access between its clock reads, with its record
    Opening     a load whose window stays open; Closing what closes such windows in front of a consumer
    Leaving     an exit of the kernel, in front of which the warp closes its slice
    Braces      a block of the kernel's own, with what is in it
    Original    the body as it was, for warps that are not traced

`ProbeLines` says where the parts of a probe stand in the traced kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memlane.instrument.schemes import Apart, ClockRead, Stamps
from memlane.ptx import Function, Guard, Instruction, Location, Statement
from memlane.record import Site

# -- where the parts of a probe stand ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClosingLines:
    """The instructions that close a window in one place, as indices among those of the traced kernel."""

    wait: int | None
    """The clock read before the wait; None where nobody consumes the value."""
    end: int
    times: int
    labels: int
    certain: bool
    """Whether lanes come here only after the load."""

    def moved(self, by: int) -> ClosingLines:
        """Return the same where so many instructions more stand in front."""
        wait = None if self.wait is None else self.wait + by
        return replace(self, wait=wait, end=self.end + by, times=self.times + by, labels=self.labels + by)


@dataclass(frozen=True, slots=True)
class ProbeLines:
    """The instructions of a probe, as indices among those of the traced kernel."""

    start: int
    """The first clock read."""
    access: int
    end: int
    """The second clock read."""
    times: int
    """The store of start, end and site."""
    labels: int
    """The store of what else describes the access; the same where nothing does."""
    witness: int | None = None
    """Of a store that is timed until others see it: the load or the fence behind it that tells."""
    closings: tuple[ClosingLines, ...] = ()
    """Where a window closes in front of the consumers of the value: everything but `start` and `access`, in each place. The other fields
    are those of the first of them."""

    def moved(self, by: int) -> ProbeLines:
        """Return the same where so many instructions more stand in front."""
        return ProbeLines(
            self.start + by,
            self.access + by,
            self.end + by,
            self.times + by,
            self.labels + by,
            None if self.witness is None else self.witness + by,
            tuple(one.moved(by) for one in self.closings),
        )


# -- the parts of a kernel that is being instrumented -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alone:
    """The place of a record is taken in front of its access, and the record is stored behind it."""

    counted: bool = False
    """Whether executions are counted, and only those in the window are recorded."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The place is taken behind the second clock read, for the lanes to which a barrier said yes; the others ask again."""

    answer: str
    """The predicate register with what it said."""
    counted: bool = False


@dataclass(frozen=True, slots=True)
class InRun:
    """The places of several probes in a straight line are taken together, by the first of them."""

    turn: int
    """Which of them this is, from 0."""
    length: int
    before: int | None
    """The site of the one before, whose record is stored behind this one's second clock read; None where it has been stored."""
    staged: bool
    """Whether records go through the stage of the warp, if it has one: then each is stored at once."""

    @property
    def is_last(self) -> bool:
        """Whether no other probe of the run follows."""
        return self.turn + 1 == self.length


@dataclass(frozen=True, slots=True)
class Probe:
    """An access between its clock reads, with its record."""

    site: int
    access: Instruction
    """Without its guard."""
    guard: Guard | None
    """For which lanes the access, and all of the probe, is."""
    location: Location | None
    stamps: Stamps
    places: Alone | Answered | InRun
    """When the place of its record is taken, and when the record is stored."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A load whose window stays open until something consumes its value."""

    site: int
    access: Instruction
    guard: Guard | None
    location: Location | None
    start: ClockRead
    counted: bool


@dataclass(frozen=True, slots=True)
class Closes:
    """Windows that close together."""

    sites: Sequence[tuple[int, bool]]
    """Their numbers, each with whether it is uncertain that it is open."""
    registers: Sequence[tuple[str, str]]
    """What holds the value, with types."""
    consumed: bool
    direct: bool
    """Whether a word of each is enough."""
    tied: Sequence[tuple[str, str]] = ()
    """Those of the registers that nothing must read before the wait has begun."""
    signed: bool = False
    """Whether the upper halves of those are a sign."""


@dataclass(frozen=True, slots=True)
class Closing:
    """What closes windows in front of one instruction: first all waits, then all records.

    What one window records must not hide the wait of the next.
    """

    key: str
    """Makes labels of its own."""
    windows: tuple[Closes, ...]
    apart: Apart
    counted: bool
    location: Location | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """An exit of the kernel, in front of which windows close and the end of the warp is noted."""

    number: int
    """Index of the exit among the instructions of the kernel; makes a label of its own."""
    exit: Instruction
    """Without its guard."""
    guard: Guard | None
    closing: Closing | None
    staged: bool


@dataclass(frozen=True, slots=True)
class Braces:
    """A block with parts in it."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Original:
    """The body as it was."""

    statements: tuple[Statement, ...]
    sites: Sequence[tuple[int, int]]
    """The numbers of the timed sites, each with the index of its access in there."""


Node = Statement | Probe | Opening | Closing | Leaving | Braces | Original
"""A part of a kernel that is being instrumented."""


@dataclass(frozen=True)
class Draft:
    """A kernel that is being instrumented."""

    kernel: Function
    """The kernel as it was."""
    nodes: tuple[Node, ...]
    """Its body now."""
    prefix: str
    """Of the names of its probes."""
    sites: tuple[Site, ...] = ()
    """Those that are timed, with what their probe is, in the order of the text."""
    consumers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By number of a site, of the original kernel: the instructions that may be the first to wait for its value."""

    def with_front(self, front: Iterable[Statement], nodes: Iterable[Node]) -> Draft:
        """Return the kernel with other parts, and these statements in front of them."""
        return replace(self, nodes=(*front, *nodes))
