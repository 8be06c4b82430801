"""Parameters and results of device functions: who accesses which part of them, and the registers that they can be cut into.

PTX passes them through variables in `.param` space: the caller stores into one of its own and names it in the call, the function loads from
another. Where nobody needs the address of such a variable, its parts may as well be registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from memlane.ptx.ir import Address, Arguments, Instruction, Operand, Symbol, Vector
from memlane.ptx.types import SCALAR_TYPES

Unit = tuple[int, int]
"""Offset and size in bytes of what becomes one register."""


def parameter_accesses(one: Instruction) -> Iterator[tuple[str, int, int, int]]:
    """Of a load or store in `.param` space: the variable, the offset, the bytes of a component, and how many components."""
    if one.form.effect not in ("load", "store") or one.form.addresses.get("a") != "param":
        return
    address, letter = one.operand("a"), value_letter(one)
    value = one.operand(letter)
    if isinstance(address, Address) and isinstance(address.base, Symbol):
        count = len(value.items) if isinstance(value, Vector) else 1
        nbytes = SCALAR_TYPES[one.form.types[letter]].nbytes
        yield address.base.name, address.base.offset + address.offset, nbytes, count


def value_letter(one: Instruction) -> str:
    """What the manual calls the value of a load or store."""
    return "d" if one.form.effect == "load" else "b"


def items_of(call: Instruction, letter: str) -> tuple[Operand, ...]:
    """The arguments or results of a call, by the letter of their list."""
    operand = call.operand(letter)
    return operand.items if isinstance(operand, Arguments) else () if operand is None else (operand,)


def cut(accesses: Iterable[Unit]) -> tuple[Unit, ...]:
    """The parts of a variable, in order, of which each access takes some whole ones: those that overlap are cut into equal parts.

    Bytes that nobody accesses belong to none.

    >>> cut([(0, 8), (4, 4), (12, 2)])
    ((0, 4), (4, 4), (12, 2))
    """
    left = sorted(accesses)
    found: list[Unit] = []
    while left:
        start, nbytes = left[0]
        end = start + nbytes
        group = []
        while left and left[0][0] < end:
            group.append(left.pop(0))
            end = max(end, sum(group[-1]))
        step = gcd(end - start, *(size for _, size in group), *(offset - start for offset, _ in group))
        found += [(offset, step) for offset in range(start, end, step)]
    return tuple(found)
