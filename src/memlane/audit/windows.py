"""Check the window of a site, between its clock reads in the machine code, and explain in words what cannot be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from memlane import ptx
from memlane.audit.assembled_module import AssembledModule, is_like
from memlane.audit.clock_provenance import ClockProvenance, reads_clock
from memlane.audit.warp_aggregation import Aggregation, Aggregations
from memlane.instrument.probe import ProbeLines
from memlane.ptx import Immediate
from memlane.record import DEVICE_VISIBLE, Site
from memlane.sass import Instruction, Register, counted_wait, effects, has_variable_latency, memory_access, reach_until, waits_for
from memlane.walks import reachable

__all__ = ["Window", "Windows", "is_store", "reads_clock"]

_WAITS = frozenset({"DEPBAR", "SYNCS"})
"""Opcodes that hold the warp until asynchronous copies are done, or that test a barrier."""
_COPY_WAIT = "DEPBAR"
_PRODUCT_WAIT = "WARPGROUP"
"""Opcode that, with the modifier DEPBAR, holds the warp until products of the warpgroup are done."""
_CLOSE_GROUPS = frozenset({"LDGDEPBAR", "UTMACMDFLUSH"})
"""Opcodes that commit the copies before them as one group."""
_FENCE = "MEMBAR"
_LEAVES = frozenset({"EXIT", "KILL"})


@dataclass(frozen=True)
class Window:
    """Nodes of one site."""

    site: Site
    starts: frozenset[int]
    accesses: tuple[int, ...]
    ends: frozenset[int]
    times: tuple[int, ...]
    labels: tuple[int, ...]
    witnesses: frozenset[int] = frozenset()
    """Loads or fences behind a store that confirm that other threads see it; only for a store that is timed until then."""
    left: int = 0
    """Number of groups of copies that may remain in flight behind a wait for them."""
    made: frozenset[int] = frozenset()
    """All nodes that ptxas made of the accessing instruction, its accesses included."""


class Windows:
    """Windows of one kernel. Each check returns what is wrong, or an empty string."""

    def __init__(self, code: AssembledModule, kernel: str) -> None:
        self.code = code
        self.kernel = kernel
        self.flow = code.flow
        self.scoreboards = code.scoreboards
        self.nodes = code.flow.nodes
        self._provenance = ClockProvenance(code)
        self._aggregations = Aggregations(self.flow, self.scoreboards)

    def window(self, site: Site, probe: ProbeLines) -> Window:
        """Return the nodes of a site."""
        starts = frozenset(self._made_from(probe.start, reads_clock))
        ends = frozenset(self._made_from(probe.end, reads_clock))
        accesses = self._accesses(site, probe) or self._accesses_in_window(site, starts, ends)
        times, labels = (tuple(self._made_from(store, is_store)) for store in (probe.times, probe.labels))
        return Window(site, starts, accesses, ends, times, labels, self._witnesses(probe), self._pending_groups(probe), self._made(probe))

    def _made(self, probe: ProbeLines) -> frozenset[int]:
        return frozenset(self.code.nodes(self.kernel, probe.access))

    def _pending_groups(self, probe: ProbeLines) -> int:
        count = self._instructions[probe.access].operand("n")
        return count.value if isinstance(count, Immediate) else 0

    @cached_property
    def _instructions(self) -> tuple[ptx.Instruction, ...]:
        return tuple(self.code.module.kernels[self.kernel].instructions())

    def _witnesses(self, probe: ProbeLines) -> frozenset[int]:
        """Return the fence of a witness, which is assembled with loads beside it that never execute, or else its load."""
        if probe.witness is None:
            return frozenset()
        return frozenset(self._made_from(probe.witness, _is_fence)) or frozenset(self._made_from(probe.witness, _is_load))

    def _accesses(self, site: Site, probe: ProbeLines) -> tuple[int, ...]:
        if site.kind == "wait":
            return tuple(self._made_from(probe.access, _is_wait))
        return tuple(self.code.accesses(self.kernel, probe.access, site.space))

    def _accesses_in_window(self, site: Site, starts: frozenset[int], ends: frozenset[int]) -> tuple[int, ...]:
        """Return the accesses between the clock reads that resemble the site: the line table has no entries for texture fetches."""
        between = {node for start in starts for node in self._after(start, starts | ends)[0]}
        return tuple(node for node in sorted(between) if is_like(site, memory_access(self.nodes[node])))

    def _made_from(self, instruction: int, wanted: Callable[[Instruction], bool]) -> Iterator[int]:
        return (node for node in self.code.nodes(self.kernel, instruction) if wanted(self.nodes[node]))

    # -- 1. order -----------------------------------------------------------------------------------------------------------------

    def disorder(self, window: Window) -> str:
        if not window.starts or not window.ends:
            return f"the assembled code does not have the {'first' if not window.starts else 'second'} clock read"
        clocks = window.starts | window.ends
        for access in window.accesses:
            if not self._comes_from(access, clocks, window.starts):
                return f"the access {self._at(access)} can be reached without its first clock read"
            _, stops = self._after(access, clocks)
            if not stops or not stops <= window.ends:
                return f"the access {self._at(access)} is not followed by its second clock read on every path"
        accesses = frozenset(window.accesses)
        for end in window.ends:
            if not self._comes_from(end, clocks | accesses, accesses):
                return f"the second clock read {self._at(end)} can be reached without the access"
        return self.unended(window)

    def _comes_from(self, node: int, events: frozenset[int], wanted: frozenset[int]) -> bool:
        """Return whether on every path the last event before a node is in `wanted`."""
        between, stops = self._before(node, events)
        return not (between | {node}) & self.flow.entries and stops <= wanted

    def unended(self, window: Window) -> str:
        """Return why a record may be written on a path that leaves the kernel without the second clock read, or an empty string.

        The end in such a record would be a leftover of an earlier iteration.
        """
        stores = {*window.times, *window.labels}
        for access in window.accesses:
            written = stores & self._exit_paths(self._after(access, window.starts | window.ends)[0])
            if written:
                return f"the record {self._at(min(written))} can be written without the second clock read"
        return ""

    def _exit_paths(self, nodes: set[int]) -> set[int]:
        """Return the nodes of `nodes` from which control can leave the kernel inside `nodes`."""
        leaving = (node for node in nodes if self.nodes[node].opcode in _LEAVES)
        return reachable(leaving, lambda node: nodes.intersection(self.flow.predecessors[node]))

    def _before(self, node: int, stops: frozenset[int] | set[int]) -> tuple[set[int], set[int]]:
        return reach_until(self.flow.predecessors[node], self.flow.predecessors.__getitem__, stops.__contains__)

    def _after(self, node: int, stops: frozenset[int] | set[int]) -> tuple[set[int], set[int]]:
        return reach_until(self.flow.successors[node], self.flow.successors.__getitem__, stops.__contains__)

    # -- 2. end -------------------------------------------------------------------------------------------------------------------

    def end_unwaited(self, window: Window) -> str:
        for access in window.accesses:
            if self.nodes[access].opcode in (_COPY_WAIT, _PRODUCT_WAIT):  # Nothing behind it issues before it has completed.
                if reason := self._waits_too_little(window, access):
                    return reason
                continue
            scoreboard = self.nodes[access].control.write_scoreboard
            missed = window.ends & self.scoreboards.unwaited(access)
            if missed and scoreboard is None:
                return f"the access {self._at(access)} sets no scoreboard to wait for"
            if missed:
                return f"the second clock read {self._at(min(missed))} can execute without a wait for scoreboard {scoreboard} of the access"
        return ""

    def not_broadcast(self, window: Window) -> str:
        """Return why, for an aggregated atomic, other lanes may not have got their values at the second clock read; "" otherwise."""
        found = [self._aggregation(window, access) for access in window.accesses]
        if reason := next((one.reason for one in found if one.reason), ""):
            return reason
        if not any(one.broadcasts for one in found):
            return ""
        # Any code may read the lane number once more.
        parts = sorted(node for node in window.made if has_variable_latency(self.nodes[node]) and self.nodes[node].opcode != "S2R")
        if late := [node for node in parts if window.ends & set().union(*self._before(node, window.starts))]:
            return f"a part of the atomic, {self._at(late[0])}, comes after the second clock read"
        for node in parts:
            if missed := window.ends & self.scoreboards.unwaited(node):
                return (
                    f"the second clock read {self._at(min(missed))} can execute without a wait for a part of the atomic, {self._at(node)}"
                )
        return ""

    def _aggregation(self, window: Window, access: int) -> Aggregation:
        return self._aggregations.of(access, window.made) if window.site.kind == "atomic" else Aggregation()

    def _waits_too_little(self, window: Window, wait: int) -> str:
        """Return why a wait for groups of copies or products waits for less than the PTX asks for, or an empty string."""
        one, what = self.nodes[wait], "copies"
        board, left = counted_wait(one) or (None, 0)
        if one.opcode == _PRODUCT_WAIT:  # These groups have a counter of their own.
            what, left = "products", one.operands[-1].value or 0
        elif board not in self._group_boards:
            return f"the wait {self._at(wait)} is for scoreboard {board}, which no group of copies sets"
        if left > window.left:
            return f"the wait {self._at(wait)} leaves {left} of the groups of {what} pending, but the kernel leaves {window.left}"
        return ""

    @cached_property
    def _group_boards(self) -> frozenset[int | None]:
        controls = (self.nodes[node].control for node in self.flow.nodes_of(self.kernel) if self.nodes[node].opcode in _CLOSE_GROUPS)
        return frozenset(board for one in controls for board in (one.write_scoreboard, one.read_scoreboard)) - {None}

    def unwitnessed(self, window: Window) -> str:
        """Return why a store may not be visible at the end of its window, or an empty string.

        The witness must stand behind the store on every path, and the end must wait for it.
        """
        for access in window.accesses:
            _, stops = self._after(access, window.ends | window.witnesses)
            if stops & window.ends:
                return (
                    f"the second clock read {self._at(min(stops & window.ends))} can execute without the load or fence that confirms "
                    "the store"
                )
        for witness in window.witnesses:
            reason = self._fence_not_awaited(window, witness) if _is_fence(self.nodes[witness]) else self._not_read_back(window, witness)
            if reason:
                return reason
        return ""

    def _fence_not_awaited(self, window: Window, fence: int) -> str:
        board = self.nodes[fence].control.read_scoreboard
        if board is None:
            return f"the fence {self._at(fence)} sets no scoreboard to wait for"
        between, _ = reach_until(
            self.flow.successors[fence], self.flow.successors.__getitem__, lambda node: board in waits_for(self.nodes[node])
        )
        if window.ends & between:
            return f"the second clock read {self._at(min(window.ends & between))} does not wait for the fence {self._at(fence)}"
        return ""

    def _not_read_back(self, window: Window, load: int) -> str:
        one, where = self.nodes[load], self._at(load)
        if window.site.completeness == DEVICE_VISIBLE and not {"GPU", "SYS"} & set(one.modifiers):
            return f"the load {where} does not read from a level that the whole device shares"
        for store in window.accesses:
            if load in self._after(store, window.ends)[0] and self._address(store) != self._address(load):
                return f"the load {where} does not read the address that is stored to {self._at(store)}"
        missed = window.ends & self.scoreboards.unwaited(load)
        return f"the second clock read {self._at(min(missed))} can execute without a wait for the load {where}" if missed else ""

    def _address(self, node: int) -> tuple[str, frozenset[tuple[Register, frozenset[int]]]]:
        """Return the address of an access: its text, and the definitions of its registers."""
        (operand,) = (one for one in self.nodes[node].operands if one.kind == "memory")
        registers = (Register(first.bank, first.number + part) for first, count in operand.address for part in range(count))
        return operand.text, frozenset((register, self.scoreboards.definitions(node, register)) for register in registers)

    # -- 3. start -----------------------------------------------------------------------------------------------------------------

    def start_unordered(self, window: Window) -> str:
        for access in window.accesses:
            between, _ = self._before(access, window.starts)
            reason = self._producers(window, access, between, self._aggregation(window, access).leader_values)
            if reason:
                return reason
        return ""

    def _producers(self, window: Window, access: int, between: set[int], leader_values: Set[int]) -> str:
        """Return which operand of the access is produced too late, or an empty string.

        Follows the reads of the access back to their definitions, through the window where necessary. `leader_values`: nodes that may
        complete inside the window, because the lanes choose their leader there.
        """
        seen: set[tuple[int, Register]] = set()
        work = [(access, register) for register in effects(self.nodes[access]).reads]
        while work:
            node, register = work.pop()
            for producer in self.scoreboards.definitions(node, register):
                if (producer, register) in seen:
                    continue
                seen.add((producer, register))
                if not has_variable_latency(self.nodes[producer]) or producer in leader_values & between:
                    if producer in between:
                        work.extend((producer, source) for source in effects(self.nodes[producer]).reads)
                elif producer in window.accesses and producer in between:
                    continue  # ptxas repeats the test; the second copy serves only the lanes whose first test failed.
                elif producer in between:
                    return f"{register} of the access is produced {self._at(producer)}, after the first clock read"
                elif window.starts & self.scoreboards.unwaited(producer):
                    return f"the first clock read does not wait for {register} of the access, a register produced {self._at(producer)}"
        return ""

    # -- 4. record ----------------------------------------------------------------------------------------------------------------

    def wrong_record(self, window: Window) -> str:
        if not window.times or not window.labels:
            return "the assembled code does not write the record of the site"
        whole = window.labels != window.times
        for store in window.times:
            data = _data(self.nodes[store])
            if data is None or "128" not in self.nodes[store].modifiers:
                return f"the record {self._at(store)} is not written in one piece"
            first, second, third, fourth = (Register(data.bank, data.number + place) for place in range(4))
            number: int | None = window.site.id
            if whole:
                parts = [
                    (self._provenance.clocks(store, one), clocks, half, name)
                    for one, clocks, half, name in (
                        (first, window.starts, 0, "start"),
                        (second, window.starts, 1, "start"),
                        (third, window.ends, 0, "end"),
                        (fourth, window.ends, 1, "end"),
                    )
                ]
            else:
                upper, number = self._provenance.packed_clocks(store, second)
                parts = [
                    (self._provenance.clocks(store, first), window.starts, 0, "start"),
                    (upper, window.starts, 1, "start"),
                    (self._provenance.clocks(store, third), window.ends, 0, "end"),
                ]
            for found, clocks, half, name in parts:
                if window.site.kind == "wait" and name == "start":
                    # Between two polling waits the start is 0, and a predicate tells whether one has begun.
                    found = {one for one in found if not self._provenance.is_zero(one[0])}
                if not found or not found <= {(clock, half) for clock in clocks}:
                    return f"the {name} in the record {self._at(store)} does not come from the clock read of the site"
            if number != window.site.id:
                return f"the record {self._at(store)} is that of another site"
        for store in window.labels if whole else ():
            data = _data(self.nodes[store])
            number = None if data is None else self._provenance.constant(store, data)
            if number != window.site.id + 1:
                return f"the record {self._at(store)} is that of another site"
        return ""

    # -- 5. hazards ---------------------------------------------------------------------------------------------------------------

    def hazard(self, _: Window) -> str:
        return self._hazard

    @cached_property
    def _hazard(self) -> str:
        for producer in self.flow.nodes_of(self.kernel):
            one = self.nodes[producer]
            written = effects(one).writes
            if not has_variable_latency(one) or not effects(one).exact:
                continue
            for node in self.scoreboards.unwaited(producer):
                used = effects(self.nodes[node])
                for register in (used.reads | used.writes) & written:
                    if used.exact and producer in self.scoreboards.definitions(node, register):
                        where = f"{self._at(node)} without a wait for the instruction that writes it {self._at(producer)}"
                        return f"the control words are wrong: {register} is used {where}"
        return ""

    # -- other results awaited ------------------------------------------------------------------------------------------------------

    def other_waits(self, window: Window) -> tuple[str, ...]:
        """Return the instructions other than the access whose results are awaited between the clock reads."""
        inside = set(window.accesses) | set(window.ends)
        for access in window.accesses:
            inside |= self._before(access, window.starts)[0] | self._after(access, window.ends)[0]
        return self._awaited(inside, window.starts, window)

    def _awaited(self, inside: Set[int], firsts: frozenset[int], window: Window) -> tuple[str, ...]:
        """Return the instructions other than the access whose results the nodes `inside`, which begin behind `firsts`, wait for."""
        found: set[int] = set()
        for node in inside:
            for scoreboard in self.nodes[node].control.waits:
                for raiser in self.scoreboards.raised(node, scoreboard) - set(window.accesses) - window.witnesses:
                    if raiser in inside or firsts & self.scoreboards.unwaited(raiser):
                        found.add(raiser)
        return tuple(f"0x{self.nodes[node].offset:04x} {self.nodes[node].name}" for node in sorted(found))

    def _at(self, node: int) -> str:
        return f"at 0x{self.nodes[node].offset:04x}"


def _is_fence(one: Instruction) -> bool:
    return one.opcode == _FENCE


def _is_load(one: Instruction) -> bool:
    access = memory_access(one)
    return access is not None and access.kind == "load"


def _is_wait(one: Instruction) -> bool:
    return one.opcode in _WAITS or (one.opcode == _PRODUCT_WAIT and "DEPBAR" in one.modifiers)


def is_store(one: Instruction) -> bool:
    access = memory_access(one)
    return access is not None and access.kind == "store"


def _data(store: Instruction) -> Register | None:
    return store.operands[-1].register
