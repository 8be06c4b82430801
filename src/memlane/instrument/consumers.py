"""Who consumes what a load brings: the instructions in front of which the value has to be there, on every path from the load.

    ld.global.f32 %f1, [%rd1];          opens a window
    ld.global.f32 %f2, [%rd2];          opens another; nothing has waited yet
    add.f32 %f3, %f1, %f2;              the consumer of both: here their windows close

A move hands the value on. Where the assembler gives both registers one of the machine it is no instruction and no consumer; where it
cannot (`memlane.ptx.copies`), an instruction copies the value, and waits for it: a consumer as any other. The window of a load that fetches
ahead so ends at the copy, or crosses the end of its iteration and ends in the next one, whichever the machine does first. Who calls a
function waits for all that is under way, because what is called knows nothing of it. Where a path leaves all instructions behind that could
read the value, nobody consumes it there: the window closes where that path begins.

At every place of the function it is known which windows may be open, which are open for certain in a lane that comes by, and which
registers hold the value (`_State`). What cannot be followed to its consumer is refused, with the reason.
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
from memlane.walks import flowed

MOST_OPEN = 8
"""Windows that may be open at one place: each holds three registers."""

AGAIN = "it may be executed again before its loaded value is read"
CROWDED = f"more than {MOST_OPEN} loads are in flight there"
OUT_OF_SIGHT = "its loaded value is not read before this function returns"
WIDENED = "the assembler widens its loaded value with a separate instruction, and other instructions write the same register"
TAKEN = "a warpgroup product (wgmma) uses its loaded value, and the registers of products in flight must not be touched"
ACQUIRES = "it has acquire semantics, so the assembler itself waits for it immediately"
NOWHERE = "no path leads from it to an instruction that reads its loaded value"

_ACQUIRING = frozenset({"acquire", "acq_rel"})


@dataclass(frozen=True, slots=True)
class Consumed:
    """Windows that close together in front of an instruction, because it needs the same registers for all of them."""

    loads: tuple[int, ...]
    """Indices of the loads among the instructions of the function."""
    registers: tuple[str, ...]
    """Those that hold the value, as they are called at the instruction."""
    consumed: bool
    """Whether the instruction reads it; else nothing does any more."""
    direct: bool
    """Whether each of the loads fills all of these registers itself, so that each word of them tells that it is complete."""
    tied: tuple[str, ...] = ()
    """Those of the registers that must not be read before the window has closed even by what the assembler adds: it is free to put the
    copy at another place, or to spread a sign where the load stands."""
    signed: bool = False
    """Whether the registers have 64 bits and hold a narrower number whose sign is spread: their upper half is made anew."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """Where the windows of the loads of a function close."""

    loads: frozenset[int] = frozenset()
    """Those that were followed."""
    uncertain: frozenset[int] = frozenset()
    """Of those: some lanes come to a closing of theirs without having executed them."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why others were not."""
    closings: Mapping[int, tuple[Consumed, ...]] = field(default_factory=dict)
    """By index of an instruction: what closes in front of it, in that order."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A window that may be open."""

    certain: bool
    registers: frozenset[str]
    """Which of the flattened function may hold the value."""


_State = Mapping[int, _Open]
"""By the index of the load."""


class _Windows:
    """The windows that may be open at one place, and which of them each register belongs to. An instruction concerns few of them."""

    def __init__(self, state: _State) -> None:
        self.open: dict[int, _Open] = {}
        self._of_register: dict[str, set[int]] = defaultdict(set)
        for load, window in state.items():
            self.put(load, window)

    def holding(self, registers: Iterable[str]) -> set[int]:
        """Return the windows whose value some of these registers may hold; those whose value none holds for an empty name."""
        return {load for name in registers for load in self._of_register.get(name, ())}

    def put(self, load: int, window: _Open) -> None:
        """Open a window, or replace it."""
        if load in self.open:
            self.close(load)
        self.open[load] = window
        for name in window.registers or ("",):
            self._of_register[name].add(load)

    def close(self, load: int) -> None:
        """Close a window that is open."""
        for name in self.open.pop(load).registers or ("",):
            self._of_register[name].discard(load)


def consumers(function: Function, loads: Sequence[int]) -> Consumers:
    """The closings of those of `loads` (indices among the instructions) that can be followed. Their values must be read somewhere."""
    if not loads:
        return Consumers()
    walk = _Walk(function, frozenset(loads))
    refused = walk.refusals()
    refused |= dict.fromkeys(walk.crowded(frozenset(loads) - set(refused)), CROWDED)
    return replace(walk.closings(frozenset(loads) - set(refused)), refused=refused)


class _Walk:
    """A flattened function, and the windows that may be open in front of each of its blocks."""

    def __init__(self, function: Function, loads: frozenset[int]) -> None:
        flat = flatten_scopes(function)
        self.loads = loads
        self.originals = list(function.instructions())
        self.flat = list(flat.instructions())
        self.live = live_results(flat)
        self.flow = ControlFlow(flat)
        self.liveness = Liveness(self.flow)
        self.copies = Copies(self.flow, self.liveness)
        self.outermost = _Outermost(function)
        self.types = Scope.of((*flat.params, *flat.results, *flat.walk()))
        self.widened = frozenset(load for load in loads if self._is_widened(load))
        self.before = self._solve()

    def _indices(self, block: int) -> range:
        one = self.flow.blocks[block]
        return range(one.first, one.first + len(one.instructions))

    # -- where windows are open -----------------------------------------------------------------------------------------------------

    def _solve(self) -> dict[int, _State]:
        """The windows that may be open in front of each block that can be reached."""
        if not self.flow.blocks:
            return {}
        # A block is met again only when a window, or a register of one, has arrived there, or one is no longer certain.
        registers = {name for one in self.flat for name in registers_written(one)}
        arriving = len(self.live) * (2 + len(registers))
        analysis = f"where the values of loads in {self.flow.function.title} are consumed"
        start: _State = {}
        most = len(self.flow.blocks) * (1 + arriving) + 1
        return flowed(analysis, {0: start}, self.flow.successors.__getitem__, self._through, _met, most)

    def _through(self, block: int, state: _State) -> _State:
        windows = _Windows(state)
        for _ in self._steps(block, windows):
            pass
        return windows.open

    def _steps(self, block: int, windows: _Windows) -> Iterator[tuple[int, set[int], set[int]]]:
        """Take windows through a block. Yields for each instruction, in front of it, its index, the windows that it consumes and those that
        end unread there."""
        live: frozenset[str] | None = self.liveness.live_in(block)
        for index in self._indices(block):
            one = self.flat[index]
            read, written = registers_read(one), overwrites(one)
            may_consume = list(windows.open) if one.form.effect == "call" else windows.holding(read)
            consumed = {load for load in may_consume if self._consumes(one, load, windows.open[load])}
            may_end = list(windows.open) if live is not None or one.form.effect in EXITS else windows.holding(("", *written))
            unread = {load for load in may_end if load not in consumed and self._ends(one, windows.open[load], live)}
            yield index, consumed, unread
            # Only the lanes that leave under a guard close windows there.
            for load in consumed if one.form.effect in EXITS and one.guard is not None else consumed | unread:
                windows.close(load)
            for load in windows.holding((*written, *(read if is_move(one) else ()))):
                window = windows.open[load]
                windows.put(load, replace(window, registers=_moved(one, window.registers)))
            if index in self.loads:
                windows.put(index, _Open(one.guard is None, self._filled(index)))
            live = None

    def _consumes(self, one: Instruction, load: int, window: _Open) -> bool:
        """Whether an instruction waits for the value. A move does only where the assembler has to make an instruction of it."""
        if window.registers.isdisjoint(registers_read(one)):
            return one.form.effect == "call"
        return not is_move(one) or load in self.widened or self.copies.needs_instruction(one, self._filled(load) | window.registers)

    def _ends(self, one: Instruction, window: _Open, live: frozenset[str] | None) -> bool:
        """Whether nothing reads the value of a window from here on, or knows where it is. `live`: what lives at the start of a block."""
        if live is not None and not window.registers & live:
            return True
        return one.form.effect in EXITS or not _moved(one, window.registers)

    # -- what follows -----------------------------------------------------------------------------------------------------------------

    def refusals(self) -> dict[int, str]:
        """The loads that cannot be followed, each by itself."""
        refused = {load: WIDENED for load in self.widened if not self._filled(load).isdisjoint(self._filled_often)}
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
                    if not self._held(state[load], load):
                        refused.setdefault(load, OUT_OF_SIGHT)
        return dict.fromkeys(self.loads - ended, NOWHERE) | refused

    def _is_widened(self, load: int) -> bool:
        """Whether a sign has to be spread over the upper half of a register of 64 bits, which a load itself does not do."""
        loaded = SCALAR_TYPES.get(self.flat[load].modifiers[-1])
        if loaded is None or loaded.kind != "s" or loaded.bits >= 64:
            return False
        return any(SCALAR_TYPES[self.types.type_of(name)].bits == 64 for name in self.live[load])

    @cached_property
    def _filled_often(self) -> frozenset[str]:
        """Registers that more than one instruction writes, or one that lanes may skip."""
        times = Counter(name for one in self.flat for name in registers_written(one) * (1 if one.guard is None else 2))
        return frozenset(name for name, count in times.items() if count > 1)

    def _held(self, window: _Open, load: int) -> tuple[str, ...]:
        """A register that holds the value and is called the same everywhere; what the load itself fills first."""
        filled = [name for name in self.live[load] if name.partition(".")[0] in window.registers]
        ordered = [*filled, *sorted(window.registers - self.outermost.vectors)]
        return tuple(name for name in ordered if self.outermost.has(name.partition(".")[0]))[:1]

    def crowded(self, loads: frozenset[int]) -> set[int]:
        """Which of `loads` have to be given up because too many others would be open with them: at each place the last of the text."""
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
                # What was open in front of the instruction before is still open, or is not; only what that opened is new.
                left &= windows.open.keys()
                if opened in loads and opened not in given_up:
                    left.add(opened)
                    give_up(left)
                opened = index
        return given_up

    def closings(self, loads: frozenset[int]) -> Consumers:
        """Where the windows of `loads` close."""
        closings: dict[int, tuple[Consumed, ...]] = {}
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

    def _consumed(self, index: int, state: _State, loads: set[int]) -> Iterator[Consumed]:
        """Windows with a register in common close together: who comes by may have executed any of these loads."""
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
            yield Consumed(tuple(sorted(members)), registers, True, direct, tied, signed)

    def _unread(self, state: _State, loads: set[int]) -> Iterator[Consumed]:
        return (self._whole(load, state[load], consumed=False) for load in sorted(loads))

    def _whole(self, load: int, window: _Open, consumed: bool) -> Consumed:
        """A window that closes in front of what does not name its value."""
        held = self._held(window, load)
        direct = {name.partition(".")[0] for name in held} <= self._filled(load)
        return Consumed((load,), held, consumed, direct)

    def _filled(self, load: int) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in self.live[load])


def _met(old: _State, new: _State) -> _State | None:
    """What may be open where two paths meet, or None if that is known already."""
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


def _moved(one: Instruction, registers: frozenset[str]) -> frozenset[str]:
    """Which registers hold the value of a window behind an instruction."""
    kept = registers - set(overwrites(one))
    if is_move(one) and registers & set(registers_read(one)):
        kept |= set(registers_written(one))
    return kept


def _names_at(flat: Instruction, original: Instruction) -> list[tuple[str, str]]:
    """Each register operand of an instruction: its base name in the flattened function, and its name in the text."""
    pairs = zip(flat.operands, original.operands, strict=True)
    found = [
        (one.partition(".")[0], other) for left, right in pairs for one, other in zip(components(left), components(right), strict=True)
    ]
    return found


class _Outermost:
    """The registers that are called the same everywhere in a function: declared outside, and hidden nowhere."""

    def __init__(self, function: Function) -> None:
        assert function.body is not None
        self._outer = Scope.of((*function.params, *function.results, *function.body.statements))
        self.vectors = {one.name for one in function.body.statements if isinstance(one, RegisterDecl) and one.vector > 1}
        self._inner: dict[str, bool] = {}
        self._scopes = list(_inner_scopes(function.body))

    def has(self, name: str) -> bool:
        if name not in self._inner:
            self._inner[name] = self._outer.declares(name) and not any(scope.declares(name) for scope in self._scopes)
        return self._inner[name]


def _inner_scopes(body: Block) -> Iterator[Scope]:
    for statement in body.statements:
        if isinstance(statement, Block):
            yield Scope.of(statement.statements)
            yield from _inner_scopes(statement)
