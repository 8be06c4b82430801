"""The steps of an index map as PTX: from a register to a register, in 32-bit integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memlane.errors import LayoutError
from memlane.layout.program import Program

_OPERATIONS: Mapping[str, str] = {
    "+": "add.s32",
    "-": "sub.s32",
    "*": "mul.lo.s32",
    "//": "div.u32",
    "%": "rem.u32",
    "&": "and.b32",
    "|": "or.b32",
    "^": "xor.b32",
    "<<": "shl.b32",
    ">>": "shr.u32",
    "min": "min.s32",
    "max": "max.s32",
}
"""Division, remainder and shift to the right are those of values that are never negative, which is checked."""


@dataclass(frozen=True)
class LookUp:
    """How a table is read: its variable, the space that lies in, and the type of its entries."""

    variable: str
    space: str
    type: str
    nbytes: int


def emit(
    program: Program, source: str, fresh: Callable[[str], str], tables: Mapping[tuple[int, ...], LookUp], guard: str
) -> tuple[str, str]:
    """PTX that computes `program` of the one name it has, which `source` holds, and the register or number that is its value.

    `fresh` gives a register of a type that is not used yet. Tables are read under `guard` (`@%p ` or nothing): where it is false the index
    may be any. LayoutError for values that 32 bits do not hold.
    """
    lines: list[str] = []
    places: list[str] = []
    for step in program.steps:
        part, operands = step.part, [places[one] for one in step.operands]
        if part.low < -(1 << 31) or part.high >= 1 << 31:
            raise LayoutError(f"values up to {max(-part.low, part.high):,} on the way to an address do not fit 32 bits")
        if part.op == "name":
            places.append(source)
        elif part.op == "number":
            places.append(str(part.value))
        elif part.op == "table":
            assert isinstance(part.value, tuple)
            places.append(_look_up(lines, tables[part.value], operands[0], fresh, guard))
        else:
            if part.op in ("//", "%", ">>") and any(operand.low < 0 for operand in part.operands):
                raise ValueError(f"{part.op} of a value that can be negative")
            places.append(fresh("b32"))
            lines.append(f"{_OPERATIONS[part.op]} {places[-1]}, {operands[0]}, {operands[1]};")
    return "\n".join(lines), places[-1]


def _look_up(lines: list[str], table: LookUp, index: str, fresh: Callable[[str], str], guard: str) -> str:
    base, at, found = fresh("b64"), fresh("b64"), fresh("b32")
    cached = ".nc" if table.space == "global" else ""
    lines += [
        f"mov.u64 {base}, {table.variable};",
        f"mad.wide.u32 {at}, {index}, {table.nbytes}, {base};",
        f"{guard}ld.{table.space}{cached}.{table.type} {found}, [{at}];",
    ]
    return found
