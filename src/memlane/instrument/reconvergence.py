"""Where the lanes of a warp may be apart in the assembled code, although they came to its function together.

Lanes come apart

- at a branch that they may take differently, to a label or through a jump table;
- at a call through a pointer, unless all lanes have the same one and no function that it may lead to returns lanes one after another;
- at a call of a function from which they may return one after another: one that a lane may leave while others are still in it, one that
  calls itself, and one whose code is not in the program.

Each group then runs for itself, and groups that come to an instruction at different times execute it one after another. They are together
again only

- behind the `BSYNC` of a convergence barrier whose `BSSY` they executed together before they came apart. Lanes that `BREAK` out of a
  barrier are not waited for at it; those that wait go on without them. Nor are lanes that step back for others (`YIELD`, `NANOSLEEP`)
  while these wait, as was measured: in a loop that tries to take a lock each lane goes on alone. A barrier that is set anew, or moved to a
  register, joins only lanes that were together then;
- behind a `WARPSYNC.ALL`, which waits for every lane of the warp. Where one follows, as in front of a barrier of the block, the assembler
  sets no convergence barrier.

Nothing else counts as joining them: not `WARPSYNC` of a mask, collective instructions or barriers of the block. The hardware may join
groups that happen to wait for the processor at the same instruction, which no text tells.

Lanes that end (`EXIT` under a guard, a trap) leave the others together. A branch is taken alike by all lanes if its predicate comes from
constants. A branch of a kernel without a convergence barrier around it is also taken for one that the assembler found to be uniform, unless
the PTX branch on its line diverges. In a function that is called the latter must be shown not to diverge, as the assembler leaves barriers
out where a function may call itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from memlane.instrument.assembled import Assembled
from memlane.ptx import ControlFlow, flatten_scopes
from memlane.ptx.calls import addressed_functions
from memlane.ptx.demangle import demangle
from memlane.ptx.divergence import diverging_branches
from memlane.sass import Instruction, Register
from memlane.sass.registers import effects
from memlane.titles import kernel_label
from memlane.walks import reachable, settling

APART = "the assembled code may not bring the lanes of a warp together before it"
"""What every reason says."""

_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX"})
_OF_THE_WARP = frozenset({"DIV", "CONV", "U"})
"""Modifiers of jumps that a warp takes as a whole."""
_UNIFORM_SPECIALS = ("SR_CTAID", "SR_NCTAID", "SR_CgaCtaId", "SR_GRIDID")
_ARITHMETIC = frozenset(
    """
    MOV IADD3 IMAD VIADD IABS LEA LOP3 SHF SEL PRMT IMNMX VIMNMX ISETP PLOP3 LDC FADD FMUL FFMA FMNMX FSETP HADD2 HFMA2 I2F F2I
    """.split()  # noqa: SIM905
)
"""Instructions whose result is the same in all lanes where their sources are."""


_LETS_OTHERS_GO = frozenset({"YIELD", "NANOSLEEP"})
"""Where lanes step back: barriers at which others wait for them let these go."""
_BARRIER_NUMBERS = range(16)

_State = tuple[int, frozenset[int]]
"""An instruction, and the barriers at which the lanes that come to it still wait."""


@dataclass(frozen=True, slots=True)
class _Parting:
    """Where lanes may come apart."""

    sides: tuple[int, ...]
    """Where they go on; each side for itself of a branch, and one for all that return from a call."""
    cause: str = ""
    """From what they return one after another; empty for a branch."""

    @property
    def reason(self) -> str:
        returned = f"the lanes of a warp may return one after another from {self.cause}, and " if self.cause else ""
        return f"{returned}{APART}, so they may be served in other groups"


class Reconvergence:
    """Answers for one module and its assembled code."""

    def __init__(self, code: Assembled) -> None:
        self._code = code
        self._flow = code.flow
        self._routines: dict[int, _Routine] = {}
        self._entered: set[int] = set()
        self._branches: dict[str, Mapping[int | None, bool]] = {}

    def apart(self, function: str) -> Mapping[int, str]:
        """The reason, by instruction of a kernel or of a function that it calls, if lanes that came to that together may be apart there."""
        entries = {self._flow.entry(function)}
        while True:
            found = [self._routine(entry) for entry in sorted(entries)]
            nested = {entry for one in found for entry in one.subroutines}
            if nested <= entries:
                return {node: reason for one in reversed(found) for node, reason in one.apart.items()}
            entries |= nested

    def returns_apart(self, entry: int) -> bool:
        """Whether lanes that call a routine together may return from it one after another; so they may from what calls itself."""
        if entry in self._entered:
            return True
        self._entered.add(entry)
        found = self._routine(entry).returns_apart
        self._entered.discard(entry)
        return found

    @cached_property
    def addressed(self) -> tuple[int, ...]:
        """The entries of the functions that a pointer may lead to; none if the code of one is not there."""
        names = [one.name for one in addressed_functions(self._code.module)]
        return tuple(map(self._flow.entry, names)) if self._code.program.functions.keys() >= set(names) else ()

    def _routine(self, entry: int) -> _Routine:
        if entry not in self._routines:
            self._routines[entry] = _Routine(self, self._code, entry)
        return self._routines[entry]

    def may_diverge(self, node: int) -> bool | None:
        """Whether lanes may take the branch of the PTX on the line of an instruction differently; None if there is no branch on it."""
        function = self._flow.function_of[node]
        if function not in self._branches:
            self._branches[function] = self._diverging(function)
        return self._branches[function].get(self._flow.nodes[node].ptx_line)

    def _diverging(self, function: str) -> Mapping[int | None, bool]:
        """By line of the PTX whether the branch on it may diverge."""
        known = self._code.module.functions.get(function)
        if known is None or known.body is None:
            return {}
        flow = ControlFlow(flatten_scopes(known))
        diverging, lines = diverging_branches(flow), self._code.lines(function)
        ends = (block for block in flow.blocks if len(flow.successors[block.index]) > 1)
        return {lines[block.first + len(block.instructions) - 1]: block.index in diverging for block in ends}


class _Routine:
    """A kernel, a function, or a part of one that is called for itself; without what it calls."""

    def __init__(self, program: Reconvergence, code: Assembled, entry: int) -> None:
        self._program = program
        self._flow, self._waiting = code.flow, code.waiting
        self._entry = entry
        self._known_next: dict[int, tuple[int, ...]] = {}
        name = self._flow.function_of[entry]
        self._is_kernel = name in code.module.kernels and entry == self._flow.entry(name)

    # -- answers ------------------------------------------------------------------------------------------------------------------

    @cached_property
    def apart(self) -> Mapping[int, str]:
        """The reason, by instruction at which lanes may be apart that came to the routine together."""
        found: dict[int, str] = {}
        for node, parting in self._partings.items():
            first, *others = self._before_joining(node, parting)
            seen, several = first, set[int]() if len(parting.sides) > 1 else first
            for one in others:
                several = several | seen & one
                seen = seen | one
            for number in several:
                found.setdefault(number, parting.reason)
        return found

    @cached_property
    def returns_apart(self) -> bool:
        """Whether some lanes may return while others do not."""
        ends = {node for node in self._held if self._flow.nodes[node].opcode == "RET"}
        guarded = any(self._next(node) and not self._is_uniform_jump(node) for node in ends)
        return guarded or any(self._divides(ends, node, parting) for node, parting in self._partings.items())

    def _divides(self, ends: set[int], node: int, parting: _Parting) -> bool:
        """Whether lanes that come apart may reach the ends in several groups."""
        reaching = sum(not ends.isdisjoint(one) for one in self._before_joining(node, parting))
        return reaching > (1 if len(parting.sides) > 1 else 0)

    @cached_property
    def subroutines(self) -> frozenset[int]:
        """The entries of the parts of the function that it calls."""
        name = self._flow.function_of[self._entry]
        calls = (node for node in self._held if self._flow.nodes[node].opcode == "CALL")
        called = {to for node in calls for to in self._flow.targets(node) if self._flow.function_of[to] == name}
        return frozenset(called - {self._flow.entry(name)})

    # -- coming apart -------------------------------------------------------------------------------------------------------------

    @cached_property
    def _partings(self) -> dict[int, _Parting]:
        return {node: parting for node in sorted(self._held) if (parting := self._parting(node)) is not None}

    def _parting(self, node: int) -> _Parting | None:
        one = self._flow.nodes[node]
        following = self._next(node)
        if one.opcode == "CALL":
            cause = self._returning(node)
            return _Parting(following, cause) if cause and following else None
        if one.opcode not in _JUMPS or len(following) < 2 or _OF_THE_WARP.intersection(one.modifiers):
            return None
        return None if not self._held[node] and self._is_uniform_jump(node) else _Parting(following)

    def _returning(self, node: int) -> str:
        """From what lanes may return one after another, in words; empty if they return together."""
        one, targets = self._flow.nodes[node], self._flow.targets(node)
        where = f" in line {one.place.line}" if one.place is not None else ""
        if self._flow.is_indirect_call(node):
            targets = self._program.addressed if self._has_uniform_sources(one, node) else ()
        if targets and not any(map(self._program.returns_apart, targets)):
            return ""
        if self._flow.is_indirect_call(node):
            return f"a call through a pointer{where}"
        name = next(label for operand in one.operands for label in operand.targets)
        return f"a call of {kernel_label(demangle(name))}{where}"

    def _is_uniform_jump(self, node: int) -> bool:
        """Whether lanes that are together take a jump alike, or whether the assembler found that."""
        may_diverge = self._program.may_diverge(node)
        if self._has_uniform_sources(self._flow.nodes[node], node):
            return True
        return may_diverge is not True if self._is_kernel else may_diverge is False and self._is_one_condition(node)

    def _is_one_condition(self, node: int) -> bool:
        """Whether a jump has one predicate, made of no others: not of two branches that the assembler joined, of which one diverges."""
        predicates = [register for register in effects(self._flow.nodes[node]).reads if register.bank == "P"]
        writers = {writer for one in predicates for writer in self._waiting.definitions(node, one)}
        sources = {register.bank for writer in writers for register in effects(self._flow.nodes[writer]).reads}
        return len(predicates) == 1 and sources.isdisjoint({"P", "UP"})

    def _has_uniform_sources(self, one: Instruction, node: int) -> bool:
        registers = effects(one).reads
        return bool(registers) and all(self._is_uniform(node, register, frozenset()) for register in registers)

    def _is_uniform(self, node: int, register: Register, within: frozenset[int]) -> bool:
        """Whether a register holds the same in all lanes at an instruction, as far as one chain of definitions shows."""
        if register.bank in ("UR", "UP"):
            return True
        definitions = self._waiting.definitions(node, register)
        if len(definitions) != 1 or definitions <= within:
            return False
        (writer,) = definitions
        one = self._flow.nodes[writer]
        if one.opcode == "S2R":
            return one.operands[-1].text.startswith(_UNIFORM_SPECIALS)
        behind = within | definitions
        return one.opcode in _ARITHMETIC and all(self._is_uniform(writer, source, behind) for source in effects(one).reads)

    # -- coming together ----------------------------------------------------------------------------------------------------------

    def _before_joining(self, node: int, parting: _Parting) -> list[set[int]]:
        """By group of lanes the instructions that it may come to before it is together with the others again. A group has taken a side, or
        has waited at a barrier that others had left."""
        found: list[set[_State]] = []
        starts = [{(side, self._held[node])} for side in parting.sides]
        waited = set[int]()
        while starts:
            found += [reachable(start, self._onwards) for start in starts]
            states = set[_State]().union(*found)
            left = {number for at, awaited in states for number in self._left(at) if number in awaited} - waited
            starts = [behind for number in sorted(left) if (behind := self._joined(number, states))]
            waited |= left
        return [{at for at, _ in group} for group in found]

    def _onwards(self, state: _State) -> list[_State]:
        """Where lanes come next that wait at some barriers; nowhere where they join the others."""
        node, awaited = state
        one = self._flow.nodes[node]
        if self._waits_at(node) in awaited or (one.opcode == "WARPSYNC" and "ALL" in one.modifiers):
            return []
        behind = awaited.difference(self._left(node))
        return [(to, behind) for to in self._next(node)]

    def _joined(self, number: int, states: Iterable[_State]) -> set[_State]:
        """Where lanes go on that have waited at a barrier."""
        waiting = ((node, awaited) for node, awaited in states if number in awaited and self._waits_at(node) == number)
        return {(to, awaited - {number}) for node, awaited in waiting for to in self._next(node)}

    def _waits_at(self, node: int) -> int | None:
        one = self._flow.nodes[node]
        return _barriers(one)[0] if one.opcode == "BSYNC" else None

    def _left(self, node: int) -> list[int]:
        """The barriers that all lanes leave, set or move at an instruction, or that let others go on there. If only some do, under a guard,
        they come apart at the jump behind it, which takes them away from the others."""
        one = self._flow.nodes[node]
        if one.opcode in _LETS_OTHERS_GO:
            return list(_BARRIER_NUMBERS)
        return _barriers(one) if one.opcode in ("BSSY", "BMOV") or (one.opcode == "BREAK" and one.guard is None) else []

    @cached_property
    def _held(self) -> dict[int, frozenset[int]]:
        """By instruction of the routine: the barriers at which the lanes there are going to wait, on whatever way they came."""
        held: dict[int, frozenset[int]] = {self._entry: frozenset()}
        work = [self._entry]
        # An instruction is met again only when one barrier fewer is held there.
        nodes = self._flow.nodes_of(self._flow.function_of[self._entry])
        most = 2 + len({number for node in nodes for number in _barriers(self._flow.nodes[node])})
        steps = settling(f"at which barriers the lanes of {self._flow.function_of[self._entry]} are going to wait", most * len(nodes))
        while work:
            next(steps)
            node = work.pop()
            one, after = self._flow.nodes[node], held[node]
            for number in _barriers(one):
                sets = one.opcode == "BSSY" or (one.opcode == "BMOV" and one.operands[0].kind == "barrier")
                after = after | {number} if sets else after - {number}
            for to in self._next(node):
                merged = held[to] & after if to in held else after
                if merged != held.get(to):
                    held[to] = merged
                    work.append(to)
        return held

    def _next(self, node: int) -> tuple[int, ...]:
        """The instructions that follow one in the routine; behind a call those behind its return."""
        if node not in self._known_next:
            self._known_next[node] = tuple(self._following(node))
        return self._known_next[node]

    def _following(self, node: int) -> Iterator[int]:
        one, name = self._flow.nodes[node], self._flow.function_of[node]
        if one.opcode == "BPT" and "TRAP" in one.modifiers and one.guard is None:
            return
        if one.opcode in ("CALL", "RET"):
            yield from self._flow.behind(node) if one.opcode == "CALL" or self._flow.is_conditional(node) else ()
            return
        yield from (to for to in self._flow.successors[node] if self._flow.function_of[to] == name)


def _barriers(one: Instruction) -> list[int]:
    """The numbers of the convergence barriers that an instruction names."""
    return [item.register.number for item in one.operands if item.register is not None and item.register.bank == "B"]
