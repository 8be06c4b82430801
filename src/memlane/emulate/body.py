"""A function's body made flat and cut into places: stretches of instructions that one fragment of a warp runs without a stop.

A place ends at branches, barriers and exits, and before labels and warp-synchronous instructions. Places are numbered so that every loop is
contiguous and lies before what follows it, and both sides of a branch lie before where they meet: running the fragment at the lowest place
first then brings lanes together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memlane.errors import UnsupportedPtx
from memlane.ptx import (
    Address,
    Arguments,
    Block,
    Function,
    Guard,
    Instruction,
    Label,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Symbol,
    Variable,
    Vector,
)

CARRY = "%cc"
"""The carry flag of extended-precision arithmetic, as a predicate register."""


@dataclass(frozen=True)
class Step:
    """One instruction and its index in `function.body.instructions()`."""

    index: int
    instruction: Instruction
    resumes: bool = False
    """Whether this is the second half of a barrier with a result: what is done after the wait."""


@dataclass(frozen=True)
class Place:
    """A stretch of instructions. `successors` are numbers of places: of a branch, where it goes if taken, then where otherwise."""

    number: int
    steps: tuple[Step, ...]
    successors: tuple[int, ...]
    polls: bool = False
    """Whether a back edge from here closes a loop that reads what other threads may write."""


@dataclass(frozen=True)
class Body:
    """A function, flat: names are unique, and inner scopes are gone."""

    places: tuple[Place, ...]
    registers: dict[str, str]
    """Type of each register that an instruction names."""
    variables: tuple[Variable, ...]
    """Shared and local variables declared in the function, in order."""


def flatten(function: Function, *, stop_at_memory: bool = False) -> Body:
    """Cut a function into places; with `stop_at_memory` each memory instruction begins one, for the clock layer."""
    walk = _Walk()
    assert function.body is not None
    walk.enter(function.body, {})
    stretches = _cut(walk.items, stop_at_memory)
    successors = [_successors(stretches, number) for number in range(len(stretches))]
    order = nested_order(successors, 0) if stretches else []
    renumbered = {old: new for new, old in enumerate(order)}
    places = [Place(renumbered[old], tuple(stretches[old].steps), tuple(renumbered[s] for s in successors[old])) for old in order]
    return Body(tuple(_mark_polls(places)), walk.registers, tuple(walk.variables))


# -- names -----------------------------------------------------------------------------------------------------------------------


class _Walk:
    """Goes through the statements, giving names of inner scopes a number of their own."""

    def __init__(self) -> None:
        self.items: list[Label | Step] = []
        self.registers: dict[str, str] = {CARRY: "pred"}
        self.variables: list[Variable] = []
        self._scopes = 0
        self._index = 0

    def enter(self, block: Block, outer: dict[str, str]) -> None:
        """`outer` maps the names declared around the block; `%r<4>` is one entry `%r*`."""
        self._scopes += 1
        suffix = "" if self._scopes == 1 else f"@{self._scopes}"
        names = dict(outer)
        for statement in block.statements:
            match statement:
                case RegisterDecl():
                    key = statement.name if statement.count is None else f"{statement.name}*"
                    names[key] = suffix
                    self.registers[key + suffix] = statement.type
                case Variable():
                    names[statement.name] = suffix
                    self.variables.append(replace(statement, name=statement.name + suffix))
                case Label():
                    names[statement.name] = suffix
                case _:
                    pass
        for statement in block.statements:
            match statement:
                case Block():
                    self.enter(statement, names)
                case Label():
                    self.items.append(replace(statement, name=statement.name + suffix))
                case Instruction():
                    self.items.append(Step(self._index, self._renamed(statement, names)))
                    self._index += 1
                case _:
                    pass

    def _renamed(self, instruction: Instruction, names: dict[str, str]) -> Instruction:
        operands = tuple(self._operand(operand, names) for operand in instruction.operands)
        guard = instruction.guard
        if guard is not None:
            guard = Guard(self._register(guard.register, names), guard.negated)
        if operands == instruction.operands and guard == instruction.guard:
            return instruction
        return replace(instruction, operands=operands, guard=guard)

    def _register(self, name: str, names: dict[str, str]) -> str:
        """The unique name, whose type is noted. A register that nobody declared is the parser's business."""
        found = name in names
        key = name if found else f"{name.rstrip('0123456789')}*"
        suffix = names.get(key, "")
        if not found:
            self.registers[name + suffix] = self.registers.get(key + suffix, "b32")
        return name + suffix

    def _operand(self, operand: Operand, names: dict[str, str]) -> Operand:
        match operand:
            case Register():
                return Register(self._register(operand.name, names), operand.negated)
            case Symbol():
                suffix = names.get(operand.name, "")
                return Symbol(operand.name + suffix, operand.offset) if suffix else operand
            case Address():
                base = self._operand(operand.base, names)
                assert isinstance(base, Register | Symbol) or base is operand.base
                return replace(operand, base=base)
            case Vector() | Arguments():
                return type(operand)(tuple(self._operand(item, names) for item in operand.items))
            case Pair():
                return Pair(self._operand(operand.first, names), self._operand(operand.second, names))
            case _:
                return operand


# -- places ----------------------------------------------------------------------------------------------------------------------


@dataclass
class _Stretch:
    labels: list[str]
    steps: list[Step]


def _ends(instruction: Instruction) -> bool:
    return instruction.form.effect in ("branch", "return", "exit", "trap", "barrier")


def _begins(instruction: Instruction, stop_at_memory: bool) -> bool:
    if instruction.form.effect == "warp" and (instruction.has("sync") or instruction.opcode == "elect"):
        return True
    return stop_at_memory and instruction.form.effect in ("load", "store", "atomic", "reduction")


def _cut(items: Sequence[Label | Step], stop_at_memory: bool) -> list[_Stretch]:
    stretches = [_Stretch([], [])]
    for item in items:
        current = stretches[-1]
        if isinstance(item, Label):
            if current.steps:
                stretches.append(current := _Stretch([], []))
            current.labels.append(item.name)
            continue
        closed = bool(current.steps) and _ends(current.steps[-1].instruction) and not current.steps[-1].resumes
        if closed or (current.steps and _begins(item.instruction, stop_at_memory)):
            stretches.append(current := _Stretch([], []))
        current.steps.append(item)
        if item.instruction.form.effect == "barrier" and item.instruction.has("red"):
            stretches.append(_Stretch([], [replace(item, resumes=True)]))
    return stretches


def _successors(stretches: Sequence[_Stretch], number: int) -> tuple[int, ...]:
    stretch = stretches[number]
    following = (number + 1,) if number + 1 < len(stretches) else ()
    if not stretch.steps:
        return following
    last = stretch.steps[-1].instruction
    match last.form.effect:
        case "branch":
            if last.opcode != "bra":
                raise UnsupportedPtx(f"the emulator does not model {last.name}", last.span)
            target = last.operands[0]
            assert isinstance(target, Symbol)
            goal = next(index for index, other in enumerate(stretches) if target.name in other.labels)
            return (goal,) if last.guard is None else (goal, *following)
        case "return" | "exit" | "trap":
            return () if last.guard is None else following
        case _:
            return following


def _mark_polls(places: list[Place]) -> Iterator[Place]:
    used = {name for place in places for step in place.steps for name in reads(step.instruction)}
    polling = [any(_polls(step.instruction, used) for step in place.steps) for place in places]
    for place in places:
        loops = [target for target in place.successors if target <= place.number]
        yield replace(place, polls=any(polling[min(loops) : place.number + 1])) if loops else place


def _polls(instruction: Instruction, used: set[str]) -> bool:
    """Whether the instruction reads what another thread may just have written, and somebody looks at what it read."""
    effect = instruction.form.effect
    if effect == "atomic":
        return any(name in used for name in writes(instruction))
    return effect == "load" and any(instruction.has(word) for word in ("volatile", "relaxed", "acquire", "mmio"))


# -- registers of an instruction --------------------------------------------------------------------------------------------------


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Register():
            yield operand.name
        case Address(base=Register(name=name)):
            yield name
        case Vector() | Arguments():
            for item in operand.items:
                yield from _names(item)
        case Pair():
            yield from _names(operand.first)
            yield from _names(operand.second)
        case _:
            return


def writes(instruction: Instruction) -> list[str]:
    """The registers that an instruction writes."""
    form = instruction.form
    found = [name for letter in form.writes for name in _names(instruction.operands[form.operands[letter]])]
    return [*found, CARRY] if instruction.has("cc") else found


def reads(instruction: Instruction) -> list[str]:
    """The registers whose values an instruction needs: a guarded one also those that it may leave as they are."""
    form = instruction.form
    written = {form.operands[letter] for letter in form.writes}
    found = [name for index, operand in enumerate(instruction.operands) if index not in written for name in _names(operand)]
    if instruction.opcode in ("addc", "subc", "madc"):
        found.append(CARRY)
    if instruction.guard is not None:
        found.append(instruction.guard.register)
        found.extend(writes(instruction))
    return found


def live_out(places: Sequence[Place]) -> list[set[str]]:
    """For each place, the registers whose values somebody may still need when it ends."""
    needed: list[set[str]] = []
    killed: list[set[str]] = []
    for place in places:
        uses: set[str] = set()
        defines: set[str] = set()
        for step in place.steps:
            uses.update(name for name in reads(step.instruction) if name not in defines)
            defines.update(writes(step.instruction))
        needed.append(uses)
        killed.append(defines)
    live_in = [set(uses) for uses in needed]
    out: list[set[str]] = [set() for _ in places]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(places))):
            after: set[str] = set().union(*(live_in[s] for s in places[number].successors))
            if len(after) != len(out[number]):
                out[number] = after
                before = needed[number] | (after - killed[number])
                changed |= len(before) != len(live_in[number])
                live_in[number] = before
    return out


# -- the order of places -----------------------------------------------------------------------------------------------------------


def nested_order(successors: Sequence[Sequence[int]], entry: int) -> list[int]:
    """The nodes reachable from `entry`, every strongly connected part contiguous and, without the edges into its head, ordered likewise.

    This is the weak topological order of Bourdoncle (1993), flat.
    """
    result: list[int] = []
    work: list[tuple[list[int], set[int], int]] = [([entry], set(range(len(successors))), -1)]
    while work:
        (head,), allowed, banned = work.pop()
        parts = list(_components(successors, head, allowed, banned))
        if len(parts) == 1 and len(parts[0]) == 1:
            result.append(parts[0][0])
            continue
        for part in parts:
            # A part whose head is the node we came for has lost its back edges: it falls into smaller parts next time.
            first = part[0]
            work.append(([first], set(part) if len(part) > 1 else {first}, first))
        # Parts come out last first, as the stack wants them.
    return result


def _components(successors: Sequence[Sequence[int]], head: int, allowed: set[int], banned: int) -> Iterator[list[int]]:
    """Strongly connected parts reachable from `head` inside `allowed`, ignoring edges into `banned`, in reverse topological order; each
    part begins with its node first reached. (Tarjan's algorithm without recursion.)"""
    order: dict[int, int] = {head: 0}
    low = {head: 0}
    stack, on_stack = [head], {head}
    path: list[tuple[int, Iterator[int]]] = [(head, iter(successors[head]))]
    while path:
        node, rest = path[-1]
        for target in rest:
            if target not in allowed or target == banned:
                continue
            if target not in order:
                order[target] = low[target] = len(order)
                stack.append(target)
                on_stack.add(target)
                path.append((target, iter(successors[target])))
                break
            if target in on_stack:
                low[node] = min(low[node], order[target])
        else:
            path.pop()
            if path:
                parent = path[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == order[node]:
                part = stack[stack.index(node) :]
                del stack[len(stack) - len(part) :]
                on_stack.difference_update(part)
                yield part
