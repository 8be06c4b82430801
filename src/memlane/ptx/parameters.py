"""Find the parts of device functions' parameters and results that are accessed, and divide them into registers.

PTX passes them through variables in `.param` space: the caller stores into a variable of its own and names it in the call, the function
loads from another. If the address of such a variable is not needed, its parts may as well be registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from memlane.ptx.ir import Address, Arguments, Instruction, Operand, Symbol, Vector
from memlane.ptx.types import SCALAR_TYPES

Unit = tuple[int, int]
"""Offset and size in bytes of a part that becomes one register."""


def parameter_accesses(one: Instruction) -> Iterator[tuple[str, int, int, int]]:
    """Yield, for a load or store in `.param` space, (variable, offset, bytes of a component, number of components)."""
    if one.form.effect not in ("load", "store") or one.form.addresses.get("a") != "param":
        return
    address, letter = one.operand("a"), value_letter(one)
    value = one.operand(letter)
    if isinstance(address, Address) and isinstance(address.base, Symbol):
        count = len(value.items) if isinstance(value, Vector) else 1
        nbytes = SCALAR_TYPES[one.form.types[letter]].nbytes
        yield address.base.name, address.base.offset + address.offset, nbytes, count


def value_letter(one: Instruction) -> str:
    """Return the manual's letter for the value of a load or store."""
    return "d" if one.form.effect == "load" else "b"


def items_of(call: Instruction, letter: str) -> tuple[Operand, ...]:
    """Return the arguments or results of a call, by the letter of their list."""
    operand = call.operand(letter)
    return operand.items if isinstance(operand, Arguments) else () if operand is None else (operand,)


def cut(accesses: Iterable[Unit]) -> tuple[Unit, ...]:
    """Return the parts of a variable, in order, so that each access covers whole parts: overlapping accesses are cut into equal parts.

    Bytes that are not accessed belong to none.

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
