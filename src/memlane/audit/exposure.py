"""Check windows that close in front of their consumers in the machine code (in addition to the checks of `memlane.audit.proof`).

    CS2R start
    LDG value                            raises a scoreboard
    ...
    CS2R wait                            nothing in between has read the value, or waited for its scoreboard on its behalf
    LOP3 P0, value & zero & wait         waits for the scoreboard
    CS2R end

Where a thread may reach a consumer without having executed the load, a word in a register tells whether a record is due. That ptxas
preserves that word is assumed, as it is for the kernel's own registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memlane.audit.windows import Window, Windows, is_store, reads_clock
from memlane.instrument.probe import ProbeLines
from memlane.number_format import plural
from memlane.record import Site
from memlane.sass import Register, effects, reach_until, waits_for

_AROUND_WAIT = 6
"""Upper bound of the instructions between the clock reads around a wait: those of the probe, one for each three awaited words, and a few
of the kernel's own, which take a cycle or two each.
"""


@dataclass(frozen=True)
class ExposedWindow(Window):
    """Nodes of a site whose window closes in front of its consumers; `ends` has all its end clock reads."""

    waits: frozenset[int] = frozenset()
    """Clock reads before the wait of a consumer."""
    unread: frozenset[int] = frozenset()
    """Ends without a consumer, and therefore without a clock read before a wait."""
    certain: bool = True
    """Whether lanes reach the ends only after the access."""

    @property
    def gates(self) -> frozenset[int]:
        """Clock reads of which one must come first behind the access."""
        return self.waits | self.unread


class ExposedWindows(Windows):
    """Windows of a kernel, some of which close in front of their consumers."""

    def window(self, site: Site, probe: ProbeLines) -> Window:
        if not probe.window_ends:
            return super().window(site, probe)
        starts = self._clock_reads([probe.start])
        ends = self._clock_reads(one.end for one in probe.window_ends)
        waits = self._clock_reads(one.wait for one in probe.window_ends if one.wait is not None)
        return ExposedWindow(
            site,
            starts,
            self._accesses(site, probe) or self._accesses_in_window(site, starts, ends | waits),
            ends,
            times=self._stores(one.times for one in probe.window_ends),
            labels=self._stores(one.labels for one in probe.window_ends),
            waits=waits,
            unread=self._clock_reads(one.end for one in probe.window_ends if one.wait is None),
            certain=all(one.certain for one in probe.window_ends),
            made=self._made(probe),
        )

    def _clock_reads(self, instructions: Iterable[int]) -> frozenset[int]:
        return frozenset(node for one in instructions for node in self._made_from(one, reads_clock))

    def _stores(self, instructions: Iterable[int]) -> tuple[int, ...]:
        return tuple(node for one in instructions for node in self._made_from(one, is_store))

    # -- 1. order -----------------------------------------------------------------------------------------------------------------

    def disorder(self, window: Window) -> str:
        if not isinstance(window, ExposedWindow):
            return super().disorder(window)
        for nodes, name in ((window.starts, "first clock read"), (window.gates, "one before the wait"), (window.ends, "second clock read")):
            if not nodes:
                return f"the assembled code does not have the {name}"
        return self._disorder_in_front(window) or self._disorder_behind(window) or self.unended(window)

    def _disorder_in_front(self, window: ExposedWindow) -> str:
        clocks = window.starts | window.waits | window.ends
        for access in window.accesses:
            if not self._comes_from(access, clocks, window.starts):
                return f"the access {self._at(access)} can be reached without its first clock read"
            _, stops = self._after(access, clocks)
            if not stops or not stops <= window.gates:
                return f"the access {self._at(access)} is not followed by the clock read before the wait on every path"
        return ""

    def _disorder_behind(self, window: ExposedWindow) -> str:
        accesses = frozenset(window.accesses)
        events = window.starts | window.waits | window.ends | accesses
        for end in window.ends - window.unread:
            if not self._comes_from(end, events, window.waits):
                return f"the second clock read {self._at(end)} can be reached without the clock read before the wait"
        for gate in window.gates if window.certain else ():
            if not self._comes_from(gate, events, accesses):
                return f"the clock read {self._at(gate)} before the consumer can be reached without the access"
        return ""

    # -- the wait -----------------------------------------------------------------------------------------------------------------

    def consumed_early(self, window: Window) -> str:
        """Return why the value is read or waited for before the clock read that begins the wait, or an empty string."""
        for access in window.accesses if isinstance(window, ExposedWindow) else ():
            assert isinstance(window, ExposedWindow)
            in_front = self._in_front(window, access)
            for node in sorted(in_front - window.waits):
                if self._reads_value(node, access):
                    return f"the value is read {self._at(node)}, before the clock read that begins the wait"
            for node in self._awaiting(access, in_front):
                if not self._shares(node, access):
                    return f"the code waits for the access {self._at(node)}, before the clock read that begins the wait"
        return ""

    def work_inside_wait(self, window: Window) -> str:
        """Return why other work of the kernel lies between the clock reads around the wait and would count as exposed; else ""."""
        if not isinstance(window, ExposedWindow):
            return ""
        for end in sorted(window.ends - window.unread):
            between, _ = self._before(end, window.waits)
            if len(between) > _AROUND_WAIT:
                return f"{plural(len(between), 'instruction')} lie in the wait that ends {self._at(end)}: their time would count as exposed"
        return ""

    def shared_waits(self, window: Window) -> tuple[str, ...]:
        """Return the instructions in front of the consumer that also wait for the access, for another result with its scoreboard."""
        if not isinstance(window, ExposedWindow):
            return ()
        found = {node for access in window.accesses for node in self._awaiting(access, self._in_front(window, access))}
        return tuple(f"0x{self.nodes[node].offset:04x} {self.nodes[node].name}" for node in sorted(found))

    def _in_front(self, window: ExposedWindow, access: int) -> set[int]:
        """Return the nodes between the access and the waits of its consumers, the clock reads before these waits included."""
        between, stops = self._after(access, window.gates)
        leading: set[int] = set()
        for wait in window.waits & stops:
            leading |= self._before(wait, window.gates | set(window.accesses))[0]
        return between & leading | window.waits & stops

    def _reads_value(self, node: int, access: int) -> bool:
        shared = effects(self.nodes[node]).reads & effects(self.nodes[access]).writes
        return any(access in self.scoreboards.definitions(node, register) for register in shared)

    def _awaiting(self, access: int, nodes: set[int]) -> list[int]:
        """Return the nodes of `nodes` that are the first on their path to wait for the access."""
        under_way = self.scoreboards.unwaited(access) | {access}
        first = {successor for node in under_way for successor in self.flow.successors[node]} - under_way
        return sorted(first & nodes)

    def _waits_for(self, node: int, scoreboard: int | None) -> bool:
        return scoreboard in waits_for(self.nodes[node])

    def _shares(self, node: int, access: int) -> bool:
        """Return whether another instruction may hold the access's scoreboard where `node` waits for it.

        The other instruction sets it for its result or for its sources, or is `node` itself. Also true if the access releases its sources
        by the same scoreboard and `node` overwrites one of them, and if the access has no scoreboard, because a later load from shared
        memory has it.
        """
        board = self.nodes[access].control.write_scoreboard
        if board is None:
            return True
        if board == self.nodes[access].control.read_scoreboard and effects(self.nodes[node]).writes & effects(self.nodes[access]).reads:
            return True
        seen, stops = reach_until(
            self.flow.predecessors[node], self.flow.predecessors.__getitem__, lambda before: self._waits_for(before, board)
        )
        controls = (self.nodes[before].control for before in seen | stops | {node} if before != access)
        return any(board in (control.write_scoreboard, control.read_scoreboard) for control in controls)

    # -- 4. record ----------------------------------------------------------------------------------------------------------------

    def wrong_exposed_cycles(self, window: Window) -> str:
        """Return why the exposed cycles in the record do not come from the two clock reads around the wait, or an empty string."""
        for store in window.labels if isinstance(window, ExposedWindow) else ():
            assert isinstance(window, ExposedWindow)
            data = self.nodes[store].operands[-1].register
            clocks = set() if data is None else self._clocks_of(store, Register(data.bank, data.number + 2))
            if clocks and not (clocks <= window.waits | window.ends and clocks & window.waits and clocks & window.ends):
                return f"the exposed cycles in the record {self._at(store)} do not come from the clock reads around the wait"
        return ""

    def _clocks_of(self, node: int, register: Register) -> set[int]:
        """Return the clock reads that a value was computed from."""
        found: set[int] = set()
        seen: set[tuple[int, Register]] = set()
        work = [(node, register)]
        while work:
            place, held = work.pop()
            for producer in self.scoreboards.definitions(place, held):
                if reads_clock(self.nodes[producer]):
                    found.add(producer)
                    continue
                new = {(producer, source) for source in effects(self.nodes[producer]).reads if source.bank in ("R", "UR")} - seen
                seen |= new
                work.extend(new)
        return found

    # -- other results awaited ------------------------------------------------------------------------------------------------------

    def other_waits(self, window: Window) -> tuple[str, ...]:
        """Return what is awaited besides the access between the clock reads; for a window in front of a consumer, in its wait."""
        if not isinstance(window, ExposedWindow):
            return super().other_waits(window)
        inside = set(window.ends - window.unread)
        for end in window.ends - window.unread:
            inside |= self._before(end, window.waits)[0]
        return self._awaited(inside, window.waits, window)
