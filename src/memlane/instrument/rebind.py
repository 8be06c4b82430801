"""The pass that lets a twin of a module use the variables of the original, where those lie.

A module that is loaded gets variables of its own. The twin that traces or counts in the place of a module must not: what its kernels
leave in a `__device__` variable has to be there for the plain launches, and the other way round. So each reference to such a variable
becomes the address that it has in the original:

    mov.u64 %rd1, total;          ->   mov.u64 %rd1, 140093205053440;
    ld.global.u32 %r1, [total+4]; ->   ld.global.u32 %r1, [%ml_0+4];       with %ml_0 set where the function begins

(a number alone is no address for the assembler outside of local memory.) Two kinds of variables cannot be shared: those in constant
memory, which only code of their own module can address and whose contents the launcher copies, and tables of functions, whose entries
are code of their own module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from memlane.instrument.registers import PREFIX
from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Arguments,
    Block,
    Directive,
    Function,
    Immediate,
    Instruction,
    Item,
    Label,
    Module,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Statement,
    Symbol,
    Variable,
    Vector,
    instruction,
)
from memlane.ptx.constants import immediate
from memlane.ptx.edit import free_prefix

_NAMED = re.compile(r"(?<![\w$%.])(?:generic\(\s*([A-Za-z_$%][\w$]*)\s*\)|([A-Za-z_$%][\w$]*))(?:\s*\+\s*(0[xX][0-9a-fA-F]+|\d+)\b)?")
"""A name in an initialiser or in a debug section: `name`, `name+4`, `generic(name)+4`."""


@dataclass(frozen=True)
class Rebound:
    """A module whose references lead to the variables of another one."""

    module: Module
    preceding: Mapping[str, int] = field(default_factory=dict)
    """By the name of a function: how many instructions stand in front of those that it had."""


def shared_variables(module: Module) -> tuple[str, ...]:
    """The variables of a module that a twin can use in its place: those in global memory that are declared here, except textures, surfaces
    and tables that name functions."""
    return tuple(one.name for one in _own_data(module, "global"))


def copied_variables(module: Module) -> tuple[str, ...]:
    """The variables in constant memory, whose contents a twin must be given before each launch."""
    return tuple(one.name for one in _own_data(module, "const"))


def _own_data(module: Module, space: str) -> list[Variable]:
    functions = {item.name for item in module.items if isinstance(item, Function)}
    return [
        one
        for one in module.variables.values()
        if one.space == space and "extern" not in one.linkage and one.type in SCALAR_TYPES and not functions & _names_in(one.initial)
    ]


def _names_in(initial: str | None) -> set[str]:
    return {found[1] or found[2] for found in _NAMED.finditer(initial or "")}


def rebind(module: Module, addresses: Mapping[str, int]) -> Rebound:
    """The module without the variables that `addresses` names, and with every reference to them replaced by these device addresses."""
    preceding: dict[str, int] = {}
    items: list[Item] = []
    for item in module.items:
        if isinstance(item, Variable):
            if item.name not in addresses:
                items.append(item if item.initial is None else replace(item, initial=_placed(item.initial, addresses)))
        elif isinstance(item, Function) and item.body is not None:
            function, preceding[item.name] = _rebind_function(item, addresses)
            items.append(function)
        elif isinstance(item, Directive) and item.text.startswith(".section"):
            items.append(Directive(_placed(item.text, addresses)))
        else:
            items.append(item)
    return Rebound(replace(module, items=tuple(items)), preceding)


def _placed(text: str, addresses: Mapping[str, int]) -> str:
    def place(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return str(addresses[name] + immediate(found[3] or "0").value) if name in addresses else found[0]

    return _NAMED.sub(place, text)


def _rebind_function(function: Function, addresses: Mapping[str, int]) -> tuple[Function, int]:
    """The function, and how many registers hold an address: each is set by one instruction in front."""
    assert function.body is not None
    prefix = free_prefix(function, PREFIX)
    registers: dict[str, Register] = {}

    def base(name: str) -> Register:
        return registers.setdefault(name, Register(f"%{prefix}{len(registers)}"))

    hidden = frozenset(one.name for one in (*function.params, *function.results))
    body = _rebind_block(function.body, addresses, hidden, base)
    front: list[Statement] = []
    for name, register in registers.items():
        front += [RegisterDecl("b64", register.name), _set_to(register, addresses[name])]
    return replace(function, body=Block((*front, *body.statements))), len(registers)


def _set_to(register: Register, address: int) -> Instruction:
    return replace(instruction("mov.b64 %a, 0;"), operands=(register, Immediate(address)))


def _rebind_block(block: Block, addresses: Mapping[str, int], hidden: Set[str], base: Callable[[str], Register]) -> Block:
    """`hidden`: names that mean something else in here; `base` gives the register for the address of a variable."""
    hidden = hidden | {one.name for one in block.statements if isinstance(one, Variable | Label)}

    def known(name: str) -> bool:
        return name in addresses and name not in hidden

    def rebound(operand: Operand) -> Operand:
        match operand:
            case Symbol(name, offset) if known(name):
                return Immediate(addresses[name] + offset)
            case Address(Symbol(name, inner), offset) if known(name):
                return Address(base(name), inner + offset)
            case Vector(items):
                return Vector(tuple(map(rebound, items)))
            case Arguments(items):
                return Arguments(tuple(map(rebound, items)))
            case Pair(first, second):
                return Pair(rebound(first), rebound(second))
            case _:
                return operand

    def statement(one: Statement) -> Statement:
        if isinstance(one, Block):
            return _rebind_block(one, addresses, hidden, base)
        if isinstance(one, Instruction):
            operands = tuple(map(rebound, one.operands))
            return one if operands == one.operands else replace(one, operands=operands)
        return one

    return Block(tuple(map(statement, block.statements)))
