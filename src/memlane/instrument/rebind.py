"""Make an instrumented copy of a module use the variables of the original.

A loaded module has variables of its own. The copy that traces or counts in place of a module must share them: what its kernels store in a
`__device__` variable has to be visible to the plain launches, and vice versa. So each reference to such a variable becomes the address that
it has in the original:

    mov.u64 %rd1, total;          ->   mov.u64 %rd1, 140093205053440;
    ld.global.u32 %r1, [total+4]; ->   ld.global.u32 %r1, [%ml_0+4];       with %ml_0 set at the start of the function

(ptxas accepts a plain number as an address only in local memory.) Two kinds of variables cannot be shared: variables in constant memory,
which only code of their own module can address and whose contents the launcher copies, and tables of functions, whose entries are code of
their own module.
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
"""Matches a name in an initialiser or a debug section: `name`, `name+4`, `generic(name)+4`."""


@dataclass(frozen=True)
class Rebound:
    """A module whose references lead to the variables of another one."""

    module: Module
    preceding: Mapping[str, int] = field(default_factory=dict)
    """Number of instructions inserted at the start of each function, by its name."""


def shared_variables(module: Module) -> tuple[str, ...]:
    """Return the variables that an instrumented copy can share: those in global memory that the module declares, except textures, surfaces
    and tables that name functions."""
    return tuple(one.name for one in _own_data(module, "global"))


def copied_variables(module: Module) -> tuple[str, ...]:
    """Return the variables in constant memory, whose contents have to be copied to the instrumented copy before each launch."""
    return tuple(one.name for one in _own_data(module, "const"))


def _own_data(module: Module, space: str) -> list[Variable]:
    """Return the variables of scalar type in `space` that the module declares itself and whose initialisers name no function."""
    functions = {item.name for item in module.items if isinstance(item, Function)}
    return [
        one
        for one in module.variables.values()
        if one.space == space and "extern" not in one.linkage and one.type in SCALAR_TYPES and not functions & _names_in(one.initial)
    ]


def _names_in(initial: str | None) -> set[str]:
    """Return the names in an initialiser."""
    return {found[1] or found[2] for found in _NAMED.finditer(initial or "")}


def rebind(module: Module, addresses: Mapping[str, int]) -> Rebound:
    """Return the module without the variables in `addresses`, with every reference to them replaced by these device addresses."""
    preceding: dict[str, int] = {}
    items: list[Item] = []
    for item in module.items:
        if isinstance(item, Variable):
            if item.name not in addresses:
                items.append(item if item.initial is None else replace(item, initial=_with_addresses(item.initial, addresses)))
        elif isinstance(item, Function) and item.body is not None:
            function, preceding[item.name] = _rebind_function(item, addresses)
            items.append(function)
        elif isinstance(item, Directive) and item.text.startswith(".section"):
            items.append(Directive(_with_addresses(item.text, addresses)))
        else:
            items.append(item)
    return Rebound(replace(module, items=tuple(items)), preceding)


def _with_addresses(text: str, addresses: Mapping[str, int]) -> str:
    """Return an initialiser or debug section with the names in `addresses` replaced by numbers."""

    def place(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return str(addresses[name] + immediate(found[3] or "0").value) if name in addresses else found[0]

    return _NAMED.sub(place, text)


def _rebind_function(function: Function, addresses: Mapping[str, int]) -> tuple[Function, int]:
    """Return the function with its references replaced, and the number of instructions that set base registers at its start."""
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
    """Return an instruction that sets a register to an address."""
    return replace(instruction("mov.b64 %a, 0;"), operands=(register, Immediate(address)))


def _rebind_block(block: Block, addresses: Mapping[str, int], hidden: Set[str], base: Callable[[str], Register]) -> Block:
    """Return a block with its references replaced. `hidden`: names that inner declarations shadow; `base` gives the register with the
    address of a variable."""
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
