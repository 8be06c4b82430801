"""Build the control flow between the instructions of a program, across calls.

Nodes are the instructions of all functions, numbered in the order of the listing. A convergence barrier (`BSSY B0, there` ... `BSYNC B0`)
sends its lanes to the place that the `BSSY` named; a call goes to the function, and its return to behind every call of that function. Where
the code leaves targets open, all possible ones are assumed: more paths than there are, never fewer. So a call through a pointer goes to
every function that returns. Control also continues behind it directly, as behind calls of functions whose code is missing, such as
`vprintf`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from memlane.sass.operands import Operand, Register
from memlane.sass.program import Instruction, Program
from memlane.walks import reachable, solve_forward

_JUMPS = frozenset({"BRA", "JMP"})
_INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
_ENDS = frozenset({"EXIT", "KILL", "RET"})

_Barriers = Mapping[Register, frozenset[int]]
"""Nodes that the last `BSSY` of each convergence barrier may have named."""


class Flow:
    """The control flow of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: tuple[Instruction, ...] = tuple(one for _, one in program.instructions())
        self.function_of: tuple[str, ...] = tuple(function.name for function, _ in program.instructions())
        self._first: dict[str, int] = {}
        self._labels: dict[tuple[str, str], int] = {}
        first = 0
        for function in program.functions.values():
            self._first[function.name] = first
            for label, index in function.labels.items():
                self._labels[function.name, label] = first + index
            first += len(function.instructions)
        self._successors = [self._direct(node) for node in range(len(self.nodes))]
        self.called: dict[int, frozenset[int]] = {}
        """Nodes of the functions that each call may enter, their callees excluded, by node of the call."""
        self._barriers: dict[str, frozenset[int]] = {}
        """All places that the `BSSY`s of each function name."""
        self._converge()
        self._call()
        self.successors: tuple[tuple[int, ...], ...] = tuple(tuple(dict.fromkeys(one)) for one in self._successors)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for node, successors in enumerate(self.successors):
            for successor in successors:
                found[successor].append(node)
        return tuple(map(tuple, found))

    def entry(self, function: str) -> int:
        """Return the first node of a function."""
        return self._first[function]

    def place(self, function: str, label: str) -> int | None:
        """Return the node that a label of a function stands before, or None."""
        return self._labels.get((function, label))

    def nodes_of(self, function: str) -> range:
        """Return the nodes of a function."""
        first = self._first[function]
        return range(first, first + len(self.program.functions[function].instructions))

    @cached_property
    def entries(self) -> frozenset[int]:
        """First nodes of all functions."""
        return frozenset(self._first.values())

    def targets(self, node: int) -> tuple[int, ...]:
        """Return the nodes of the labels that an instruction names."""
        return tuple(self._targets(node))

    def behind(self, node: int) -> tuple[int, ...]:
        """Return the instruction behind `node` in its function, to which a call returns; empty for the last one."""
        return tuple(self._next(node))

    def is_conditional(self, node: int) -> bool:
        """Return whether some lanes may fall through a jump."""
        return _is_conditional(self.nodes[node])

    def is_indirect_call(self, node: int) -> bool:
        """Return whether an instruction calls through a pointer."""
        one = self.nodes[node]
        return one.opcode == "CALL" and not any(operand.targets for operand in one.operands)

    # -- edges --------------------------------------------------------------------------------------------------------------------

    def _next(self, node: int) -> list[int]:
        inside = node + 1 < len(self.nodes) and self.function_of[node + 1] == self.function_of[node]
        return [node + 1] if inside else []

    def _direct(self, node: int) -> list[int]:
        """Return the successors, edges through convergence barriers and calls excluded."""
        one = self.nodes[node]
        falls = self._next(node)
        conditional = _is_conditional(one)
        if one.opcode in _JUMPS:
            targets = self._targets(node)
            return [*targets, *(falls if conditional or not targets else [])]
        if one.opcode in _INDIRECT:
            named = self._targets(node)
            return [*(named or self._all_labels(node)), *(falls if conditional else [])]
        if one.opcode == "WARPSYNC" or one.opcode == "CALL":
            return [*(self._targets(node) if one.opcode == "WARPSYNC" else []), *falls]
        if one.opcode in _ENDS or one.opcode == "BSYNC":
            return falls if conditional else []
        return falls

    def _targets(self, node: int) -> list[int]:
        return [place for operand in self.nodes[node].operands for place in self._places(node, operand)]

    def _places(self, node: int, operand: Operand) -> Iterable[int]:
        for label in operand.targets:
            place = self._labels.get((self.function_of[node], label), self._first.get(label))
            if place is not None and place < len(self.nodes):
                yield place

    def _all_labels(self, node: int) -> list[int]:
        name = self.function_of[node]
        last = self.nodes_of(name)[-1]
        return [place for (function, _), place in self._labels.items() if function == name and place <= last]

    # -- convergence barriers -----------------------------------------------------------------------------------------------------

    def _converge(self) -> None:
        """Connect each BSYNC with the places named by the BSSYs of its barrier that reach it."""
        named = [node for node, one in enumerate(self.nodes) if one.opcode == "BSSY"]
        starts: dict[int, _Barriers] = {node: {} for node in (*self._first.values(), *named)}
        # Each visit of a node after the first adds at least one place or one barrier, which bounds the fixpoint.
        registers = {operand.register for one in self.nodes for operand in one.operands if operand.kind == "barrier"}
        arriving = len(registers) * (1 + sum(len(self._targets(node)) for node in named))
        most = len(self.nodes) * (1 + arriving) + len(starts)
        solve_forward("where lanes converge", starts, self._successors.__getitem__, self._barriers_after, _merged, most)

    def _barriers_after(self, node: int, before: _Barriers) -> _Barriers:
        one = self.nodes[node]
        register = one.operands[0].register if one.operands else None
        if register is None or register.bank != "B":
            return before
        if one.opcode == "BSSY":
            return {**before, register: frozenset(self._targets(node))}
        if one.opcode == "BMOV":
            # Restored from a register: any place that a BSSY of this function names.
            return {**before, register: self._any_barrier(self.function_of[node])}
        if one.opcode == "BSYNC":
            self._successors[node] = sorted({*self._successors[node], *before.get(register, ())})
        return before

    def _any_barrier(self, function: str) -> frozenset[int]:
        if function not in self._barriers:
            named = (node for node in self.nodes_of(function) if self.nodes[node].opcode == "BSSY")
            self._barriers[function] = frozenset(place for node in named for place in self._targets(node))
        return self._barriers[function]

    # -- calls --------------------------------------------------------------------------------------------------------------------

    def _call(self) -> None:
        """Replace the edge over a call by an edge into the function, and one from each of its returns to behind the call."""
        over = [list(one) for one in self._successors]
        returning = [first for first in self._first.values() if self._returns(reachable((first,), over.__getitem__))]
        bodies: dict[tuple[int, ...], frozenset[int]] = {}
        """Nodes of the functions that a call may enter, by those functions; one set shared by all such calls."""
        ends: dict[tuple[int, ...], list[int]] = {}
        for node, one in enumerate(self.nodes):
            indirect = self.is_indirect_call(node)
            targets = tuple(returning if indirect else self._targets(node) if one.opcode == "CALL" else ())
            if not targets:
                continue
            if targets not in bodies:
                bodies[targets] = frozenset().union(*(reachable((target,), over.__getitem__) for target in targets))
                ends[targets] = self._returns(bodies[targets])
            for end in ends[targets]:
                self._successors[end].extend(self._next(node))
            self.called[node] = bodies[targets]
            self._successors[node] = [*targets, *(self._next(node) if indirect or _is_conditional(one) else [])]

    def _returns(self, body: Iterable[int]) -> list[int]:
        return sorted(node for node in body if self.nodes[node].opcode == "RET")


def _is_conditional(one: Instruction) -> bool:
    """Return whether some lanes may fall through a jump: it has a guard or a predicate, or is taken only by diverged warps."""
    guarded = one.guard is not None and (one.guard.register is not None or one.guard.negated)
    return guarded or bool({"DIV", "CONV", "U"} & set(one.modifiers)) or any(operand.kind == "predicate" for operand in one.operands)


def _merged(old: _Barriers, new: _Barriers) -> _Barriers | None:
    """Return the union, or None if `new` adds nothing."""
    if old is new:
        return None
    grown = {register: places | old.get(register, frozenset()) for register, places in new.items()}
    if all(grown[register] == old.get(register) for register in grown):
        return None
    return {**old, **grown}
