"""Where the value of a register in assembled code comes from: through moves back to the clock reads and constants that it can be."""

from __future__ import annotations

from memlane.audit.assembled import Assembled
from memlane.sass import Instruction, Operand, Register, effects
from memlane.walks import reachable

_CLOCK = "SR_CLOCKLO"
_MOVES = frozenset({"MOV", "UMOV", "SEL", "USEL", "R2UR", "CS2R"})
_MOVES_BESIDE_ZERO = frozenset({"IMAD", "HFMA2"})
"""What moves if the product that it adds to is one of zeros."""
_CHOICES = frozenset({"SEL", "USEL"})
_XOR = 0x3C
"""The table of a LOP3 that is the exclusive or of its first two operands."""
_BESIDE = 0x1054
"""What PRMT selects to put the lower half of its first operand above that of its last."""
_EXCHANGE = 3
"""Exclusive ors one after another that exchange two registers."""


class Carried:
    """Of the code of one module."""

    def __init__(self, code: Assembled) -> None:
        self.waiting = code.waiting
        self.nodes = code.flow.nodes
        self._flow = code.flow
        self._reached: dict[int, frozenset[int]] = {}

    def packed(self, node: int, register: Register) -> tuple[set[tuple[int, int]], int | None]:
        """Of a register whose upper half is the lower one of another: the clock reads that this may have come from, as `clocks` gives
        them, and the number below. No clock reads if it was not put together like that."""
        clocks: set[tuple[int, int]] = set()
        numbers: set[int | None] = set()
        for producer, _ in self._sources(node, register):
            one = self.nodes[producer]
            if _is_move(one):
                continue
            if one.opcode != "PRMT" or one.operands[1].register is None or self.value(producer, one.operands[2]) != _BESIDE:
                return set(), None
            clocks |= self.clocks(producer, one.operands[1].register)
            numbers.add(self.value(producer, one.operands[3]))
        return (clocks, numbers.pop()) if len(numbers) == 1 else (set(), None)

    def value(self, node: int, operand: Operand) -> int | None:
        """The number that an operand is, or that its register holds."""
        if operand.register is not None:
            return self.constant(node, operand.register)
        return 0 if operand.kind == "register" else operand.value

    def clocks(self, node: int, register: Register) -> set[tuple[int, int]]:
        """The clock reads from which a register may have come, each with the half of the clock that it is: 0 the lower, 1 the upper.

        What else it may have come from, a constant too, is among them, with -1 where nothing is known of halves. A constant is not that
        every way to those clock reads passes before: a register that probes keep holds it until the first of them. Nor is that of a choice
        (`SEL`): a probe has the clock wait by one that is never chosen.
        """
        found: set[tuple[int, int]] = set()
        constants: set[int] = set()
        for producer, filled in self._sources(node, register):
            one = self.nodes[producer]
            if reads_clock(one) or not _is_move(one):
                target = one.operands[0].register if one.operands else None
                found.add((producer, -1 if target is None else filled.number - target.number))
            elif not _registers_of(one):
                constants.add(producer)
        reads = {producer for producer, _ in found if reads_clock(self.nodes[producer])}
        return found | {(constant, -1) for constant in constants if not reads or reads & self._reached_without(constant)}

    def is_zero(self, node: int) -> bool:
        """Whether an instruction does nothing but put 0 into a register."""
        one = self.nodes[node]
        return _is_move(one) and one.opcode not in _CHOICES and not _registers_of(one) and _immediate(one) == 0

    def _reached_without(self, node: int) -> frozenset[int]:
        """The nodes that some way from the beginning of a function reaches past a node."""
        if node not in self._reached:
            self._reached[node] = frozenset(reachable(self._flow.entries - {node}, self._flow.successors.__getitem__, without={node}))
        return self._reached[node]

    def _sources(self, node: int, register: Register) -> set[tuple[int, Register]]:
        """What produced a register, moves followed backwards, with the register that it was in there."""
        ends: set[tuple[int, Register]] = set()
        seen: set[tuple[int, Register]] = set()
        work = [(node, register)]
        while work:
            held, made = self._made_by(*work.pop())
            for producer in made:
                one = self.nodes[producer]
                ends.add((producer, held))
                if _is_move(one):
                    new = {(producer, source) for source in _moved_from(one, held)} - seen
                    seen |= new
                    work.extend(new)
        return ends

    def _made_by(self, node: int, register: Register) -> tuple[Register, frozenset[int]]:
        """What produced the value of a register, and in which; where two were exchanged by exclusive ors, those of the other."""
        terms = self._terms(node, register, _EXCHANGE)
        return next(iter(terms)) if len(terms) == 1 else (register, self.waiting.definitions(node, register))

    def _terms(self, node: int, register: Register, depth: int) -> frozenset[tuple[Register, frozenset[int]]]:
        """The values, by register and producers, whose exclusive or a register holds: those that meet twice are gone."""
        made = self.waiting.definitions(node, register)
        operands = _xor(self.nodes[next(iter(made))]) if len(made) == 1 and depth else None
        if operands is None:
            return frozenset({(register, made)})
        (producer,) = made
        one, other = (self._terms(producer, operand, depth - 1) for operand in operands)
        return one ^ other

    def constant(self, node: int, register: Register) -> int | None:
        """The number that a register holds, if moves of one constant lead to it."""
        values: set[int | None] = set()
        for producer, held in self._sources(node, register):
            one = self.nodes[producer]
            if not _is_move(one) or one.opcode in _CHOICES or (_is_wide(one) and held != one.operands[0].register):
                values.add(None)
            elif not _registers_of(one):
                values.add(_immediate(one))
        return values.pop() if len(values) == 1 else None


def reads_clock(one: Instruction) -> bool:
    return one.opcode == "CS2R" and any(operand.text == _CLOCK for operand in one.operands)


def _is_move(one: Instruction) -> bool:
    """Whether the instruction carries a clock or a constant from register to register, or makes a constant."""
    if one.opcode in _MOVES_BESIDE_ZERO:
        return all(operand.text.lstrip("-") == "RZ" for operand in one.operands[1:3])
    return one.opcode in _MOVES and not reads_clock(one)


def _moved_from(one: Instruction, held: Register) -> set[Register]:
    """The registers from which a move may have filled one; a pair is moved half by half."""
    target = one.operands[0].register
    if target is None or not _is_wide(one):
        return _registers_of(one)
    sources = (operand.register for operand in one.operands[1:])
    half = held.number - target.number
    return {Register(source.bank, source.number + half) for source in sources if source is not None and source.bank in ("R", "UR")}


def _registers_of(one: Instruction) -> set[Register]:
    """The registers that an instruction reads, without predicates."""
    return {source for source in effects(one).reads if source.bank in ("R", "UR")}


def _is_wide(one: Instruction) -> bool:
    """Whether it moves a pair of registers at once, as on Blackwell."""
    return "64" in one.modifiers


def _xor(one: Instruction) -> tuple[Register, Register] | None:
    """The registers of `a ^ b`."""
    if one.opcode != "LOP3" or len(one.operands) < 5 or one.operands[3].text != "RZ" or one.operands[4].value != _XOR:
        return None
    first, second = one.operands[1].register, one.operands[2].register
    return None if first is None or second is None else (first, second)


def _immediate(one: Instruction) -> int:
    """The constant that a move without source registers makes: what the low half of the encoding holds in its upper word, or zero."""
    has = any(operand.kind == "immediate" for operand in one.operands)
    return one.encoding >> 32 & 0xFFFFFFFF if has else 0
