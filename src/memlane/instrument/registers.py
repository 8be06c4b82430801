"""The registers of a function: their types, their raw bits, and names that are still free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Arguments,
    Block,
    Function,
    Instruction,
    Label,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    TextureAddress,
    Variable,
    Vector,
)

PREFIX = "ml"


def read(instruction: Instruction) -> tuple[str, ...]:
    """Registers that the instruction reads, its guard left out, each once; components (`%v.x`) by their full name."""
    form = instruction.form
    written = {form.operands[letter] for letter in form.writes if letter in form.operands}
    names = (name for place, operand in enumerate(instruction.operands) if place not in written for name in components(operand))
    return tuple(dict.fromkeys(names))


def components(operand: Operand) -> Iterator[str]:
    """The registers in an operand, components of vector registers by their full name."""
    match operand:
        case Register(name):
            yield name
        case Address(base):
            yield from components(base)
        case Vector(items) | TextureAddress(items) | Arguments(items):
            for item in items:
                yield from components(item)
        case Pair(first, second):
            yield from components(first)
            yield from components(second)


@dataclass(frozen=True)
class Scope:
    """Types of the registers that are visible at a place; inner declarations hide outer ones."""

    types: Mapping[str, str]
    ranges: Mapping[str, tuple[int, str]]
    """Prefix to count and type: `.reg .b32 %r<12>`."""
    outer: Scope | None = None

    @classmethod
    def of(cls, declarations: Iterable[object], outer: Scope | None = None) -> Scope:
        """The scope of a block with these statements (or of a list of parameters)."""
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
        """Whether a register of that name is declared in this very scope."""
        return bool(self._declared(name))

    def type_of(self, name: str) -> str:
        """The scalar type of a register, or of a component (`%v.x`) of one; `b32` where the text does not declare it."""
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


@dataclass(frozen=True)
class Words:
    """A register as 32-bit words, and the PTX that makes them."""

    text: str
    names: tuple[str, ...]


def words_of(register: str, kind: str, stem: str) -> Words:
    """The bits of `register`, of scalar type `kind`, in registers called after `stem`, which the text declares.

    Of 128 bits only the lower half is taken: one load writes both.
    """
    bits = SCALAR_TYPES[kind].bits
    if kind == "pred":
        return Words(f".reg .b32 {stem};\nselp.u32 {stem}, 1, 0, {register};\n", (stem,))
    if bits == 128:
        inner = words_of(f"{stem}l", "b64", stem)
        return Words(f".reg .b64 {stem}l, {stem}h;\nmov.b128 {{{stem}l, {stem}h}}, {register};\n{inner.text}", inner.names)
    if bits == 64:
        low, high = f"{stem}x", f"{stem}y"
        return Words(f".reg .b32 {low}, {high};\nmov.b64 {{{low}, {high}}}, {register};\n", (low, high))
    if bits == 32:
        return Words(f".reg .b32 {stem};\nmov.b32 {stem}, {register};\n", (stem,))
    if bits == 16:
        return Words(f".reg .b32 {stem};\nmov.b32 {stem}, {{{register}, {register}}};\n", (stem,))
    return Words(f".reg .b32 {stem};\ncvt.u32.u8 {stem}, {register};\n", (stem,))


def free_prefix(function: Function) -> str:
    """`ml_`, or `ml2_`, ...: the first for which no name of the function begins with it, its `%` or `$` left out."""
    assert function.body is not None
    names = [*_names(function.body), *(one.name for one in (*function.params, *function.results))]
    taken = {name.lstrip("%$") for name in names}
    number = 1
    while True:
        prefix = f"{PREFIX}{number if number > 1 else ''}_"
        if not any(name.startswith(prefix) for name in taken):
            return prefix
        number += 1


def _names(block: Block) -> Iterator[str]:
    for statement in block.statements:
        if isinstance(statement, Block):
            yield from _names(statement)
        elif isinstance(statement, RegisterDecl | Variable | Label):
            yield statement.name
