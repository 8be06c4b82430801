"""Find where the lanes of a warp may be diverged in the machine code although they entered its function converged.

Lanes diverge

- at a branch that they may take differently, to a label or through a jump table;
- at a call through a pointer, unless the pointer is uniform and no function that it may lead to returns lanes one after another;
- at a call of a function from which they may return one after another: one that a lane may leave while others are still in it, a recursive
one, and one whose code is not in the program.

Each group then runs by itself, and groups that reach an instruction at different times execute it one after another. They are reconverged
only

- behind the `BSYNC` of a convergence barrier whose `BSSY` they executed together before they diverged. The barrier does not wait for lanes
that `BREAK` out of it. Nor does it wait for lanes that yield (`YIELD`, `NANOSLEEP`) while the others wait, as was measured: in a loop that
tries to take a lock each lane goes on alone. A barrier that is set anew, or moved to a register, joins only the lanes that were converged
at that point;
- behind a `WARPSYNC.ALL`, which waits for every lane of the warp. Where one follows, as in front of a barrier of the block, ptxas sets no
convergence barrier.

Nothing else counts as reconvergence: not `WARPSYNC` of a mask, collective instructions or barriers of the block. The hardware may join
groups that happen to wait to issue the same instruction, which the code does not show.

Lanes that end (`EXIT` under a guard, a trap) leave the others converged. A branch is uniform if its predicate is computed from constants. A
branch of a kernel without a convergence barrier around it also counts as uniform, as found by ptxas, unless the PTX branch on its line
diverges. In a called function the PTX branch must be shown not to diverge, as ptxas leaves out barriers where a function may recurse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.lane_groups import LaneGroups, barriers_in
from memlane.ptx import ControlFlow, flatten_scopes
from memlane.ptx.calls import addressed_functions
from memlane.ptx.demangle import demangle
from memlane.ptx.divergence import diverging_branches
from memlane.sass import Instruction, Register
from memlane.sass.registers import effects
from memlane.titles import kernel_label
from memlane.walks import post_order, solve_forward

MAY_NOT_RECONVERGE = "the assembled code may not bring the lanes of a warp together before it"
"""The text common to all reasons."""

_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX"})
_OF_THE_WARP = frozenset({"DIV", "CONV", "U"})
"""Modifiers of jumps that a warp takes as a whole."""
_UNIFORM_SPECIALS = ("SR_CTAID", "SR_NCTAID", "SR_CgaCtaId", "SR_GRIDID")
_ARITHMETIC = frozenset(
    """
    MOV IADD3 IMAD VIADD IABS LEA LOP3 SHF SEL PRMT IMNMX VIMNMX ISETP PLOP3 LDC FADD FMUL FFMA FMNMX FSETP HADD2 HFMA2 I2F F2I
    """.split()  # noqa: SIM905
)
"""Opcodes whose result is uniform where their sources are."""


_Value = tuple[int, Register]
"""The value of a register when an instruction issues."""


@dataclass(frozen=True, slots=True)
class _Divergence:
    """A point of divergence."""

    sides: tuple[int, ...]
    """Nodes where the lanes continue: each successor of a branch by itself, or a single one for all lanes that return from a call."""
    cause: str = ""
    """Call from which they return one after another, in words; empty for a branch."""

    @property
    def reason(self) -> str:
        returned = f"the lanes of a warp may return one after another from {self.cause}, and " if self.cause else ""
        return f"{returned}{MAY_NOT_RECONVERGE}, so they may be grouped differently"


class Reconvergence:
    """Divergence in the machine code of one module."""

    def __init__(self, code: AssembledModule) -> None:
        self._code = code
        self._flow = code.flow
        self._routines: dict[int, _Routine] = {}
        self._entered: set[int] = set()
        self._branches: dict[str, Mapping[int | None, bool]] = {}

    def diverged(self, function: str) -> Mapping[int, str]:
        """Return why lanes may be diverged, by instruction of a function that they entered together.

        Covers the function's own subroutines; instructions at which lanes are together are left out.
        """
        entries = {self._flow.entry(function)}
        while True:
            found = [self._routine(entry) for entry in sorted(entries)]
            nested = {entry for one in found for entry in one.subroutines}
            if nested <= entries:
                return {node: reason for one in reversed(found) for node, reason in one.diverged.items()}
            entries |= nested

    def returns_diverged(self, entry: int) -> bool:
        """Return whether lanes that call a routine together may return from it one after another; recursive routines may."""
        if entry in self._entered:
            return True
        self._entered.add(entry)
        found = self._routine(entry).returns_diverged
        self._entered.discard(entry)
        return found

    @cached_property
    def addressed(self) -> tuple[int, ...]:
        """Entries of the functions that a pointer may lead to; empty if the code of one of them is missing."""
        names = [one.name for one in addressed_functions(self._code.module)]
        return tuple(map(self._flow.entry, names)) if self._code.program.functions.keys() >= set(names) else ()

    def _routine(self, entry: int) -> _Routine:
        if entry not in self._routines:
            self._routines[entry] = _Routine(self, self._code, entry)
        return self._routines[entry]

    def may_diverge(self, node: int) -> bool | None:
        """Return whether lanes may take the PTX branch on the line of an instruction differently; None if that line has no branch."""
        function = self._flow.function_of[node]
        if function not in self._branches:
            self._branches[function] = self._diverging(function)
        return self._branches[function].get(self._flow.nodes[node].ptx_line)

    def _diverging(self, function: str) -> Mapping[int | None, bool]:
        """Return whether each branch of a PTX function may diverge, by its line."""
        known = self._code.module.functions.get(function)
        if known is None or known.body is None:
            return {}
        flow = ControlFlow(flatten_scopes(known))
        diverging, lines = diverging_branches(flow), self._code.lines(function)
        ends = (block for block in flow.blocks if len(flow.successors[block.index]) > 1)
        return {lines[block.first + len(block.instructions) - 1]: block.index in diverging for block in ends}


class _Routine:
    """A kernel, a function, or a subroutine of one that is called separately; callees excluded."""

    def __init__(self, program: Reconvergence, code: AssembledModule, entry: int) -> None:
        self._program = program
        self._flow, self._scoreboards = code.flow, code.scoreboards
        self._entry = entry
        self._known_next: dict[int, tuple[int, ...]] = {}
        self._uniform: dict[_Value, bool] = {}
        name = self._flow.function_of[entry]
        self._is_kernel = name in code.module.kernels and entry == self._flow.entry(name)

    # -- answers ------------------------------------------------------------------------------------------------------------------

    @cached_property
    def diverged(self) -> Mapping[int, str]:
        """The reason, by instruction, why lanes may be diverged that entered the routine together."""
        found: dict[int, str] = {}
        known = 0
        for node, divergence in self._divergences.items():
            first, *others = self._before_reconvergence[node]
            seen, several = first, 0 if len(divergence.sides) > 1 else first
            for one in others:
                several |= seen & one
                seen |= one
            found.update(dict.fromkeys(self._groups.instructions(several & ~known), divergence.reason))
            known |= several
        return found

    @cached_property
    def returns_diverged(self) -> bool:
        """Whether some lanes may return while others do not."""
        ends = [node for node in self._pending_barriers if self._flow.nodes[node].opcode == "RET"]
        if any(self._next(node) and not self._is_uniform_jump(node) for node in ends):
            return True
        reached = self._groups.containing(ends)
        return any(self._splits_ends(reached, node, divergence) for node, divergence in self._divergences.items())

    def _splits_ends(self, ends: int, node: int, divergence: _Divergence) -> bool:
        """Return whether lanes that diverge at `node` may reach the ends in several groups."""
        return sum(bool(ends & one) for one in self._before_reconvergence[node]) > (1 if len(divergence.sides) > 1 else 0)

    @cached_property
    def subroutines(self) -> frozenset[int]:
        """Entries of the subroutines inside the function that it calls."""
        name = self._flow.function_of[self._entry]
        calls = (node for node in self._pending_barriers if self._flow.nodes[node].opcode == "CALL")
        called = {to for node in calls for to in self._flow.targets(node) if self._flow.function_of[to] == name}
        return frozenset(called - {self._flow.entry(name)})

    # -- divergence -----------------------------------------------------------------------------------------------------------------

    @cached_property
    def _divergences(self) -> dict[int, _Divergence]:
        return {node: divergence for node in sorted(self._pending_barriers) if (divergence := self._divergence(node)) is not None}

    def _divergence(self, node: int) -> _Divergence | None:
        one = self._flow.nodes[node]
        following = self._next(node)
        if one.opcode == "CALL":
            cause = self._diverging_call(node)
            return _Divergence(following, cause) if cause and following else None
        if one.opcode not in _JUMPS or len(following) < 2 or _OF_THE_WARP.intersection(one.modifiers):
            return None
        return None if not self._pending_barriers[node] and self._is_uniform_jump(node) else _Divergence(following)

    def _diverging_call(self, node: int) -> str:
        """Return what lanes may return from one after another, in words; empty if they return together."""
        one, targets = self._flow.nodes[node], self._flow.targets(node)
        where = f" in line {one.place.line}" if one.place is not None else ""
        if self._flow.is_indirect_call(node):
            targets = self._program.addressed if self._has_uniform_sources(one, node) else ()
        if targets and not any(map(self._program.returns_diverged, targets)):
            return ""
        if self._flow.is_indirect_call(node):
            return f"a call through a pointer{where}"
        name = next(label for operand in one.operands for label in operand.targets)
        return f"a call of {kernel_label(demangle(name))}{where}"

    def _is_uniform_jump(self, node: int) -> bool:
        """Return whether converged lanes take a jump alike, by its predicate or by what ptxas found."""
        may_diverge = self._program.may_diverge(node)
        if self._has_uniform_sources(self._flow.nodes[node], node):
            return True
        return may_diverge is not True if self._is_kernel else may_diverge is False and self._is_one_condition(node)

    def _is_one_condition(self, node: int) -> bool:
        """Return whether a jump has one predicate that is computed from no others.

        It is not where ptxas combined two branches, of which one may diverge.
        """
        predicates = [register for register in effects(self._flow.nodes[node]).reads if register.bank == "P"]
        writers = {writer for one in predicates for writer in self._scoreboards.definitions(node, one)}
        sources = {register.bank for writer in writers for register in effects(self._flow.nodes[writer]).reads}
        return len(predicates) == 1 and sources.isdisjoint({"P", "UP"})

    def _has_uniform_sources(self, one: Instruction, node: int) -> bool:
        registers = effects(one).reads
        return bool(registers) and all(self._is_uniform(node, register) for register in registers)

    def _is_uniform(self, node: int, register: Register) -> bool:
        """Return whether a register is uniform across the lanes at an instruction, as far as single definitions show."""
        for value in post_order([(node, register)], self._sources):
            if value not in self._uniform:
                # Nothing is known yet of a source that depends on the value itself.
                is_made = value[1].bank in ("UR", "UP") or self._has_uniform_definition(value)
                self._uniform[value] = is_made and all(self._uniform.get(source, False) for source in self._sources(value))
        return self._uniform[node, register]

    def _has_uniform_definition(self, value: _Value) -> bool:
        """Return whether a value has one definition that makes it uniform if its sources are."""
        definitions = self._scoreboards.definitions(*value)
        if len(definitions) != 1:
            return False
        one = self._flow.nodes[next(iter(definitions))]
        return one.operands[-1].text.startswith(_UNIFORM_SPECIALS) if one.opcode == "S2R" else one.opcode in _ARITHMETIC

    def _sources(self, value: _Value) -> list[_Value]:
        """Return the sources of a value; empty if its answer is known or needs none."""
        if value in self._uniform or value[1].bank in ("UR", "UP") or not self._has_uniform_definition(value):
            return []
        (writer,) = self._scoreboards.definitions(*value)
        one = self._flow.nodes[writer]
        return [] if one.opcode == "S2R" else [(writer, source) for source in effects(one).reads]

    # -- reconvergence --------------------------------------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> LaneGroups:
        starts = [(side, self._pending_barriers[node]) for node, divergence in self._divergences.items() for side in divergence.sides]
        return LaneGroups(self._flow.nodes, self._next, list(self._pending_barriers), starts)

    @cached_property
    def _before_reconvergence(self) -> Mapping[int, list[int]]:
        """Stretches that each group of lanes may reach before it reconverges with the others, by point of divergence."""
        divergences = self._divergences.items()
        return {
            node: self._groups.reached([(side, self._pending_barriers[node]) for side in divergence.sides])
            for node, divergence in divergences
        }

    @cached_property
    def _pending_barriers(self) -> dict[int, frozenset[int]]:
        """Barriers at which the lanes at each instruction will wait, on every path that reaches it."""
        # Each visit of an instruction after the first removes at least one barrier, which bounds the fixpoint.
        nodes = self._flow.nodes_of(self._flow.function_of[self._entry])
        most = 2 + len({number for node in nodes for number in barriers_in(self._flow.nodes[node])})
        analysis = f"at which barriers the lanes of {self._flow.function_of[self._entry]} are going to wait"
        return solve_forward(analysis, {self._entry: frozenset()}, self._next, self._pending_after, _pending_on_both, most * len(nodes))

    def _pending_after(self, node: int, pending: frozenset[int]) -> frozenset[int]:
        one = self._flow.nodes[node]
        for number in barriers_in(one):
            sets = one.opcode == "BSSY" or (one.opcode == "BMOV" and one.operands[0].kind == "barrier")
            pending = pending | {number} if sets else pending - {number}
        return pending

    def _next(self, node: int) -> tuple[int, ...]:
        """Return the successors of an instruction in the routine; for a call, the instruction behind it."""
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


def _pending_on_both(one: frozenset[int], other: frozenset[int]) -> frozenset[int] | None:
    """Return the barriers that are held on both paths, or None if these are those of the first."""
    both = one & other
    return None if both == one else both
