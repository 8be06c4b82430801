"""Splits a function's body into segments: instructions that one warp split (lanes at the same program counter) executes without stopping.

A segment is a basic block that is split further at warp-synchronous points: it ends at branches, barriers and exits, and before labels and
warp-synchronous instructions. Segments are numbered so that every loop is contiguous and precedes the code after it, and both sides of a
branch precede their join. Running the split at the lowest segment first therefore makes the lanes reconverge at the join.
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
from memlane.walks import bounded_rounds, positions


@dataclass(frozen=True)
class Step:
    """One instruction and its index in `function.body.instructions()`; instructions of called functions follow (see `linking`)."""

    index: int
    instruction: Instruction
    resumes: bool = False
    """Whether this is the second half of a call or of a barrier with a result: the part that runs after the wait."""
    link: Call | Return | None = None
    """The resolved call, or the return to a caller; None for other instructions."""


@dataclass(frozen=True)
class Segment:
    """A segment of instructions. `successors` are segment numbers: for a branch, the targets if taken come first, then the fall-through."""

    number: int
    steps: tuple[Step, ...]
    successors: tuple[int, ...]
    polls: bool = False
    """Whether a back edge from here closes a loop that reads memory that other threads may write."""
    polls_blocks: bool = False
    """Whether that loop reads more than barriers in shared memory, and so perhaps what threads of other blocks write."""
    returns: tuple[int, ...] = ()
    """At the end of a called function, the segments where its callers may continue."""


@dataclass(frozen=True)
class Body:
    """A flattened function: names are unique, and inner scopes are gone."""

    segments: tuple[Segment, ...]
    registers: dict[str, str]
    """Type of each register that an instruction names."""
    variables: tuple[Variable, ...]
    """Variables declared in the function, in order: in shared and local memory, and for parameters of calls."""


def flatten(function: Function, *, stop_at_memory: bool = False, polling: frozenset[str | None] = frozenset()) -> Body:
    """Split a function into segments; with `stop_at_memory` each memory instruction begins one, for the clock layer.

    `polling` are the functions that read memory that other threads may just have written; None stands for functions called through
    pointers.
    """
    flat = split_vectors(flatten_scopes(function))
    assert flat.body is not None
    statements = flat.body.statements
    drafts = _draft_segments(statements, stop_at_memory)
    labels = {label: number for number, draft in enumerate(drafts) for label in draft.labels}
    tables = _branch_tables(statements)
    successors = [_successors(drafts, number, labels, tables) for number in range(len(drafts))]
    order = nested_order(successors, 0)
    renumbered = {old: new for new, old in enumerate(order)}
    segments = [Segment(renumbered[old], tuple(drafts[old].steps), tuple(renumbered[s] for s in successors[old])) for old in order]
    variables = tuple(statement for statement in statements if isinstance(statement, Variable))
    return Body(tuple(_mark_polls(segments, polling)), _register_types(flat, statements, segments), variables)


# -- segments --------------------------------------------------------------------------------------------------------------------


@dataclass
class _SegmentDraft:
    labels: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def _ends(step: Step) -> bool:
    if step.resumes:  # lanes whose guard skips a call continue after the second half of the call
        return step.instruction.form.effect == "call" and step.instruction.guard is not None
    return step.instruction.form.effect in ("branch", "return", "exit", "trap", "barrier", "call")


def _begins(instruction: Instruction, stop_at_memory: bool) -> bool:
    if instruction.form.effect in ("warp", "matrix") and (instruction.has("sync") or instruction.opcode == "elect"):
        return True
    return stop_at_memory and instruction.form.effect in ("load", "store", "atomic", "reduction", "texture", "surface")


def _draft_segments(statements: Sequence[Statement], stop_at_memory: bool) -> list[_SegmentDraft]:
    drafts = [_SegmentDraft()]
    index = 0
    for statement in statements:
        current = drafts[-1]
        if isinstance(statement, Label):
            if current.steps:
                drafts.append(current := _SegmentDraft())
            current.labels.append(statement.name)
        elif isinstance(statement, Instruction):
            if current.steps and (_ends(current.steps[-1]) or _begins(statement, stop_at_memory)):
                drafts.append(current := _SegmentDraft())
            current.steps.append(Step(index, statement))
            if statement.form.effect == "call" or (statement.form.effect == "barrier" and statement.has("red")):
                drafts.append(_SegmentDraft(steps=[Step(index, statement, resumes=True)]))
            index += 1
    return drafts


def _branch_tables(statements: Sequence[Statement]) -> dict[str, tuple[str, ...]]:
    """Return the labels of each `name: .branchtargets a, b, c;`."""
    found = {}
    for label, directive in pairwise(statements):
        if isinstance(label, Label) and isinstance(directive, Directive) and directive.text.startswith(".branchtargets"):
            found[label.name] = tuple(re.findall(r"[\w$%]+", directive.text[len(".branchtargets") :]))
    return found


def _successors(
    drafts: Sequence[_SegmentDraft], number: int, labels: dict[str, int], tables: dict[str, tuple[str, ...]]
) -> tuple[int, ...]:
    following = (number + 1,) if number + 1 < len(drafts) else ()
    steps = drafts[number].steps
    if not steps:
        return following
    last = steps[-1].instruction
    if last.form.effect == "branch":
        name = last.operands[-1]
        assert isinstance(name, Symbol)
        targets = (name.name,) if last.opcode == "bra" else tables.get(name.name, ())
        for target in targets:
            if target not in labels:
                raise PtxTypeError(f"there is no label {target} in this function", last.span)
        taken = tuple(labels[target] for target in targets)
        return taken if last.guard is None else (*taken, *following)
    if last.form.effect in ("return", "exit", "trap"):
        return () if last.guard is None else following
    return following


def _mark_polls(segments: list[Segment], polling: frozenset[str | None]) -> Iterator[Segment]:
    used = {name for segment in segments for step in segment.steps for name in reads(step.instruction)}
    polls = [[step.instruction for step in segment.steps if _polls(step.instruction, used, polling)] for segment in segments]
    for segment in segments:
        loops = [target for target in segment.successors if target <= segment.number]
        inside = [one for some in polls[min(loops) : segment.number + 1] for one in some] if loops else []
        yield replace(segment, polls=bool(inside), polls_blocks=any(one.opcode != "mbarrier" for one in inside)) if loops else segment


def _polls(instruction: Instruction, used: set[str], polling: frozenset[str | None]) -> bool:
    """Return whether the instruction reads memory that another thread may just have written, and its result is used."""
    effect = instruction.form.effect
    if effect == "atomic":
        return any(name in used for name in values_written(instruction))
    if effect == "call":
        return called_name(instruction) in polling
    if instruction.opcode == "mbarrier":
        return instruction.has("test_wait") or instruction.has("try_wait")
    return effect == "load" and any(instruction.has(word) for word in ("volatile", "relaxed", "acquire", "mmio"))


# -- registers -------------------------------------------------------------------------------------------------------------------


def _register_types(function: Function, statements: Sequence[Statement], segments: Sequence[Segment]) -> dict[str, str]:
    """Return the type of each register that an instruction names, from its declaration, which may be that of a parameter."""
    single: dict[str, str] = {CARRY: "pred"}
    single.update({one.name: one.type for one in (*function.params, *function.results) if one.space == "reg"})
    many: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, RegisterDecl):
            (single if statement.count is None else many)[statement.name] = statement.type
    found = {}
    for segment in segments:
        for step in segment.steps:
            for name in (*reads(step.instruction), *values_written(step.instruction)):
                if name not in found:
                    found[name] = single.get(name) or many.get(name.rstrip("0123456789")) or _by_prefix(name, many)
    return found


def _by_prefix(name: str, many: dict[str, str]) -> str:
    """Return the type from the declaration whose name is a prefix of `name`.

    Needed only where the declared name itself ends in a digit, such as `%x1<4>`; `%r1_<4>` does not.
    """
    return next((kind for prefix, kind in many.items() if name.startswith(prefix)), "b32")


def reads(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers whose values an instruction needs; a guarded one also needs those that it may leave unchanged."""
    found = values_read(instruction)
    return found if instruction.guard is None else (*found, *values_written(instruction))


class LiveOut:
    """Liveness analysis: the registers that are live at the end of each segment.

    Sets of registers are the bits of integers, because many registers may be live after many segments.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        local = [_local(segment) for segment in segments]
        self._names = tuple(dict.fromkeys(name for used, _ in local for name in used))
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._named = [self._bits_of({*used, *written}) for used, written in local]
        self._used = used = [self._bits_of(one) for one, _ in local]
        written = [self._bits_of(one) for _, one in local]
        self._out = self._solve(segments, used, written)
        self._undefined = used[0] | self._out[0] & ~written[0] if segments else 0

    def _solve(self, segments: Sequence[Segment], needed: Sequence[int], killed: Sequence[int]) -> list[int]:
        before: list[list[int]] = [[] for _ in segments]
        for number, segment in enumerate(segments):
            for target in {*segment.successors, *segment.returns}:
                before[target].append(number)
        live_in, out = list(needed), [0] * len(segments)
        # The highest first: called functions lie below their callers, and take up what is live after all of their calls at once.
        work = [-number for number in range(len(segments))]
        heapify(work)
        waiting = set(range(len(segments)))
        # A segment is processed again only when one more register is live at its end.
        steps = bounded_rounds("which registers are needed after calls", len(segments) * (1 + len(self._names)))
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

    def at_end(self, segment: int) -> frozenset[str]:
        """Return the registers that are live at the end of a segment."""
        return self._names_of(self._out[segment])

    def named_in(self, segment: int) -> frozenset[str]:
        """Return the registers that are live at the end of a segment and that the segment reads or writes."""
        return self._names_of(self._out[segment] & self._named[segment])

    def read_by(self, segment: int) -> frozenset[str]:
        """Return the registers that are live at the start of a segment and read in it."""
        return self._names_of(self._used[segment])

    def spans(self) -> dict[str, tuple[int, int]]:
        """Return the first and the last segment of each register that is live at the end of some segment: where it is named, or holds a
        live value. In between it may hold a value too. Registers that may be read before they are written are left out."""
        live = [out | named for out, named in zip(self._out, self._named, strict=True)]
        first, last = self._firsts(live), self._firsts(live[::-1])
        anywhere = self.anywhere() - self._names_of(self._undefined)
        return {name: (first[self._numbers[name]], len(live) - 1 - last[self._numbers[name]]) for name in anywhere}

    def _firsts(self, live: Sequence[int]) -> dict[int, int]:
        """Return the first set that each register is in."""
        seen, found = 0, dict[int, int]()
        for number, bits in enumerate(live):
            found.update(dict.fromkeys(positions(bits & ~seen), number))
            seen |= bits
        return found

    def anywhere(self) -> frozenset[str]:
        """Return the registers that are live at the end of some segment."""
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


def _local(segment: Segment) -> tuple[dict[str, None], set[str]]:
    """Return the registers that a segment reads before it writes them, and those that it writes."""
    used, written = dict[str, None](), set[str]()
    for step in segment.steps:
        used.update((name, None) for name in reads(step.instruction) if name not in written)
        written.update(values_written(step.instruction))
    return used, written
