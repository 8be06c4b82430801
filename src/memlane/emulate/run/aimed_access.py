"""Find the arrays that an access was meant for, by the arguments from which its address is computed.

An address alone says little: one that lies in the gap between two arrays may be past the end of the first or before the second.
"""

from __future__ import annotations

from itertools import accumulate

from memlane.emulate.run.memory import Allocation, Memory
from memlane.launch import Launch
from memlane.ptx import Instruction
from memlane.ptx.origins import Base, Origins, origins_of

_POINTER_BYTES = 8


def aimed_allocations(memory: Memory, launch: Launch, instruction: Instruction) -> tuple[Allocation, ...]:
    """Return the allocations of the arguments that an instruction's address points into; empty if the kernel's text does not show them.

    `instruction` is one of the kernel itself or a copy with the same place in the text, not one of a function that it calls.
    """
    function = launch.kernel.function
    known = origins_of(function)
    places = (index for index, one in enumerate(function.instructions()) if one is instruction or _is_copy(one, instruction))
    bases = known.get(next(places, -1), Origins()).bases
    found = (_allocation_of(memory, launch, base) for base in bases)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def distance_to(address: int, allocation: Allocation) -> int:
    """Return the bytes between an address and an allocation; 0 inside it and at its end."""
    return max(allocation.low - address, address - allocation.high, 0)


def argument_name(launch: Launch, allocation: Allocation) -> str:
    """Return the argument in an allocation as text, such as `argument 2 (f4[1000])`; empty if there is none."""
    for position, argument in enumerate(launch.arguments):
        if argument.memory is not None and allocation.low <= argument.memory[0] < allocation.high:
            return f"argument {_argument_number(launch, position)} ({argument.text})"
    return ""


def _argument_number(launch: Launch, position: int) -> int:
    """Return the number of the argument that fills a parameter, from 1; an array of Numba fills several."""
    convention = launch.kernel.function.convention
    if convention is None:
        return position + 1
    ends = accumulate(form.width() for form in convention.arguments)
    return next((number for number, end in enumerate(ends, 1) if position < end), position + 1)


def _is_copy(one: Instruction, other: Instruction) -> bool:
    return one.span is not None and one.span == other.span and one.name == other.name


def _allocation_of(memory: Memory, launch: Launch, base: Base) -> Allocation | None:
    """Return the allocation that a parameter, or a member of one, points to; None for anything else."""
    if isinstance(base, str):
        return None
    position, offset = base if isinstance(base, tuple) else (base, 0)
    data = launch.arguments[position].data if position < len(launch.arguments) else b""
    pointer = data[offset : offset + _POINTER_BYTES]
    return memory.at(int.from_bytes(pointer, "little")) if len(pointer) == _POINTER_BYTES else None
