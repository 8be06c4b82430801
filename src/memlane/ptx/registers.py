"""Find the registers and other names that an instruction reads and writes, rename them, and look up register types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from memlane.ptx.ir import (
    Address,
    Arguments,
    Guard,
    Instruction,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Symbol,
    TextureAddress,
    Variable,
    Vector,
    elements,
)


def registers_in(operand: Operand) -> Iterator[str]:
    """Yield the names of the registers in an operand. `%v.x`, a component of a vector register, counts as `%v`."""
    match operand:
        case Register(name):
            yield name.partition(".")[0]
        case Address(base):
            if isinstance(base, Register):
                yield base.name
        case Vector(items) | TextureAddress(items) | Arguments(items):
            for item in items:
                yield from registers_in(item)
        case Pair(first, second):
            yield from registers_in(first)
            yield from registers_in(second)


def registers_written(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that an instruction may write if its guard is true."""
    return _registers(instruction)[1]


def registers_read(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that an instruction reads, its guard included."""
    return _registers(instruction)[0]


def _registers(instruction: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the registers that an instruction reads and writes; the result is cached on the instruction, as every pass needs it."""
    if instruction.known_registers is None:
        object.__setattr__(instruction, "known_registers", (_read(instruction), _written(instruction)))
        assert instruction.known_registers is not None
    return instruction.known_registers


def _written(instruction: Instruction) -> tuple[str, ...]:
    form = instruction.form
    found: list[str] = []
    for letter in form.writes:
        found.extend(registers_in(instruction.operands[form.operands[letter]]))
    return tuple(found)


def _read(instruction: Instruction) -> tuple[str, ...]:
    form = instruction.form
    written = {form.operands[letter] for letter in form.writes - form.updates}
    found = [] if instruction.guard is None else [instruction.guard.register]
    for index, operand in enumerate(instruction.operands):
        if index not in written:
            found.extend(registers_in(operand))
    return tuple(found)


CARRY = "@cc"
"""The carry flag of extended-precision arithmetic, which only the opcode of an instruction implies."""
_CARRY_READERS = frozenset({"addc", "subc", "madc"})


def values_written(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that an instruction may write, the carry flag included."""
    found = registers_written(instruction)
    return (*found, CARRY) if instruction.has("cc") else found


def values_read(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that an instruction reads, its guard and the carry flag included."""
    found = registers_read(instruction)
    return (*found, CARRY) if instruction.opcode in _CARRY_READERS else found


def overwrites(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers whose old value an instruction certainly overwrites: written whole and without a guard."""
    if instruction.guard is not None:
        return ()
    form = instruction.form
    partial: set[str] = set()
    for letter in form.writes:
        items = elements(instruction.operands[form.operands[letter]])
        partial.update(item.name.partition(".")[0] for item in items if isinstance(item, Register) and "." in item.name)
    return tuple(name for name in registers_written(instruction) if name not in partial)


def rename_operand(operand: Operand, rename: Callable[[str], str]) -> Operand:
    """Return the operand with every register and symbol name replaced by `rename(name)`; offsets and components are kept."""
    match operand:
        case Register(name, negated):
            base, dot, component = name.partition(".")
            return Register(rename(base) + dot + component, negated)
        case Symbol(name, offset):
            return Symbol(rename(name), offset)
        case Address(base, offset):
            renamed = rename_operand(base, rename)
            return Address(renamed, offset) if isinstance(renamed, (Register, Symbol)) else operand
        case Vector(items):
            return Vector(tuple(rename_operand(item, rename) for item in items))
        case TextureAddress(items):
            return TextureAddress(tuple(rename_operand(item, rename) for item in items))
        case Arguments(items):
            return Arguments(tuple(rename_operand(item, rename) for item in items))
        case Pair(first, second):
            return Pair(rename_operand(first, rename), rename_operand(second, rename))
        case _:
            return operand


def rename_instruction(instruction: Instruction, rename: Callable[[str], str]) -> Instruction:
    """Return the instruction with every register and symbol name, that of its guard included, replaced by `rename(name)`."""
    guard = instruction.guard
    return replace(
        instruction,
        operands=tuple(rename_operand(operand, rename) for operand in instruction.operands),
        guard=None if guard is None else Guard(rename(guard.register), guard.negated),
    )


def names_in(operand: Operand) -> Iterator[str]:
    """Yield the names of the registers and symbols in an operand."""
    match operand:
        case Symbol(name) | Address(Symbol(name)):
            yield name
        case Vector(items) | TextureAddress(items) | Arguments(items):
            for item in items:
                yield from names_in(item)
        case Pair(first, second):
            yield from names_in(first)
            yield from names_in(second)
        case _:
            yield from registers_in(operand)


@dataclass(frozen=True)
class Scope:
    """Types of the registers that are visible at a place; inner declarations hide outer ones."""

    types: Mapping[str, str]
    ranges: Mapping[str, tuple[int, str]]
    """Count and type by prefix: `.reg .b32 %r<12>`."""
    outer: Scope | None = None

    @classmethod
    def of(cls, declarations: Iterable[object], outer: Scope | None = None) -> Scope:
        """Return the scope of a block with these statements (or of a list of parameters)."""
        types: dict[str, str] = {}
        ranges: dict[str, tuple[int, str]] = {}
        for one in declarations:
            if isinstance(one, Variable) and one.space == "reg":
                types[one.name] = one.type
            elif isinstance(one, RegisterDecl):
                if one.count is not None:
                    ranges[one.name] = (one.count, one.type)
                else:
                    types[one.name] = one.type
        return cls(types, ranges, outer)

    def declares(self, name: str) -> bool:
        """Return whether a register of that name is declared in this very scope."""
        return bool(self._declared(name))

    def type_of(self, name: str) -> str:
        """Return the scalar type of a register, or of a component (`%v.x`) of one; `b32` where the text does not declare it."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._declared(name) or scope._declared(name.rpartition(".")[0])
            if found:
                return found
            scope = scope.outer
        return "b32"

    def _declared(self, name: str) -> str:
        if name in self.types:
            return self.types[name]
        digits = len(name)
        while digits and name[digits - 1].isdecimal():
            digits -= 1
            count, kind = self.ranges.get(name[:digits], (0, ""))
            if int(name[digits:]) < count:
                return kind
        return ""
