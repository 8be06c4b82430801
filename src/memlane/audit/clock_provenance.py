"""Follow def-use chains in machine code from a register back, through moves, to the clock reads and constants that it may hold."""

from __future__ import annotations

from memlane.audit.assembled_module import AssembledModule
from memlane.sass import Instruction, Operand, Register, effects
from memlane.walks import reachable

_CLOCK = "SR_CLOCKLO"
_MOVES = frozenset({"MOV", "UMOV", "SEL", "USEL", "R2UR", "CS2R"})
_MOVES_IF_PRODUCT_IS_ZERO = frozenset({"IMAD", "HFMA2"})
"""Opcodes that are moves if the product that they add to is zero times zero."""
_CHOICES = frozenset({"SEL", "USEL"})
_XOR = 0x3C
"""The truth table of a LOP3 that computes the exclusive or of its first two operands."""
_PACK_LOW_HALVES = 0x1054
"""The selector of a PRMT that puts the low half of its first operand above the low half of its last."""
_EXCHANGE = 3
"""Number of successive exclusive ors that exchange two registers."""


class ClockProvenance:
    """Def-use chains of one disassembled module, followed back to clock reads and constants."""

    def __init__(self, code: AssembledModule) -> None:
        self.scoreboards = code.scoreboards
        self.nodes = code.flow.nodes
        self._flow = code.flow
        self._reached: dict[int, frozenset[int]] = {}

    def packed_clocks(self, node: int, register: Register) -> tuple[set[tuple[int, int]], int | None]:
        """Return the clock reads in the upper half of a packed register, as `clocks` gives them, and the constant in its lower half.

        Returns no clock reads and None if the register was not packed from the low halves of two others.
        """
        clocks: set[tuple[int, int]] = set()
        numbers: set[int | None] = set()
        for producer, _ in self._sources(node, register):
            one = self.nodes[producer]
            if _is_move(one):
                continue
            if one.opcode != "PRMT" or one.operands[1].register is None or self.value(producer, one.operands[2]) != _PACK_LOW_HALVES:
                return set(), None
            clocks |= self.clocks(producer, one.operands[1].register)
            numbers.add(self.value(producer, one.operands[3]))
        return (clocks, numbers.pop()) if len(numbers) == 1 else (set(), None)

    def value(self, node: int, operand: Operand) -> int | None:
        """Return the constant value of an operand or of its register, None if it is not known."""
        if operand.register is not None:
            return self.constant(node, operand.register)
        return 0 if operand.kind == "register" else operand.value

    def clocks(self, node: int, register: Register) -> set[tuple[int, int]]:
        """Return the definitions that a register may hold, each with its half of the clock: 0 for the lower, 1 for the upper.

        Definitions other than clock reads, constants included, have -1 where their half is not known. A constant is left out if every path
        to those clock reads passes it first: probes initialise the registers that they keep. A constant chosen by a `SEL` is left out
        likewise: a probe makes the clock read wait by a choice that is never taken.
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
        """Return whether an instruction only puts 0 into a register."""
        one = self.nodes[node]
        return _is_move(one) and one.opcode not in _CHOICES and not _registers_of(one) and _immediate(one) == 0

    def _reached_without(self, node: int) -> frozenset[int]:
        """Return the nodes that some path from a function entry reaches without passing `node`."""
        if node not in self._reached:
            self._reached[node] = frozenset(reachable(self._flow.entries - {node}, self._flow.successors.__getitem__, without={node}))
        return self._reached[node]

    def _sources(self, node: int, register: Register) -> set[tuple[int, Register]]:
        """Return the definitions of a register, followed back through moves, each with the register that held the value there."""
        ends: set[tuple[int, Register]] = set()
        seen: set[tuple[int, Register]] = set()
        work = [(node, register)]
        while work:
            held, made = self._definitions_through_exchange(*work.pop())
            for producer in made:
                one = self.nodes[producer]
                ends.add((producer, held))
                if _is_move(one):
                    new = {(producer, source) for source in _moved_from(one, held)} - seen
                    seen |= new
                    work.extend(new)
        return ends

    def _definitions_through_exchange(self, node: int, register: Register) -> tuple[Register, frozenset[int]]:
        """Return the register whose definitions hold the value, and those definitions, exchanges by exclusive ors resolved."""
        terms = self._xor_terms(node, register, _EXCHANGE)
        return next(iter(terms)) if len(terms) == 1 else (register, self.scoreboards.definitions(node, register))

    def _xor_terms(self, node: int, register: Register, depth: int) -> frozenset[tuple[Register, frozenset[int]]]:
        """Return the values, by register and definitions, whose exclusive or a register holds; values that occur twice cancel."""
        made = self.scoreboards.definitions(node, register)
        operands = _xor(self.nodes[next(iter(made))]) if len(made) == 1 and depth else None
        if operands is None:
            return frozenset({(register, made)})
        (producer,) = made
        one, other = (self._xor_terms(producer, operand, depth - 1) for operand in operands)
        return one ^ other

    def constant(self, node: int, register: Register) -> int | None:
        """Return the constant that a register holds if only moves of one constant reach it, else None."""
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
    """Return whether an instruction copies a register or loads a constant, clock reads excluded."""
    if one.opcode in _MOVES_IF_PRODUCT_IS_ZERO:
        return all(operand.text.lstrip("-") == "RZ" for operand in one.operands[1:3])
    return one.opcode in _MOVES and not reads_clock(one)


def _moved_from(one: Instruction, held: Register) -> set[Register]:
    """Return the registers from which a move may have filled `held`; a pair is moved half by half."""
    target = one.operands[0].register
    if target is None or not _is_wide(one):
        return _registers_of(one)
    sources = (operand.register for operand in one.operands[1:])
    half = held.number - target.number
    return {Register(source.bank, source.number + half) for source in sources if source is not None and source.bank in ("R", "UR")}


def _registers_of(one: Instruction) -> set[Register]:
    """Return the registers that an instruction reads, predicates excluded."""
    return {source for source in effects(one).reads if source.bank in ("R", "UR")}


def _is_wide(one: Instruction) -> bool:
    """Return whether an instruction moves a pair of registers at once, as on Blackwell."""
    return "64" in one.modifiers


def _xor(one: Instruction) -> tuple[Register, Register] | None:
    """Return the two registers of `a ^ b`, or None for any other instruction."""
    if one.opcode != "LOP3" or len(one.operands) < 5 or one.operands[3].text != "RZ" or one.operands[4].value != _XOR:
        return None
    first, second = one.operands[1].register, one.operands[2].register
    return None if first is None or second is None else (first, second)


def _immediate(one: Instruction) -> int:
    """Return the constant that a move loads.

    It is the upper word of the low half of the encoding, or zero without an immediate.
    """
    has = any(operand.kind == "immediate" for operand in one.operands)
    return one.encoding >> 32 & 0xFFFFFFFF if has else 0
