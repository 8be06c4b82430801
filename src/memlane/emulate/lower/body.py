"""A function's body cut into places: stretches of instructions that one fragment of a warp runs without a stop.

A place ends at branches, barriers and exits, and before labels and warp-synchronous instructions. Places are numbered so that every loop is
contiguous and lies before what follows it, and both sides of a branch lie before where they meet: running the fragment at the lowest place
first then brings lanes together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

from memlane.emulate.lower.calls import Call, Return
from memlane.emulate.lower.order import nested_order
from memlane.errors import PtxTypeError
from memlane.ptx import (
    CARRY,
    Directive,
    Function,
    Instruction,
    Label,
    RegisterDecl,
    Statement,
    Symbol,
    Variable,
    called_name,
    flatten_scopes,
    split_vectors,
    values_read,
    values_written,
)
from memlane.walks import positions, settling


@dataclass(frozen=True)
class Step:
    """One instruction and its index in `function.body.instructions()`; those of called functions follow (see `linking`)."""

    index: int
    instruction: Instruction
    resumes: bool = False
    """Whether this is the second half of a barrier with a result, or of a call: what is done after the wait."""
    link: Call | Return | None = None
    """Of a call, or of a return to one."""


@dataclass(frozen=True)
class Place:
    """A stretch of instructions. `successors` are numbers of places: of a branch, where it goes if taken, then where otherwise."""

    number: int
    steps: tuple[Step, ...]
    successors: tuple[int, ...]
    polls: bool = False
    """Whether a back edge from here closes a loop that reads what other threads may write."""
    returns: tuple[int, ...] = ()
    """Of the end of a called function: where those who call it may go on."""


@dataclass(frozen=True)
class Body:
    """A function, flat: names are unique, and inner scopes are gone."""

    places: tuple[Place, ...]
    registers: dict[str, str]
    """Type of each register that an instruction names."""
    variables: tuple[Variable, ...]
    """Those declared in the function, in order: in shared and local memory, and for parameters of calls."""


def flatten(function: Function, *, stop_at_memory: bool = False, polling: frozenset[str | None] = frozenset()) -> Body:
    """Cut a function into places; with `stop_at_memory` each memory instruction begins one, for the clock layer.

    `polling` are functions, None for those called through pointers, that read what other threads may just have written.
    """
    flat = split_vectors(flatten_scopes(function))
    assert flat.body is not None
    statements = flat.body.statements
    stretches = _cut(statements, stop_at_memory)
    goals = {label: number for number, stretch in enumerate(stretches) for label in stretch.labels}
    tables = _branch_tables(statements)
    successors = [_successors(stretches, number, goals, tables) for number in range(len(stretches))]
    order = nested_order(successors, 0)
    renumbered = {old: new for new, old in enumerate(order)}
    places = [Place(renumbered[old], tuple(stretches[old].steps), tuple(renumbered[s] for s in successors[old])) for old in order]
    variables = tuple(statement for statement in statements if isinstance(statement, Variable))
    return Body(tuple(_mark_polls(places, polling)), _register_types(flat, statements, places), variables)


# -- places ----------------------------------------------------------------------------------------------------------------------


@dataclass
class _Stretch:
    labels: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def _ends(step: Step) -> bool:
    if step.resumes:  # lanes whose guard keeps them from a call go on behind what is done after it
        return step.instruction.form.effect == "call" and step.instruction.guard is not None
    return step.instruction.form.effect in ("branch", "return", "exit", "trap", "barrier", "call")


def _begins(instruction: Instruction, stop_at_memory: bool) -> bool:
    if instruction.form.effect in ("warp", "matrix") and (instruction.has("sync") or instruction.opcode == "elect"):
        return True
    return stop_at_memory and instruction.form.effect in ("load", "store", "atomic", "reduction", "texture", "surface")


def _cut(statements: Sequence[Statement], stop_at_memory: bool) -> list[_Stretch]:
    stretches = [_Stretch()]
    index = 0
    for statement in statements:
        current = stretches[-1]
        if isinstance(statement, Label):
            if current.steps:
                stretches.append(current := _Stretch())
            current.labels.append(statement.name)
        elif isinstance(statement, Instruction):
            if current.steps and (_ends(current.steps[-1]) or _begins(statement, stop_at_memory)):
                stretches.append(current := _Stretch())
            current.steps.append(Step(index, statement))
            if statement.form.effect == "call" or (statement.form.effect == "barrier" and statement.has("red")):
                stretches.append(_Stretch(steps=[Step(index, statement, resumes=True)]))
            index += 1
    return stretches


def _branch_tables(statements: Sequence[Statement]) -> dict[str, tuple[str, ...]]:
    """`name: .branchtargets a, b, c;`"""
    found = {}
    for label, directive in pairwise(statements):
        if isinstance(label, Label) and isinstance(directive, Directive) and directive.text.startswith(".branchtargets"):
            found[label.name] = tuple(re.findall(r"[\w$%]+", directive.text[len(".branchtargets") :]))
    return found


def _successors(stretches: Sequence[_Stretch], number: int, goals: dict[str, int], tables: dict[str, tuple[str, ...]]) -> tuple[int, ...]:
    following = (number + 1,) if number + 1 < len(stretches) else ()
    steps = stretches[number].steps
    if not steps:
        return following
    last = steps[-1].instruction
    if last.form.effect == "branch":
        name = last.operands[-1]
        assert isinstance(name, Symbol)
        targets = (name.name,) if last.opcode == "bra" else tables.get(name.name, ())
        for target in targets:
            if target not in goals:
                raise PtxTypeError(f"there is no label {target} in this function", last.span)
        taken = tuple(goals[target] for target in targets)
        return taken if last.guard is None else (*taken, *following)
    if last.form.effect in ("return", "exit", "trap"):
        return () if last.guard is None else following
    return following


def _mark_polls(places: list[Place], polling: frozenset[str | None]) -> Iterator[Place]:
    used = {name for place in places for step in place.steps for name in reads(step.instruction)}
    waits = [any(_polls(step.instruction, used, polling) for step in place.steps) for place in places]
    for place in places:
        loops = [target for target in place.successors if target <= place.number]
        yield replace(place, polls=any(waits[min(loops) : place.number + 1])) if loops else place


def _polls(instruction: Instruction, used: set[str], polling: frozenset[str | None]) -> bool:
    """Whether the instruction reads what another thread may just have written, and somebody looks at what it read."""
    effect = instruction.form.effect
    if effect == "atomic":
        return any(name in used for name in values_written(instruction))
    if effect == "call":
        return called_name(instruction) in polling
    if instruction.opcode == "mbarrier":
        return instruction.has("test_wait") or instruction.has("try_wait")
    return effect == "load" and any(instruction.has(word) for word in ("volatile", "relaxed", "acquire", "mmio"))


# -- registers -------------------------------------------------------------------------------------------------------------------


def _register_types(function: Function, statements: Sequence[Statement], places: Sequence[Place]) -> dict[str, str]:
    """The type of each register that is named, by its declaration, which may be that of a parameter."""
    single: dict[str, str] = {CARRY: "pred"}
    single.update({one.name: one.type for one in (*function.params, *function.results) if one.space == "reg"})
    many: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, RegisterDecl):
            (single if statement.count is None else many)[statement.name] = statement.type
    found = {}
    for place in places:
        for step in place.steps:
            for name in (*reads(step.instruction), *values_written(step.instruction)):
                if name not in found:
                    found[name] = single.get(name) or many.get(name.rstrip("0123456789")) or _by_prefix(name, many)
    return found


def _by_prefix(name: str, many: dict[str, str]) -> str:
    """For the rare declaration whose own name ends in a digit, as `%r1_<4>` does not but `%x1<4>` does."""
    return next((kind for prefix, kind in many.items() if name.startswith(prefix)), "b32")


def reads(instruction: Instruction) -> tuple[str, ...]:
    """The registers whose values an instruction needs: a guarded one also those that it may leave as they are."""
    found = values_read(instruction)
    return found if instruction.guard is None else (*found, *values_written(instruction))


class LiveOut:
    """Which registers hold values that somebody may still need when a place ends.

    Sets of registers are the bits of integers: many registers may be needed behind many places.
    """

    def __init__(self, places: Sequence[Place]) -> None:
        local = [_local(place) for place in places]
        self._names = tuple(dict.fromkeys(name for used, _ in local for name in used))
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._named = [self._bits_of({*used, *written}) for used, written in local]
        self._used = used = [self._bits_of(one) for one, _ in local]
        written = [self._bits_of(one) for _, one in local]
        self._out = self._solve(places, used, written)
        self._undefined = used[0] | self._out[0] & ~written[0] if places else 0

    def _solve(self, places: Sequence[Place], needed: Sequence[int], killed: Sequence[int]) -> list[int]:
        before: list[list[int]] = [[] for _ in places]
        for number, place in enumerate(places):
            for target in {*place.successors, *place.returns}:
                before[target].append(number)
        live_in, out = list(needed), [0] * len(places)
        # The highest first: called functions lie below those who call them, and take up what is needed behind all of their calls at once.
        work = [-number for number in range(len(places))]
        heapify(work)
        waiting = set(range(len(places)))
        # A place is met again only when one more register is needed behind it.
        steps = settling("which registers are needed after calls", len(places) * (1 + len(self._names)))
        while work:
            next(steps)
            number = -heappop(work)
            waiting.discard(number)
            live_in[number] |= out[number] & ~killed[number]
            for earlier in before[number]:
                after = out[earlier] | live_in[number]
                if after != out[earlier]:
                    out[earlier] = after
                    if earlier not in waiting:
                        waiting.add(earlier)
                        heappush(work, -earlier)
        return out

    def behind(self, place: int) -> frozenset[str]:
        """Return the registers that are needed behind a place."""
        return self._names_of(self._out[place])

    def named_in(self, place: int) -> frozenset[str]:
        """Return those of the registers that are needed behind a place that the place reads or writes."""
        return self._names_of(self._out[place] & self._named[place])

    def read_by(self, place: int) -> frozenset[str]:
        """Return the registers whose values a place needs from others."""
        return self._names_of(self._used[place])

    def spans(self) -> dict[str, tuple[int, int]]:
        """Return the first and the last place where each register that is needed behind some place is named, or holds what is needed. In
        between it may hold something too. Registers that may be read before they are written are left out."""
        live = [out | named for out, named in zip(self._out, self._named, strict=True)]
        first, last = self._firsts(live), self._firsts(live[::-1])
        anywhere = self.anywhere() - self._names_of(self._undefined)
        return {name: (first[self._numbers[name]], len(live) - 1 - last[self._numbers[name]]) for name in anywhere}

    def _firsts(self, live: Sequence[int]) -> dict[int, int]:
        """By register the first of the sets that it is in."""
        seen, found = 0, dict[int, int]()
        for number, bits in enumerate(live):
            found.update(dict.fromkeys(positions(bits & ~seen), number))
            seen |= bits
        return found

    def anywhere(self) -> frozenset[str]:
        """Return the registers that are needed behind some place."""
        found = 0
        for bits in self._out:
            found |= bits
        return self._names_of(found)

    def _bits_of(self, names: Iterable[str]) -> int:
        found = 0
        for number in {self._numbers[name] for name in names if name in self._numbers}:
            found |= 1 << number
        return found

    def _names_of(self, bits: int) -> frozenset[str]:
        return frozenset(self._names[number] for number in positions(bits))


def _local(place: Place) -> tuple[dict[str, None], set[str]]:
    """Return the registers whose values a place needs from others, and those that it writes."""
    used, written = dict[str, None](), set[str]()
    for step in place.steps:
        used.update((name, None) for name in reads(step.instruction) if name not in written)
        written.update(values_written(step.instruction))
    return used, written
