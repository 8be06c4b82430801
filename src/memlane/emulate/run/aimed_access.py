"""Find the arrays that an access was meant for, by the arguments from which its address is computed.

An address alone says little: one that lies in the gap between two arrays may be past the end of the first or before the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from memlane.emulate.run.memory import Allocation, Memory
from memlane.launch import Launch
from memlane.ptx import Function, Instruction, memory_access, once_for_each
from memlane.ptx.origins import Base, Origins, origins_of

_POINTER_BYTES, _NUMBER_BYTES = 8, 4


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


def only_allocations(memory: Memory, launch: Launch) -> Mapping[int, Allocation]:
    """Map the index of each instruction of the inlined kernel to the one allocation that its address can lie in, if that is certain.

    All that the address is computed from, the index included, must be known: constants, special registers, numbers of at most 4 bytes that
    were loaded, and arguments, of which all pointers lead to the same allocation. An address that was loaded, or that uses a difference of
    two pointers, is not certain; nor is any in a kernel that calls functions which are not inlined.
    """
    function = launch.kernel.inlined
    instructions = tuple(function.instructions())
    if any(one.form.effect == "call" for one in instructions):
        return {}
    found = {}
    for index, known in _origins(function).items():
        if (
            known.bases
            and not any(isinstance(base, str) for base in known.bases)
            and all(_is_number(instructions[load]) for load in known.loads)
        ):
            reached = {allocation for place in known.parameters for allocation in _pointed_at(memory, launch, place)}
            aimed = {_allocation_of(memory, launch, base) for base in known.bases}
            (only,) = aimed if len(aimed) == 1 else (None,)
            if only is not None and reached == {only}:
                found[index] = only
    return found


@once_for_each
def _origins(function: Function) -> Mapping[int, Origins]:
    return origins_of(function)


def _is_number(load: Instruction) -> bool:
    """Return whether an instruction loads at most 4 bytes, which cannot be an address."""
    access = memory_access(load)
    return access is not None and access.kind == "load" and (access.nbytes or _POINTER_BYTES) <= _NUMBER_BYTES


def _pointed_at(memory: Memory, launch: Launch, position: int) -> Iterator[Allocation]:
    """Yield the allocations that an argument, or any word of a structure, points into."""
    data = launch.arguments[position].data if position < len(launch.arguments) else b""
    for offset in range(0, len(data) - _POINTER_BYTES + 1, _POINTER_BYTES):
        found = memory.at(int.from_bytes(data[offset : offset + _POINTER_BYTES], "little"))
        if found is not None:
            yield found


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
