"""Express the offset of an address in its array as a sum of registers: what was added to the start of the array.

    mov.u64        %rd7, tile;
    mul.wide.u32   %rd6, %r5, 128;
    add.s64        %rd8, %rd7, %rd6;         the offset of %rd8 is %r5 * 128 bytes,
    mul.wide.u32   %rd9, %r2, 4;
    add.s64        %rd10, %rd8, %rd9;        that of %rd10 is %r5 * 128 + %r2 * 4

Subtracting the start from the address gives the same value, but ptxas does not simplify that. Only registers with a single unguarded
definition that dominates the use are followed. So at each use of an address they still hold its operands: no path leads from an operand to
the use without computing the address again.
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
"""Maximum number of registers in a sum: one addition costs as much as subtracting the start."""


@dataclass(frozen=True, slots=True)
class Term:
    """A register times a factor."""

    register: str
    bits: int
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Terms:
    """Number of bytes as a sum of registers and a constant."""

    registers: tuple[Term, ...] = ()
    constant: int = 0
    exact: bool = True
    """Whether the sum is exact as integers; if not, bits above the lower 32 were lost."""

    def divided(self, by: int) -> Terms | None:
        """Return the number divided by `by`; None if some term is not a multiple. Unless it is exact, its upper log2(`by`) bits are
        undefined."""
        if self.constant % by or any(term.factor % by for term in self.registers):
            return None
        return replace(
            self, registers=tuple(replace(term, factor=term.factor // by) for term in self.registers), constant=self.constant // by
        )


class Sums:
    """Addresses in one array that a function computes as sums. `flow`: control flow of the function with unique names."""

    def __init__(self, function: Function, flow: ControlFlow, names: Sequence[str]) -> None:
        self._names, self._flow = names, flow
        flat = [one for block in flow.blocks for one in block.instructions]
        self._places = {id(one): (block.index, place) for block in flow.blocks for place, one in enumerate(block.instructions)}
        # Only registers declared in the body itself: those of inner blocks are not visible elsewhere.
        own = function.body.statements if function.body is not None else ()
        self._scope = Scope.of(one for one in own if isinstance(one, RegisterDecl) and one.vector == 1)
        writes = Counter(name for one in flat for name in registers_written(one))
        self._single = {
            name: one for one in flat if one.guard is None for name in registers_written(one) if writes[name] == 1 and _is_plain(one)
        }
        self._known: dict[str, Terms | None] = {}

    def of(self, register: str, used: Instruction) -> Terms | None:
        """Return the offset in the array of the address in a register that an instruction uses, as a sum; None if it is not one."""
        if register not in self._known:
            self._known[register] = None  # a value that depends on itself is not a sum
            one = self._single.get(register)
            found = None if one is None else self._made_by(one)
            self._known[register] = found if found is None or len(found.registers) <= MOST else None
        return self._known[register] if self._is_in_front(register, used) else None

    def _is_in_front(self, register: str, used: Instruction) -> bool:
        """Return whether the definition of the register dominates an instruction."""
        one = self._single.get(register)
        if one is None:
            return False
        (block, place), (where, behind) = self._places[id(one)], self._places[id(used)]
        if self._flow.rank[where] < 0 or self._flow.rank[block] < 0:
            return False
        return place < behind if block == where else self._flow.dominates(block, where)

    def _made_by(self, one: Instruction) -> Terms | None:
        """Return the sum that an instruction computes; None if it does not."""
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
        """Return a register times a factor, followed to the operand of its multiplication if there is one, and whether no bits were
        lost."""
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
        """Return 32 or 64; 0 for a register of another size, or one that the body itself does not declare."""
        bits = SCALAR_TYPES[self._scope.type_of(name)].bits if self._scope.declares(name) else 0
        return bits if bits in (32, 64) else 0


def _is_plain(one: Instruction) -> bool:
    return len(one.operands) > 0 and isinstance(one.operands[0], Register) and "." not in one.operands[0].name


def _is_wide(one: Instruction) -> bool:
    """Return whether the result has 64 bits."""
    kind = one.form.types.get("d", "")
    return kind in SCALAR_TYPES and SCALAR_TYPES[kind].bits == 64


def _multiplied(one: Instruction) -> tuple[str | None, int]:
    """Return the register of which the result is a multiple, and the factor; None and 1 if there is none."""
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
