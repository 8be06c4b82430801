"""Print a kernel that is being instrumented (`probe.Draft`) as PTX, and return where each part of its probes stands.

Probes become statements only here, so no other code has to recognise them in the text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from memlane.instrument.deferred import emit_wait, keep_window_state, restore_window_state
from memlane.instrument.polling_wait import keep_poll_start, reset_poll_start
from memlane.instrument.probe import (
    Draft,
    KernelExit,
    NestedBlock,
    Node,
    OriginalBody,
    PollReservation,
    Probe,
    ProbeLines,
    RunReservation,
    SingleReservation,
    WindowEnd,
    WindowEndLines,
    WindowEnds,
    WindowStart,
)
from memlane.instrument.runs import begin, follow, keep, store
from memlane.instrument.staging import place_in_stage
from memlane.instrument.warp import RecordText, lead, leave, place, record, reserve
from memlane.ptx import Block, Function, Guard, Instruction, Label, Location, Statement, instruction
from memlane.ptx.edit import alias, placed


@dataclass(frozen=True)
class PrintedKernel:
    """A traced kernel and the positions of its probes."""

    function: Function
    probes: Mapping[int, ProbeLines]
    """Positions of the parts of each probe, by site number."""
    plain: Mapping[int, int]
    """Index of the access in the original body, by site number, if there is such a body."""


def print_draft(draft: Draft) -> PrintedKernel:
    """Print a kernel that is being instrumented."""
    printer = _Printer(draft.prefix)
    printer.nodes(draft.nodes)
    function = replace(draft.kernel, body=Block(tuple(printer.statements)))
    return PrintedKernel(function, {site.id: printer.lines(site.id) for site in draft.sites}, printer.plain)


class _Printer:
    """Accumulates the statements of a traced kernel and the instruction indices of the parts of its probes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.statements: list[Statement] = []
        self._count = 0
        """Number of instructions so far."""
        self._start: dict[int, int] = {}
        self._access: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._stores: dict[int, tuple[int, int]] = {}
        self._witness: dict[int, int] = {}
        self._window_ends: dict[int, list[WindowEndLines]] = defaultdict(list)
        self.plain: dict[int, int] = {}

    def lines(self, site: int) -> ProbeLines:
        """Return the positions of the parts of a site's probe."""
        window_ends = tuple(self._window_ends.get(site, ()))
        start, access = self._start[site], self._access[site]
        if window_ends:
            first = window_ends[0]
            return ProbeLines(start, access, first.end, first.times, first.labels, window_ends=window_ends)
        return ProbeLines(start, access, self._end[site], *self._stores[site], self._witness.get(site))

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Print parts of a kernel in order."""
        for one in nodes:
            self._node(one)

    def _node(self, node: Node) -> None:
        match node:
            case Probe():
                self._print_probe(node)
            case WindowStart():
                self._print_window_start(node)
            case WindowEnds():
                self._print_window_ends(node)
            case KernelExit():
                self._print_exit(node)
            case NestedBlock(nodes):
                with self._block():
                    self.nodes(nodes)
            case OriginalBody(statements, sites):
                self.plain |= {site: self._count + index for site, index in sites}
                self._put(*statements)
            case _:
                self._put(node)

    # -- statements ------------------------------------------------------------------------------------------------------------

    def _put(self, *statements: Statement) -> int:
        """Append statements; return the index of the last instruction."""
        self.statements += statements
        self._count += _length(statements)
        return self._count - 1

    def _text(self, text: str, at: Location | None) -> int:
        """Append the statements of a PTX text; return the index of the last instruction."""
        return self._put(*placed(text, at))

    @contextmanager
    def _block(self) -> Iterator[None]:
        """Enclose what is appended meanwhile in braces."""
        outer, self.statements = self.statements, []
        yield
        outer.append(Block(tuple(self.statements)))
        self.statements = outer

    @contextmanager
    def _under(self, guard: Guard | None, label: str, at: Location | None) -> Iterator[None]:
        """Execute what is appended meanwhile only in the lanes that a guard selects; the others branch past it."""
        if guard is not None:
            self._put(instruction(f"bra {label};", Guard(guard.register, not guard.negated), at))
        yield
        if guard is not None:
            self._put(Label(label))

    # -- an access between its clock reads -------------------------------------------------------------------------------------

    def _print_probe(self, probe: Probe) -> None:
        """Print an access between its clock reads, with its record."""
        at, reservation = probe.location, probe.reservation
        with self._under(probe.guard, f"${self._prefix}skip_{probe.site}", at), self._block():
            again = f".reg .pred %{self._prefix}again;\n" if isinstance(reservation, PollReservation) else ""
            self._text(f".reg .b64 %{self._prefix}start, %{self._prefix}end;\n{again}{self._reservation(probe)}{probe.stamps.before}", at)
            self._start[probe.site] = self._text(probe.stamps.start, at)
            if isinstance(reservation, PollReservation):
                self._text(keep_poll_start(self._prefix, probe.site), at)
            self._access[probe.site] = self._put(probe.access)
            if probe.stamps.witness:
                self._witness[probe.site] = self._text(probe.stamps.witness, at)
            self._text(probe.stamps.after, at)
            self._end[probe.site] = self._text(probe.stamps.end, at)
            self._print_record(probe)

    def _reservation(self, probe: Probe) -> str:
        """Return PTX for before the window that elects the leader and reserves the place of the record."""
        prefix, site = self._prefix, probe.site
        match probe.reservation:
            case SingleReservation(counted):
                return reserve(prefix, site, counted)
            case RunReservation(0, length, _, staged):
                direct = place(prefix, site, length, begin(prefix, length))
                return lead(prefix, site) + (place_in_stage(prefix, site, length, direct) if staged else direct)
            case RunReservation(turn, staged=staged) as run if staged or run.is_last:
                return follow(prefix, turn)
        return ""

    def _print_record(self, probe: Probe) -> None:
        """Print what follows the second clock read."""
        prefix, at, reservation = self._prefix, probe.location, probe.reservation
        match reservation:
            case SingleReservation(counted):
                self._record(probe.site, record(prefix, probe.site, counted), at)
            case PollReservation(predicate, counted):
                self._text(f"@!{alias(predicate)} bra ${prefix}asks_{probe.site};\n{reserve(prefix, probe.site, counted)}", at)
                self._record(probe.site, record(prefix, probe.site, counted), at)
                self._text(reset_poll_start(prefix, probe.site), at)
            case RunReservation():
                self._print_run_record(probe, reservation)

    def _print_run_record(self, probe: Probe, run: RunReservation) -> None:
        """Print the store of the previous probe's record if it is pending; then the own record, or what keeps it for the next probe."""
        prefix, at = self._prefix, probe.location
        if run.before is not None:
            stored = self._text(store(prefix, run.turn - 1), at)
            self._stores[run.before] = stored, stored
        if run.staged or run.is_last:
            self._record(probe.site, record(prefix, probe.site, anywhere=run.staged), at, advance=False)
        else:
            self._text(keep(prefix, probe.site, run.turn), at)

    def _record(self, site: int, text: RecordText, at: Location | None, advance: bool = True) -> tuple[int, int]:
        """Print the stores of a record; return their indices. `advance`: whether its place has yet to be marked as taken."""
        self._text(text.pack, at)
        times = self._text(text.times, at)
        labels = self._text(text.labels, at) if text.labels else times
        if advance:
            self._text(text.advance, at)
        self._stores[site] = times, labels
        return times, labels

    # -- a window that stays open ----------------------------------------------------------------------------------------------

    def _print_window_start(self, node: WindowStart) -> None:
        """Print a load and the start of its window."""
        prefix, site, at = self._prefix, node.site, node.location
        with self._under(node.guard, f"${prefix}skip_{site}", at), self._block():
            front = lead(prefix, site, node.counted) + keep_window_state(prefix, site, node.counted)
            self._text(f"{front}.reg .b64 %{prefix}start;\n{node.start.before}", at)
            self._start[site] = self._text(node.start.read, at)
            self._text(f"mov.u64 %{prefix}start_{site}, %{prefix}start;\n", at)
            self._access[site] = self._put(node.access)

    def _print_window_ends(self, closing: WindowEnds) -> None:
        """Print the ends of the windows that close before an instruction: first all waits, then all records."""
        with self._block():
            ends = [self._print_wait(closing, number, one) for number, one in enumerate(closing.windows)]
            for number, one in enumerate(closing.windows):
                for site, uncertain in one.sites:
                    self._print_window_record(closing, number, site, uncertain, ends[number])

    def _print_wait(self, closing: WindowEnds, number: int, window: WindowEnd) -> tuple[int | None, int]:
        """Print the wait of one window; return the indices of the clock reads around it."""
        r, at = f"%{self._prefix}", closing.location
        self._text(f".reg .b64 {r}end_{number};\n.reg .b32 {r}exposed_{number};\n", at)
        text = emit_wait(r, number, window, closing.reads)
        with self._block():
            self._text(text.before, at)
            wait = self._text(text.wait, at) if text.wait else None
            self._text(text.between, at)
            end = self._text(text.end, at)
            self._text(text.behind, at)
        return wait, end

    def _print_window_record(self, closing: WindowEnds, number: int, site: int, uncertain: bool, clocks: tuple[int | None, int]) -> None:
        """Print the record of one window that has closed."""
        prefix, at, counted = self._prefix, closing.location, closing.counted
        r = f"%{prefix}"
        with self._block():
            self._text(restore_window_state(r, number, site, counted) + place(prefix, f"{closing.key}_{site}"), at)
            times, labels = self._record(site, record(prefix, site, counted, f"{r}exposed"), at)
            if uncertain:
                self._text(f"mov.u32 {r}active_{site}, 0;\n", at)
        self._window_ends[site].append(WindowEndLines(*clocks, times, labels, not uncertain))

    # -- an exit -----------------------------------------------------------------------------------------------------------------

    def _print_exit(self, node: KernelExit) -> None:
        """Print an exit with what closes the slice of the warp."""
        at = node.exit.location
        with self._under(node.guard, f"${self._prefix}stays_{node.number}", at):
            if node.window_ends is not None:
                self._print_window_ends(node.window_ends)
            self._text(leave(self._prefix, node.staged), at)
            self._put(node.exit)


def _length(statements: Sequence[Statement]) -> int:
    """Return the number of instructions, nested blocks included."""
    return sum(_length(one.statements) if isinstance(one, Block) else isinstance(one, Instruction) for one in statements)
