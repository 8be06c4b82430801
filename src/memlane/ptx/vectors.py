"""Split vector registers into scalar registers.

    .reg .v2 .b32 v;                            .reg .b32 v@x; .reg .b32 v@y;
    ld.global.v2.b32 v, [p];           ->       ld.global.v2.b32 {v@x, v@y}, [p];
    add.u32 v.y, v.x, 1;                        add.u32 v@y, v@x, 1;

The names of the elements are not valid PTX, so the result is for further processing, not for printing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from memlane.ptx.ir import (
    Address,
    Arguments,
    Block,
    Function,
    Instruction,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Special,
    Statement,
    TextureAddress,
    Vector,
    elements,
    with_instructions,
)
from memlane.ptx.special_registers import COLOURS, SPECIAL_REGISTERS

ELEMENTS = "xyzw"
"""Names of the elements."""


def split_vectors(function: Function) -> Function:
    """Return a flat function with a register for each element of its vector registers; the function itself if it has none."""
    if function.body is None:
        return function
    vectors = [one for one in function.body.statements if isinstance(one, RegisterDecl) and one.vector > 1]
    if not vectors and not any(map(_has_elements, function.instructions())):
        return function
    lengths = {name: one.vector for one in vectors for name in _names(one)}
    statements: list[Statement] = []
    for one in function.body.statements:
        if isinstance(one, RegisterDecl) and one.vector > 1:
            statements += [RegisterDecl(one.type, f"{name}@{element}") for name in _names(one) for element in ELEMENTS[: one.vector]]
        else:
            statements.append(with_instructions(one, lambda instruction: _split(instruction, lengths)))
    return replace(function, body=Block(tuple(statements)))


def _has_elements(one: Instruction) -> bool:
    """Return whether an instruction is a vector move, or uses an element of a register that may not be declared."""
    return (one.opcode == "mov" and one.slot("vec") is not None) or any(
        isinstance(item, Register) and "." in item.name for operand in one.operands for item in elements(operand)
    )


def _names(one: RegisterDecl) -> Iterator[str]:
    if one.count is None:
        yield one.name
    else:
        yield from (f"{one.name}{number}" for number in range(one.count))


def _split(instruction: Instruction, lengths: Mapping[str, int]) -> Instruction:
    operands = tuple(_apart(operand, lengths) for operand in instruction.operands)
    return instruction if operands == instruction.operands else replace(instruction, operands=operands)


def _apart(operand: Operand, lengths: Mapping[str, int]) -> Operand:
    match operand:
        case Register(name, negated):
            base, dot, element = name.partition(".")
            if dot and (base in lengths or element in (*ELEMENTS, *COLOURS)):
                return Register(f"{base}@{COLOURS.get(element, element)}", negated)
            if base not in lengths:
                return operand
            return Vector(tuple(Register(f"{base}@{each}") for each in ELEMENTS[: lengths[base]]))
        case Special(name) if f"{name}.x" in SPECIAL_REGISTERS:
            return Vector(tuple(Special(f"{name}.{each}") for each in ELEMENTS))
        case Address(base, offset) if isinstance(base, Register):
            found = _apart(base, lengths)
            return Address(found, offset) if isinstance(found, Register) else operand
        case Vector(items):
            return Vector(tuple(_apart(item, lengths) for item in items))
        case TextureAddress(items):
            return TextureAddress(tuple(_apart(item, lengths) for item in items))
        case Arguments(items):
            return Arguments(tuple(_apart(item, lengths) for item in items))
        case Pair(first, second):
            return Pair(_apart(first, lengths), _apart(second, lengths))
        case _:
            return operand
