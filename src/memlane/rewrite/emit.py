"""Emit the steps of an index map as PTX, from a register to a register, in 32-bit integers.

A table is read from memory or assembled from immediate operands: `prmt` selects one of eight bytes by the lowest three bits of the index,
and the other bits select among several such results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
"""PTX operations. Division, remainder and right shift require operands that are never negative, which is checked."""


@dataclass(frozen=True)
class LookUp:
    """How a table is read: its variable, state space and entry type."""

    variable: str
    space: str
    type: str
    nbytes: int


LARGEST_COMPUTED = 64
"""Maximum number of entries of a table that is assembled from immediate operands."""


def can_be_computed(values: Sequence[int]) -> bool:
    """Return whether a table needs no memory."""
    return len(values) <= LARGEST_COMPUTED and min(values) >= 0 and max(values) < 256


def emit(
    program: Program, source: str, fresh: Callable[[str], str], tables: Mapping[tuple[int, ...], LookUp], guard: str
) -> tuple[str, str]:
    """Return PTX that computes `program` of its only name, whose value `source` holds, and the register or number with the result.

    `fresh` returns an unused register of a type. Tables in `tables` are read from there under `guard` (`@%p ` or empty): where it is false
    the index may be out of range. The others are assembled from immediates. Raises LayoutError for values that do not fit into 32 bits.
    """
    lines: list[str] = []
    places: list[str] = []
    for step in program.steps:
        part, operands = step.part, [places[one] for one in step.operands]
        if part.low < -(1 << 31) or part.high >= 1 << 31:
            raise LayoutError(f"intermediate values up to {max(-part.low, part.high):,} of an address do not fit into 32 bits")
        if part.op == "name":
            places.append(source)
        elif part.op == "number":
            places.append(str(part.value))
        elif part.op == "table":
            assert isinstance(part.value, tuple)
            known = tables.get(part.value)
            if known is None:
                places.append(put_together(lines, part.value, operands[0], fresh))
            else:
                places.append(_look_up(lines, known, operands[0], fresh, guard))
        else:
            if part.op in ("//", "%", ">>") and any(operand.low < 0 for operand in part.operands):
                raise ValueError(f"{part.op} of a value that can be negative")
            places.append(fresh("b32"))
            lines.append(f"{_OPERATIONS[part.op]} {places[-1]}, {operands[0]}, {operands[1]};")
    return "\n".join(lines), places[-1]


def _look_up(lines: list[str], table: LookUp, index: str, fresh: Callable[[str], str], guard: str) -> str:
    """Append PTX that reads an entry of a table; return its register."""
    base, at, found = fresh("b64"), fresh("b64"), fresh("b32")
    cached = ".nc" if table.space == "global" else ""
    lines += [
        f"mov.u64 {base}, {table.variable};",
        f"mad.wide.u32 {at}, {index}, {table.nbytes}, {base};",
        f"{guard}ld.{table.space}{cached}.{table.type} {found}, [{at}];",
    ]
    return found


def put_together(lines: list[str], values: Sequence[int], index: str, fresh: Callable[[str], str]) -> str:
    """Append PTX that assembles the entry of a small table at an index, in 32 bits; return its register."""
    selector = fresh("b32")
    lines.append(f"and.b32 {selector}, {index}, 7;")
    found = []
    for begin in range(0, len(values), 8):
        eight = bytes(values[begin : begin + 8]).ljust(8, b"\0")
        found.append(fresh("b32"))
        low, high = (int.from_bytes(four, "little") for four in (eight[:4], eight[4:]))
        lines.append(f"prmt.b32 {found[-1]}, {low}, {high}, {selector};")
    bit = 8
    while len(found) > 1:
        upper, test = fresh("b32"), fresh("pred")
        lines += [f"and.b32 {upper}, {index}, {bit};", f"setp.ne.u32 {test}, {upper}, 0;"]
        pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
        found = []
        for pair in pairs:
            if len(pair) == 2:
                chosen = fresh("b32")
                lines.append(f"selp.b32 {chosen}, {pair[1]}, {pair[0]}, {test};")
                pair = [chosen]
            found += pair
        bit *= 2
    byte = fresh("b32")
    lines.append(f"and.b32 {byte}, {found[0]}, 255;")
    return byte
