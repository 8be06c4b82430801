"""Find the registers that hold addresses of each array in shared memory, by a forward data-flow analysis of a function.

An address originates where an instruction names a variable, and is followed through copies, conversions, additions and joins. A use that
cannot be followed is reported as a `Problem` with the arrays it concerns: a pass that moves the elements of an array must know every
address of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memlane.errors import MemlaneError
from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Arguments,
    ControlFlow,
    Function,
    Instruction,
    Liveness,
    Module,
    Operand,
    Pair,
    Register,
    Symbol,
    TextureAddress,
    Vector,
    flatten_scopes,
    memory_accesses,
    once_for_each,
    overwrites,
    registers_written,
)
from memlane.rewrite.arithmetic import RULES, multiple_of, reason
from memlane.rewrite.arrays import SharedArray
from memlane.rewrite.values import ANY, Mixed, Number, Pointer, Value, arrays_of, constant, join, power_of

WIDEST = 16
"""Maximum bytes that a lane accesses at once, aligned to its size; copies of more bytes are aligned to less than their size."""

_ROUNDS = 64
"""Iterations over the blocks of a function, plus one per block, after which its analysis is given up."""

State = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """Use of an address that cannot be followed."""

    index: int
    """Index of the instruction in its function."""
    arrays: frozenset[SharedArray]
    reason: str


@dataclass(frozen=True, slots=True)
class ArrayAccess:
    """Operand of an instruction by which it accesses an array."""

    index: int
    """Index of the instruction in its function."""
    operand: int
    """Index among the operands."""
    pointer: Pointer
    """Value of the base register or symbol, without the constant offset in the brackets."""
    nbytes: int
    scalar: int
    """Bytes of one element of the instruction's type; 0 if it has none."""


@dataclass(frozen=True)
class Provenance:
    """Accesses and problems of the addresses in one function."""

    accesses: tuple[ArrayAccess, ...]
    problems: tuple[Problem, ...]


def accesses_to_shared(function: Function, arrays: Sequence[SharedArray]) -> Provenance:
    """Return the accesses of a function to those of `arrays` that it can name, and other uses of their addresses."""
    visible = {name: one for one in arrays if one.function in ("", function.name) for name in one.names}
    flat = flatten_scopes(function)
    flow = ControlFlow(flat)
    analysis = Analysis(visible)
    ends = fixpoint(flow, analysis)
    numbers = {id(one): index for index, one in enumerate(flat.instructions())}
    accesses: list[ArrayAccess] = []
    problems: list[Problem] = []
    for block in flow.order:
        state = entry_state(flow, block, ends)
        for one in flow.blocks[block].instructions:
            index = numbers[id(one)]
            found, reported = analysis.uses(one, state, index)
            accesses += found
            problems += reported
            analysis.step(one, state)
    return Provenance(tuple(sorted(accesses, key=lambda one: one.index)), tuple(sorted(problems, key=lambda one: one.index)))


def cached_accesses_to_shared(module: Module, function: Function, arrays: Sequence[SharedArray]) -> Provenance:
    """Return `accesses_to_shared` of a function of a module, cached per module: each layout that is tried needs it for the same kernel."""
    known, key = _known(module), (function.name, tuple(arrays))
    if key not in known:
        known[key] = accesses_to_shared(function, arrays)
    return known[key]


@once_for_each
def _known(_: Module) -> dict[tuple[str, tuple[SharedArray, ...]], Provenance]:
    return {}


def fixpoint(flow: ControlFlow, analysis: Analysis) -> dict[int, State]:
    """Return the state at the end of each reachable block, for the registers that are live there. Raises MemlaneError without
    convergence."""
    live = Liveness(flow)
    needed = {block: live.live_out(block) for block in flow.order}
    ends: dict[int, State] = {}
    waiting = set(flow.order)
    for _ in range(_ROUNDS + len(flow.blocks)):
        for block in flow.order:
            if block not in waiting:
                continue
            waiting.discard(block)
            state = entry_state(flow, block, ends)
            for one in flow.blocks[block].instructions:
                analysis.step(one, state)
            kept = {name: value for name, value in state.items() if name in needed[block]}
            if ends.get(block) != kept:
                ends[block] = kept
                waiting.update(flow.successors[block])
        if not waiting:
            return ends
    raise MemlaneError(
        f"the analysis of the registers of {flow.function.title} does not converge, so the layout of its arrays cannot be changed"
    )


def entry_state(flow: ControlFlow, block: int, ends: Mapping[int, State]) -> State:
    """Return the join of the predecessors' states: a register that only some of them have written has the join of their values."""
    state: State = {}
    for before in flow.predecessors[block]:
        for name, value in ends.get(before, {}).items():
            state[name] = join(state[name], value) if name in state else value
    return state


class Analysis:
    """Transfer functions of the analysis on the state of all registers."""

    def __init__(self, visible: Mapping[str, SharedArray]) -> None:
        self._visible = visible

    def value(self, operand: Operand, state: State, bits: int = 64) -> Value:
        """Return the value of an operand."""
        if isinstance(operand, Register):
            return state.get(operand.name.partition(".")[0], ANY)
        if isinstance(operand, Symbol) and operand.name in self._visible:
            return Pointer(self._visible[operand.name], False, bits, operand.offset)
        number = constant(operand)
        return ANY if number is None else Number(power_of(number))

    def step(self, one: Instruction, state: State) -> None:
        """Update the state by an instruction."""
        written = registers_written(one)
        if not written:
            return
        result = self.result(one, state)[0]
        certain = overwrites(one)
        for name in written:
            state[name] = result if name in certain or name not in state else join(state[name], result)

    def uses(self, one: Instruction, state: State, index: int) -> tuple[list[ArrayAccess], list[Problem]]:
        """Return the accesses of an instruction, and the problems of its uses of addresses."""
        accesses, problems = self._accesses(one, state, index)
        if one.opcode == "cvta" and not one.has("to") and _is_shared(one.slot("space") or ""):
            (operand,) = self._sources(one)
            if not isinstance(operand, Symbol) and isinstance(self.value(operand, state), Number):
                problems.append(self._unknown(index))
        reported = self.result(one, state)[1]
        escaping = frozenset().union(*(arrays_of(value) for value in self._values(one, state)))
        if reported and escaping:
            problems.append(Problem(index, escaping, reported))
        return accesses, problems

    def _accesses(self, one: Instruction, state: State, index: int) -> tuple[list[ArrayAccess], list[Problem]]:
        accesses: list[ArrayAccess] = []
        problems: list[Problem] = []
        known = {id(access.address): access for access in memory_accesses(one)}
        spaces = {one.form.operands[letter]: space for letter, space in one.form.addresses.items()}
        for place, operand in enumerate(one.operands):
            if not isinstance(operand, Address):
                continue
            value, access = self.value(operand.base, state), known.get(id(operand))
            if isinstance(value, Mixed):
                problems.append(
                    Problem(index, value.arrays, "depending on the path taken, the address here belongs to this array or to something else")
                )
            elif isinstance(value, Pointer) and access is not None and access.nbytes and access.nbytes <= WIDEST:
                scalar = SCALAR_TYPES[access.type].nbytes if access.type else 0
                accesses.append(ArrayAccess(index, place, value, access.nbytes, scalar))
            elif isinstance(value, Pointer):
                problems.append(Problem(index, arrays_of(value), f"`{one.name}` accesses it in a way that memlane cannot follow"))
            elif _is_shared(spaces.get(place, "") if access is None else access.space) and not isinstance(operand.base, Symbol):
                # A symbol would be another variable, such as a parameter.
                problems.append(self._unknown(index))
        return accesses, problems

    def _unknown(self, index: int) -> Problem:
        return Problem(index, frozenset(self._visible.values()), "the address here comes from an unknown source and may point to it")

    def _values(self, one: Instruction, state: State) -> list[Value]:
        """Return the values of the source operands, without the bases of memory operands."""
        return [self.value(item, state) for operand in self._sources(one) for item in _items(operand)]

    # -- what an instruction makes of addresses ------------------------------------------------------------------------------------

    def _sources(self, one: Instruction) -> list[Operand]:
        written = {one.form.operands[letter] for letter in one.form.writes - one.form.updates}
        return [operand for place, operand in enumerate(one.operands) if place not in written]

    def result(self, one: Instruction, state: State) -> tuple[Value, str]:
        """Return the value that is written, and the reason why an address among the operands cannot be followed; empty if it can."""
        values = self._values(one, state)
        if all(isinstance(value, Number) for value in values):
            return Number(multiple_of(one, values, self._sources(one))), ""
        rule = RULES.get(one.opcode)
        if rule is not None and not any(isinstance(value, Mixed) for value in values) and not one.form.effect:
            operands = self._sources(one)
            if len(operands) == len(values):
                found = rule(one, operands, values)
                if found is not None:
                    return found, ""
        if any(isinstance(value, Mixed) for value in values) and not one.form.effect:
            if one.opcode == "mov":
                return values[0], ""
            return ANY, "depending on the path taken, this computation uses an address of this array or something else"
        return ANY, reason(one)


def _is_shared(space: str) -> bool:
    return space.partition("::")[0] == "shared"


def _items(operand: Operand) -> Sequence[Operand]:
    match operand:
        case Vector(items) | Arguments(items):
            return items
        case TextureAddress(items):
            return items[1:]
        case Pair(first, second):
            return (first, second)
        case Address():
            return ()
    return (operand,)
