"""Find the consumers of loaded values: the instructions that need the value of a load to be there, on every path from the load.

    ld.global.f32 %f1, [%rd1];          opens a window
    ld.global.f32 %f2, [%rd2];          opens another; nothing has waited yet
    add.f32 %f3, %f1, %f2;              the consumer of both: their windows close here

A move passes the value on. Where ptxas assigns both registers to one machine register, the move is no instruction and no consumer;
elsewhere (`memlane.ptx.copies`) an instruction copies the value and waits for it, like any other consumer. So the window of a prefetching
load ends at the copy, or crosses the back edge of its loop and ends in the next iteration, whichever comes first. A call consumes all
values in flight, because the callee knows nothing of them. On a path on which no later instruction can read the value, the window closes
where that path begins.

A forward data-flow analysis computes, for each point of the function, which windows may be open, which are open in every lane that gets
there, and which registers may hold each value (`_State`). Loads that cannot be followed to a consumer are refused, with the reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from memlane.instrument.registers import Scope, components
from memlane.instrument.sites import live_results
from memlane.ptx import (
    SCALAR_TYPES,
    Block,
    ControlFlow,
    Copies,
    Function,
    Instruction,
    Liveness,
    RegisterDecl,
    flatten_scopes,
    is_move,
    is_product,
    overwrites,
    registers_read,
    registers_written,
)
from memlane.ptx.edit import EXITS
from memlane.walks import solve_forward

MOST_OPEN = 8
"""Windows that may be open at the same point; each needs three registers."""

AGAIN = "it may be executed again before its loaded value is read"
CROWDED = f"more than {MOST_OPEN} loads are in flight there"
OUT_OF_SIGHT = "its loaded value is not read before this function returns"
WIDENED = "the assembler widens its loaded value with a separate instruction, and other instructions write the same register"
TAKEN = "a warpgroup product (wgmma) uses its loaded value, and the registers of products in flight must not be touched"
ACQUIRES = "it has acquire semantics, so the assembler itself waits for it immediately"
NOWHERE = "no path leads from it to an instruction that reads its loaded value"

_ACQUIRING = frozenset({"acquire", "acq_rel"})


@dataclass(frozen=True, slots=True)
class ConsumedLoads:
    """Windows that close together before an instruction because it reads a register that may hold the value of any of them."""

    loads: tuple[int, ...]
    """Indices of the loads among the instructions of the function."""
    registers: tuple[str, ...]
    """Registers that hold the value, by their names at the instruction."""
    consumed: bool
    """Whether the instruction reads the value; if not, no later instruction does."""
    direct: bool
    """Whether each load fills all of these registers itself, so that any word of them shows that the load is complete."""
    tied: tuple[str, ...] = ()
    """Registers among these that must not be read before the window has closed, not even by instructions that ptxas adds: it may move a
    copy, or extend a sign right after the load."""
    signed: bool = False
    """Whether the registers have 64 bits and hold a narrower sign-extended number, so that their upper half is recomputed."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """Where the windows of the loads of a function close."""

    loads: frozenset[int] = frozenset()
    """Loads that were followed."""
    uncertain: frozenset[int] = frozenset()
    """Followed loads for which some lanes may reach a closing without having executed the load."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Reasons why the other loads were not followed, by index."""
    closings: Mapping[int, tuple[ConsumedLoads, ...]] = field(default_factory=dict)
    """Windows that close before an instruction, in order, by the instruction's index."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A window that may be open."""

    certain: bool
    registers: frozenset[str]
    """Registers of the flattened function that may hold the value."""


_State = Mapping[int, _Open]
"""Windows that may be open, by the index of their load."""


class _Windows:
    """Windows that may be open at one point, with an index by register, because an instruction concerns few of them."""

    def __init__(self, state: _State) -> None:
        self.open: dict[int, _Open] = {}
        self._of_register: dict[str, set[int]] = defaultdict(set)
        for load, window in state.items():
            self.put(load, window)

    def holding(self, registers: Iterable[str]) -> set[int]:
        """Return the windows whose value may be in one of these registers; an empty name selects the windows whose value is in no
        register."""
        return {load for name in registers for load in self._of_register.get(name, ())}

    def put(self, load: int, window: _Open) -> None:
        """Open a window, or replace it."""
        if load in self.open:
            self.close(load)
        self.open[load] = window
        for name in window.registers or ("",):
            self._of_register[name].add(load)

    def close(self, load: int) -> None:
        """Close an open window."""
        for name in self.open.pop(load).registers or ("",):
            self._of_register[name].discard(load)


def consumers(function: Function, loads: Sequence[int]) -> Consumers:
    """Return where the windows of `loads` (instruction indices) close, and why some loads cannot be followed. Each value must be live."""
    if not loads:
        return Consumers()
    walk = _Walk(function, frozenset(loads))
    refused = walk.refusals()
    refused |= dict.fromkeys(walk.over_limit(frozenset(loads) - set(refused)), CROWDED)
    return replace(walk.closings(frozenset(loads) - set(refused)), refused=refused)


class _Walk:
    """A flattened function and the windows that may be open at the start of each of its basic blocks."""

    def __init__(self, function: Function, loads: frozenset[int]) -> None:
        flat = flatten_scopes(function)
        self.loads = loads
        self.originals = list(function.instructions())
        self.flat = list(flat.instructions())
        self.live = live_results(flat)
        self.flow = ControlFlow(flat)
        self.liveness = Liveness(self.flow)
        self.copies = Copies(self.flow, self.liveness)
        self.top_level = _TopLevelRegisters(function)
        self.types = Scope.of((*flat.params, *flat.results, *flat.walk()))
        self.widened = frozenset(load for load in loads if self._is_widened(load))
        self.before = self._solve()

    def _indices(self, block: int) -> range:
        one = self.flow.blocks[block]
        return range(one.first, one.first + len(one.instructions))

    # -- where windows are open -----------------------------------------------------------------------------------------------------

    def _solve(self) -> dict[int, _State]:
        """Return the windows that may be open at the start of each reachable basic block, as a fixpoint."""
        if not self.flow.blocks:
            return {}
        # A block is visited again only if a window or a register of one was added at its start, or a window became uncertain.
        registers = {name for one in self.flat for name in registers_written(one)}
        arriving = len(self.live) * (2 + len(registers))
        analysis = f"where the values of loads in {self.flow.function.title} are consumed"
        start: _State = {}
        most = len(self.flow.blocks) * (1 + arriving) + 1
        return solve_forward(analysis, {0: start}, self.flow.successors.__getitem__, self._through, _join, most)

    def _through(self, block: int, state: _State) -> _State:
        """Return the windows that may be open at the end of a basic block."""
        windows = _Windows(state)
        for _ in self._steps(block, windows):
            pass
        return windows.open

    def _steps(self, block: int, windows: _Windows) -> Iterator[tuple[int, set[int], set[int]]]:
        """Step through a basic block and update `windows`. Yield for each instruction, before its effect, its index, the windows that it
        consumes and those that end unread there."""
        live: frozenset[str] | None = self.liveness.live_in(block)
        for index in self._indices(block):
            one = self.flat[index]
            read, written = registers_read(one), overwrites(one)
            may_consume = list(windows.open) if one.form.effect == "call" else windows.holding(read)
            consumed = {load for load in may_consume if self._consumes(one, load, windows.open[load])}
            may_end = list(windows.open) if live is not None or one.form.effect in EXITS else windows.holding(("", *written))
            unread = {load for load in may_end if load not in consumed and self._ends(one, windows.open[load], live)}
            yield index, consumed, unread
            # A guarded exit closes the windows only in the lanes that exit.
            for load in consumed if one.form.effect in EXITS and one.guard is not None else consumed | unread:
                windows.close(load)
            for load in windows.holding((*written, *(read if is_move(one) else ()))):
                window = windows.open[load]
                windows.put(load, replace(window, registers=_registers_after(one, window.registers)))
            if index in self.loads:
                windows.put(index, _Open(one.guard is None, self._filled(index)))
            live = None

    def _consumes(self, one: Instruction, load: int, window: _Open) -> bool:
        """Return whether an instruction waits for the value. A move does only where ptxas has to emit an instruction for it."""
        if window.registers.isdisjoint(registers_read(one)):
            return one.form.effect == "call"
        return not is_move(one) or load in self.widened or self.copies.needs_instruction(one, self._filled(load) | window.registers)

    def _ends(self, one: Instruction, window: _Open, live: frozenset[str] | None) -> bool:
        """Return whether no later instruction reads the value of a window. `live`: registers live at the start of the block; None inside
        it."""
        if live is not None and not window.registers & live:
            return True
        return one.form.effect in EXITS or not _registers_after(one, window.registers)

    # -- what follows -----------------------------------------------------------------------------------------------------------------

    def refusals(self) -> dict[int, str]:
        """Return the loads that cannot be followed, each judged by itself, with the reason."""
        refused = {load: WIDENED for load in self.widened if not self._filled(load).isdisjoint(self._filled_repeatedly)}
        refused |= {load: ACQUIRES for load in self.loads if not _ACQUIRING.isdisjoint(self.flat[load].modifiers)}
        ended: set[int] = set()
        for block, entered in self.before.items():
            windows = _Windows(entered)
            state = windows.open
            for index, consumed, unread in self._steps(block, windows):
                ended |= consumed | unread
                if is_product(self.flat[index]):
                    refused |= dict.fromkeys(consumed, TAKEN)
                if index in state and index not in consumed | unread:
                    refused.setdefault(index, AGAIN)
                read = registers_read(self.flat[index])
                for load in unread | {load for load in consumed if state[load].registers.isdisjoint(read)}:
                    if not self._holder(state[load], load):
                        refused.setdefault(load, OUT_OF_SIGHT)
        return dict.fromkeys(self.loads - ended, NOWHERE) | refused

    def _is_widened(self, load: int) -> bool:
        """Return whether ptxas has to sign-extend the value into a 64-bit register by a separate instruction."""
        loaded = SCALAR_TYPES.get(self.flat[load].modifiers[-1])
        if loaded is None or loaded.kind != "s" or loaded.bits >= 64:
            return False
        return any(SCALAR_TYPES[self.types.type_of(name)].bits == 64 for name in self.live[load])

    @cached_property
    def _filled_repeatedly(self) -> frozenset[str]:
        """Registers that several instructions write, or a single one under a guard."""
        times = Counter(name for one in self.flat for name in registers_written(one) * (1 if one.guard is None else 2))
        return frozenset(name for name, count in times.items() if count > 1)

    def _holder(self, window: _Open, load: int) -> tuple[str, ...]:
        """Return one register that holds the value and has the same name in every scope, preferably one that the load fills; empty if there
        is none."""
        filled = [name for name in self.live[load] if name.partition(".")[0] in window.registers]
        ordered = [*filled, *sorted(window.registers - self.top_level.vectors)]
        return tuple(name for name in ordered if self.top_level.has(name.partition(".")[0]))[:1]

    def over_limit(self, loads: frozenset[int]) -> set[int]:
        """Return the loads to give up because more than `MOST_OPEN` windows would be open at some point: the last ones in program order."""
        given_up: set[int] = set()

        def give_up(left: set[int]) -> None:
            if len(left) > MOST_OPEN:
                given_up.update(sorted(left)[MOST_OPEN:])
                left -= given_up

        for block, entered in self.before.items():
            windows = _Windows(entered)
            left = {load for load in entered if load in loads and load not in given_up}
            give_up(left)
            opened: int | None = None
            for index, _, _ in chain(self._steps(block, windows), [(None, (), ())]):
                # Relative to the previous instruction, windows may have closed, and only the one that it opened is new.
                left &= windows.open.keys()
                if opened in loads and opened not in given_up:
                    left.add(opened)
                    give_up(left)
                opened = index
        return given_up

    def closings(self, loads: frozenset[int]) -> Consumers:
        """Return where the windows of `loads` close."""
        closings: dict[int, tuple[ConsumedLoads, ...]] = {}
        uncertain: set[int] = {load for load in loads if self.flat[load].guard is not None}
        for block, entered in sorted(self.before.items()):
            windows = _Windows(entered)
            state = windows.open
            for index, consumed, unread in self._steps(block, windows):
                here = [*self._consumed(index, state, consumed & loads), *self._unread(state, unread & loads)]
                uncertain.update(load for load in (consumed | unread) & loads if not state[load].certain)
                if here:
                    closings[index] = tuple(here)
        return Consumers(loads, frozenset(uncertain), {}, closings)

    def _consumed(self, index: int, state: _State, loads: set[int]) -> Iterator[ConsumedLoads]:
        """Yield the windows that close at an instruction. Windows with a common register close together: a lane may have executed any of
        the loads."""
        read = set(registers_read(self.flat[index]))
        names = _names_at(self.flat[index], self.originals[index])
        for load in sorted(load for load in loads if state[load].registers.isdisjoint(read)):
            yield self._whole(load, state[load], consumed=True)
        groups: list[tuple[set[int], set[str]]] = []
        for load in sorted(load for load in loads if not state[load].registers.isdisjoint(read)):
            held = set(state[load].registers & read)
            joined = [group for group in groups if group[1] & held]
            groups = [group for group in groups if not group[1] & held]
            groups.append(({load}.union(*(group[0] for group in joined)), held.union(*(group[1] for group in joined))))
        for members, held in sorted(groups, key=lambda group: min(group[0])):
            registers = tuple(dict.fromkeys(original for flat, original in names if flat in held))
            direct, signed = all(held <= self._filled(load) for load in members), not self.widened.isdisjoint(members)
            tied = registers if signed or is_move(self.flat[index]) else ()
            yield ConsumedLoads(tuple(sorted(members)), registers, True, direct, tied, signed)

    def _unread(self, state: _State, loads: set[int]) -> Iterator[ConsumedLoads]:
        """Yield the windows that end unread before an instruction."""
        return (self._whole(load, state[load], consumed=False) for load in sorted(loads))

    def _whole(self, load: int, window: _Open, consumed: bool) -> ConsumedLoads:
        """Return a window that closes before an instruction that does not name its value."""
        held = self._holder(window, load)
        direct = {name.partition(".")[0] for name in held} <= self._filled(load)
        return ConsumedLoads((load,), held, consumed, direct)

    def _filled(self, load: int) -> frozenset[str]:
        """Return the live registers that a load fills."""
        return frozenset(name.partition(".")[0] for name in self.live[load])


def _join(old: _State, new: _State) -> _State | None:
    """Return the join of the states of two predecessors, or None if it equals `old`."""
    met: dict[int, _Open] = {}
    for load in (*old, *new):
        one, other = old.get(load), new.get(load)
        if one is None or other is None:
            known = one or other
            assert known is not None
            met[load] = replace(known, certain=False)
        else:
            met[load] = _Open(one.certain and other.certain, one.registers | other.registers)
    return None if met == old else met


def _registers_after(one: Instruction, registers: frozenset[str]) -> frozenset[str]:
    """Return the registers that may hold the value of a window after an instruction."""
    kept = registers - set(overwrites(one))
    if is_move(one) and registers & set(registers_read(one)):
        kept |= set(registers_written(one))
    return kept


def _names_at(flat: Instruction, original: Instruction) -> list[tuple[str, str]]:
    """Return for each register operand of an instruction its base name in the flattened function and its original name."""
    pairs = zip(flat.operands, original.operands, strict=True)
    found = [
        (one.partition(".")[0], other) for left, right in pairs for one, other in zip(components(left), components(right), strict=True)
    ]
    return found


class _TopLevelRegisters:
    """Registers that have the same name everywhere in a function: declared at its top level and not shadowed."""

    def __init__(self, function: Function) -> None:
        assert function.body is not None
        self._outer = Scope.of((*function.params, *function.results, *function.body.statements))
        self.vectors = {one.name for one in function.body.statements if isinstance(one, RegisterDecl) and one.vector > 1}
        self._inner: dict[str, bool] = {}
        self._scopes = list(_inner_scopes(function.body))

    def has(self, name: str) -> bool:
        """Return whether `name` is declared at the top level and not shadowed in an inner scope."""
        if name not in self._inner:
            self._inner[name] = self._outer.declares(name) and not any(scope.declares(name) for scope in self._scopes)
        return self._inner[name]


def _inner_scopes(body: Block) -> Iterator[Scope]:
    """Yield the scope of each nested block."""
    for statement in body.statements:
        if isinstance(statement, Block):
            yield Scope.of(statement.statements)
            yield from _inner_scopes(statement)
