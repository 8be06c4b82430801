"""Emit windows that open at a load and close before the first consumer of its value, and the state kept between the two.

    (lead) (start)                      the load
    ld.global.f32 %f1, [%rd1];
    ...
    (wait and end) (place) (record)     before each instruction that may be the first to read %f1
    add.f32 %f3, %f1, %f2;

Each load keeps its state in registers of its own: the start, the active lanes of the access and, if executions are counted, the execution
number. Only the leader keeps the lane mask; in the other lanes it is 0, so a nonzero mask also selects the lane that writes the record.
Where a thread may reach a closing without an open window, the mask is set to 0 at the start of the kernel and at each closing.
The place of the record is reserved when the window closes: other windows close in between, and the records of a warp have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memlane.instrument.consumers import ConsumedLoads, consumers
from memlane.instrument.probe import WindowEnd, WindowEnds, WindowStart
from memlane.instrument.registers import Scope
from memlane.instrument.schemes import Access, DeferredReads, Scheme
from memlane.instrument.sites import live_results
from memlane.ptx import SCALAR_TYPES, Function, Instruction
from memlane.ptx.edit import alias
from memlane.record import Site

_MOST = 0xFFFFFFFF
"""Largest number of exposed cycles that a record can hold."""


@dataclass(frozen=True, slots=True)
class WaitText:
    """PTX of the wait of one window, in parts."""

    before: str
    wait: str
    """The clock read before the wait; empty where nothing consumes the value."""
    between: str
    end: str
    """The second clock read."""
    behind: str


def declare_windows(prefix: str, sites: Iterable[int], uncertain: Iterable[int], counted: bool) -> str:
    """Return PTX for the start of the kernel that declares the state of each site and marks the windows of the `uncertain` sites as
    closed."""
    r = f"%{prefix}"
    lines = []
    for site in sites:
        execution = f", {r}execution_{site}" if counted else ""
        lines.append(f".reg .b64 {r}start_{site};\n.reg .b32 {r}active_{site}{execution};\n")
    # Initialise the start as well: an unwritten register may hold any value, also for the proof.
    lines += [f"mov.u32 {r}active_{site}, 0;\nmov.u64 {r}start_{site}, 0;\n" for site in uncertain]
    return "".join(lines)


def keep_window_state(prefix: str, site: int, counted: bool) -> str:
    """Return PTX, between `warp.lead` and the first clock read, that keeps the lane mask and, if `counted`, the execution number."""
    r = f"%{prefix}"
    execution = f"mov.u32 {r}execution_{site}, {r}execution;\n" if counted else ""
    return f"selp.b32 {r}active_{site}, {r}active, 0, {r}leads;\n{execution}"


def emit_wait(r: str, number: int, window: WindowEnd, reads: DeferredReads) -> WaitText:
    """Return the wait of one window. Where nothing consumes the value, no time is exposed."""
    words, registers = _first_words(r, window.registers) if window.direct else ("", window.registers)
    if not window.consumed:
        unread = reads.unconsumed_end(r, registers)
        behind = f"mov.u64 {r}end_{number}, {r}end;\nmov.u32 {r}exposed_{number}, 0;\n"
        return WaitText(f"{words}.reg .b64 {r}end;\n{unread.before}", "", "", unread.read, behind)
    tied = "".join(_tied(f"{r}tied_{part}", f"{r}now", *one, window.signed) for part, one in enumerate(window.tied))
    wait, end = reads.wait(r, registers)
    behind = f"""\
{tied}mov.u64 {r}end_{number}, {r}end;
sub.u64 {r}wait, {r}end, {r}wait;
min.u64 {r}wait, {r}wait, {_MOST};
cvt.u32.u64 {r}exposed_{number}, {r}wait;
"""
    return WaitText(f"{words}.reg .b64 {r}wait, {r}end;\n{wait.before}", wait.read, end.before, end.read, behind)


def _tied(name: str, zero: str, register: str, kind: str, signed: bool) -> str:
    """Return PTX that rebuilds a register from itself and a zero that depends on the clock read, so that every later read is ordered after
    it.

    `name`: prefix of scratch registers. The text is empty for types that are not 16, 32 or 64 bits wide.
    """
    bits = SCALAR_TYPES[kind].bits
    if bits not in (16, 32, 64):
        return ""
    if bits == 16:
        return f".reg .b16 {name}, {name}_zero;\ncvt.u16.u32 {name}_zero, {zero};\n" + _with_zero(name, f"{name}_zero", register, 16)
    if bits == 32:
        return f".reg .b32 {name};\n" + _with_zero(name, zero, register, 32)
    low, high = f"{name}_low", f"{name}_high"
    halves = f".reg .b32 {low}, {high};\nmov.b64 {{{low}, {high}}}, {register};\nxor.b32 {low}, {low}, {zero};\n"
    upper = f"shr.s32 {high}, {low}, 31;\n" if signed else f"xor.b32 {high}, {high}, {zero};\n"
    return f"{halves}{upper}mov.b64 {register}, {{{low}, {high}}};\n"


def _with_zero(name: str, zero: str, register: str, bits: int) -> str:
    """Return PTX that copies a register to `name`, xors it with `zero` and copies it back."""
    return f"mov.b{bits} {name}, {register};\nxor.b{bits} {name}, {name}, {zero};\nmov.b{bits} {register}, {name};\n"


def _first_words(r: str, registers: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Return PTX and registers that hold the lower halves of 64-bit registers: ptxas may compute a sign in the upper half before the clock
    read."""
    text, found = "", []
    for number, (name, kind) in enumerate(registers):
        if SCALAR_TYPES[kind].bits == 64:
            low = f"{r}low_{number}"
            text += f".reg .b32 {low}, {r}high_{number};\nmov.b64 {{{low}, {r}high_{number}}}, {name};\n"
            found.append((low, "b32"))
        else:
            found.append((name, kind))
    return text, found


def restore_window_state(r: str, number: int, site: int, counted: bool) -> str:
    """Return PTX that copies the kept state and the measured times to the register names that a record is written from."""
    execution = f".reg .b32 {r}execution;\nmov.u32 {r}execution, {r}execution_{site};\n" if counted else ""
    return f"""\
.reg .b64 {r}start, {r}end;
.reg .b32 {r}active, {r}exposed;
.reg .pred {r}leads;
mov.u64 {r}start, {r}start_{site};
mov.u64 {r}end, {r}end_{number};
mov.u32 {r}exposed, {r}exposed_{number};
mov.u32 {r}active, {r}active_{site};
setp.ne.u32 {r}leads, {r}active, 0;
{execution}"""


class DeferredWindows:
    """Windows of one kernel that stay open after their load."""

    def __init__(self, kernel: Function, chosen: Mapping[int, Site], scheme: Scheme, prefix: str, counted: bool) -> None:
        """Find the consumers of the loads among the `chosen` sites (by instruction index), if the scheme defers waits."""
        self._scheme, self._reads, self._prefix, self._counted = scheme, scheme.deferred, prefix, counted
        self._site = {index: site.id for index, site in chosen.items()}
        live = live_results(kernel) if scheme.deferred else {}
        loads = [index for index, site in chosen.items() if site.kind in ("load", "atomic") and live.get(index)]
        self.found = consumers(kernel, loads)

    @property
    def declarations(self) -> str:
        """PTX to place before the first instruction."""
        followed, uncertain = ([self._site[index] for index in sorted(loads)] for loads in (self.found.loads, self.found.uncertain))
        return declare_windows(self._prefix, followed, uncertain, self._counted)

    def scheme_of(self, index: int) -> tuple[str, str]:
        """Return the name of the scheme that a site gets, and the reason if that is not the requested one."""
        if self._scheme.deferred is None or index in self.found.loads:
            return self._scheme.name, ""
        return self._scheme.fallback, self.found.refused.get(index, "")

    def window_start(self, index: int, instruction: Instruction, access: Instruction, what: Access) -> WindowStart:
        """Return the probe that opens the window of a followed load."""
        assert self._reads is not None
        return WindowStart(self._site[index], access, instruction.guard, instruction.location, self._reads.start(what), self._counted)

    def window_ends(self, index: int, instruction: Instruction, scope: Scope) -> WindowEnds | None:
        """Return what closes windows before an instruction; None if no window closes there."""
        windows = tuple(self._window_end(group, scope) for group in self.found.closings.get(index, ()))
        if self._reads is None or not windows:
            return None
        return WindowEnds(str(index), windows, self._reads, self._counted, instruction.location)

    @property
    def consumers(self) -> Mapping[int, tuple[int, ...]]:
        """Map each site number to the indices of the instructions that may be the first to wait for its value."""
        places: dict[int, list[int]] = {}
        for index, closings in sorted(self.found.closings.items()):
            for load in (load for group in closings if group.consumed for load in group.loads):
                places.setdefault(self._site[load], []).append(index)
        return {site: tuple(indices) for site, indices in places.items()}

    def _window_end(self, group: ConsumedLoads, scope: Scope) -> WindowEnd:
        """Convert the windows that close together to site numbers and typed registers."""
        sites = [(self._site[load], load in self.found.uncertain) for load in group.loads]
        registers, tied = ([(alias(name), scope.type_of(name)) for name in names] for names in (group.registers, group.tied))
        return WindowEnd(sites, registers, group.consumed, group.direct, tied, group.signed)
