"""How far into its array an address leads, as a sum of registers: what was added to where the array begins.

    mov.u64        %rd7, tile;
    mul.wide.u32   %rd6, %r5, 128;
    add.s64        %rd8, %rd7, %rd6;         %rd8 is %r5 * 128 bytes into the array,
    mul.wide.u32   %rd9, %r2, 4;
    add.s64        %rd10, %rd8, %rd9;        and %rd10 is %r5 * 128 + %r2 * 4

Taking the beginning off the address again would say the same, but the assembler does not see through that. Only registers are taken that
one instruction of the text writes, without a guard, and through which every way to that which uses them leads. So whenever an address is
used, they still hold what went into it: no way leads from a part to the use without writing the address anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memlane.ptx import (
    SCALAR_TYPES,
    ControlFlow,
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    RegisterDecl,
    Scope,
    Symbol,
    registers_written,
)
from memlane.rewrite.values import constant

MOST = 2
"""Registers that are added up at most: one addition is what taking off the beginning would cost."""


@dataclass(frozen=True, slots=True)
class Term:
    """A register, perhaps times a number."""

    register: str
    bits: int
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Terms:
    """A number of bytes: registers added up, and a constant."""

    registers: tuple[Term, ...] = ()
    constant: int = 0
    exact: bool = True
    """Whether they add up to it as integers; else the upper bits of the sum, beyond 32, were lost on the way."""

    def divided(self, by: int) -> Terms | None:
        """The number over `by`; None where some part of it is not a multiple. Unless it is exact, as many upper bits of it as `by` has
        lower ones mean nothing."""
        if self.constant % by or any(term.factor % by for term in self.registers):
            return None
        return replace(
            self, registers=tuple(replace(term, factor=term.factor // by) for term in self.registers), constant=self.constant // by
        )


class Sums:
    """The addresses in one array that a function computes so. `flow` is that of the function with every name declared once."""

    def __init__(self, function: Function, flow: ControlFlow, names: Sequence[str]) -> None:
        self._names, self._flow = names, flow
        flat = [one for block in flow.blocks for one in block.instructions]
        self._places = {id(one): (block.index, place) for block in flow.blocks for place, one in enumerate(block.instructions)}
        # Of the registers that the body itself declares: those of inner blocks are hidden elsewhere.
        own = function.body.statements if function.body is not None else ()
        self._scope = Scope.of(one for one in own if isinstance(one, RegisterDecl) and one.vector == 1)
        writes = Counter(name for one in flat for name in registers_written(one))
        self._single = {
            name: one for one in flat if one.guard is None for name in registers_written(one) if writes[name] == 1 and _is_plain(one)
        }
        self._known: dict[str, Terms | None] = {}

    def of(self, register: str, used: Instruction) -> Terms | None:
        """The sum that makes the address in a register which an instruction uses, less where the array begins; None where it is no such
        sum."""
        if register not in self._known:
            self._known[register] = None  # what leads back to itself is no sum
            one = self._single.get(register)
            found = None if one is None else self._made_by(one)
            self._known[register] = found if found is None or len(found.registers) <= MOST else None
        return self._known[register] if self._is_in_front(register, used) else None

    def _is_in_front(self, register: str, used: Instruction) -> bool:
        """Whether every way to an instruction leads through the one that writes the register."""
        one = self._single.get(register)
        if one is None:
            return False
        (block, place), (where, behind) = self._places[id(one)], self._places[id(used)]
        if self._flow.rank[where] < 0 or self._flow.rank[block] < 0:
            return False
        return place < behind if block == where else self._flow.dominates(block, where)

    def _made_by(self, one: Instruction) -> Terms | None:
        operands, found = one.operands[1:], None
        if one.opcode in ("mov", "cvt", "cvta"):
            found = self._address(operands[0], one)
        elif one.opcode == "add":
            for address, number in (operands, operands[::-1]):
                begun = self._address(address, one)
                if begun is not None:
                    found = self._plus(begun, number, 1, one)
                    break
        elif one.opcode == "mad" and not one.has("hi"):
            begun, factor = self._address(operands[2], one), constant(operands[1])
            found = None if begun is None or factor is None else self._plus(begun, operands[0], factor, one)
        return found if found is None or _is_wide(one) else replace(found, exact=False)

    def _address(self, operand: Operand, used: Instruction) -> Terms | None:
        if isinstance(operand, Symbol):
            return Terms((), operand.offset) if operand.name in self._names else None
        return self.of(operand.name, used) if isinstance(operand, Register) else None

    def _plus(self, begun: Terms, number: Operand, factor: int, used: Instruction) -> Terms | None:
        if isinstance(number, Immediate):
            value = constant(number)
            return None if value is None else replace(begun, constant=begun.constant + value * factor)
        if not isinstance(number, Register):
            return None
        term, exact = self._term(number.name, factor, used)
        return None if term is None else Terms((*begun.registers, term), begun.constant, begun.exact and exact)

    def _term(self, name: str, factor: int, used: Instruction) -> tuple[Term | None, bool]:
        """A register times a number: what it was multiplied from, if it was. And whether no bits were lost by that."""
        one = self._single.get(name)
        bits = self._bits(name) if one is not None else 0
        if one is None or not bits or not self._is_in_front(name, used):
            return None, True
        source, times = _multiplied(one)
        if source is not None:
            term, exact = self._term(source, factor * times, one)
            if term is not None:
                return term, exact and _is_wide(one)
        return Term(name, bits, factor), True

    def _bits(self, name: str) -> int:
        """32 or 64; 0 for a register of another size, and for one that the body itself does not declare."""
        bits = SCALAR_TYPES[self._scope.type_of(name)].bits if self._scope.declares(name) else 0
        return bits if bits in (32, 64) else 0


def _is_plain(one: Instruction) -> bool:
    return len(one.operands) > 0 and isinstance(one.operands[0], Register) and "." not in one.operands[0].name


def _is_wide(one: Instruction) -> bool:
    """Whether the result has 64 bits."""
    kind = one.form.types.get("d", "")
    return kind in SCALAR_TYPES and SCALAR_TYPES[kind].bits == 64


def _multiplied(one: Instruction) -> tuple[str | None, int]:
    """The register that the result is a multiple of, and by what."""
    first, *others = one.operands[1:]
    if not isinstance(first, Register):
        return None, 1
    number = constant(others[0]) if others else None
    if one.opcode == "mul" and number is not None and not one.has("hi") and one.form.types.get("a", "")[1:] in ("32", "64"):
        return first.name, number
    if one.opcode == "shl" and number is not None and 0 <= number < 32:
        return first.name, 1 << number
    if one.opcode == "cvt" and one.form.types.get("a", "") in ("u32", "s32") and one.form.types.get("d", "") in ("u64", "s64"):
        return first.name, 1
    return None, 1
