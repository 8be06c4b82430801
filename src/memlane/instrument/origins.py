"""Where an address comes from: the parameters of the kernel and the loads whose values it is computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memlane.ptx import Address, Function, Instruction, Symbol, memory_accesses, registers_in, values_read, values_written

Definitions = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Origins:
    """Of the address of one access, as far as the text of the kernel tells: in doubt more than there are."""

    parameters: tuple[int, ...] = ()
    """Positions of parameters of the kernel."""
    loads: tuple[int, ...] = ()
    """Indices of the instructions, among those of the kernel, that load from memory what the address is computed from; what these loads'
    own addresses come from is not followed."""


def origins_of(function: Function) -> Mapping[int, Origins]:
    """By the index of each instruction that accesses memory.

    Every instruction that writes a register counts as where its value comes from, whichever way control went; what decides whether an
    instruction under a guard is executed counts too, a branch does not.
    """
    instructions = tuple(function.instructions())
    defined: dict[str, tuple[int, ...]] = {}
    for index, one in enumerate(instructions):
        for name in values_written(one):
            defined[name] = (*defined.get(name, ()), index)
    parameters = {one.name: position for position, one in enumerate(function.params)}
    return {
        index: _traced_back(list(_address_registers(one)), instructions, defined, parameters)
        for index, one in enumerate(instructions)
        if one.form.addresses
    }


def _address_registers(one: Instruction) -> Iterator[str]:
    for access in memory_accesses(one):
        if access.space != "param":
            yield from registers_in(access.address)


def _traced_back(names: list[str], instructions: tuple[Instruction, ...], defined: Definitions, parameters: Mapping[str, int]) -> Origins:
    found: set[int] = set()
    loads: set[int] = set()
    seen = set(names)
    while names:
        for index in defined.get(names.pop(), ()):
            one = instructions[index]
            parameter = _parameter(one, parameters)
            if parameter is not None:
                found.add(parameter)
            elif one.form.addresses:
                loads.add(index)
            else:
                before = set(values_read(one)) - seen
                seen |= before
                names += before
    return Origins(tuple(sorted(found)), tuple(sorted(loads)))


def _parameter(one: Instruction, parameters: Mapping[str, int]) -> int | None:
    """The position of the parameter that an instruction loads, or takes the address of; None if it does something else."""
    named = one.operand("a") if one.opcode == "mov" else None
    if isinstance(named, Symbol):
        return parameters.get(named.name)
    address = one.operand("a") if one.form.addresses.get("a") == "param" else None
    if isinstance(address, Address) and isinstance(address.base, Symbol):
        return parameters.get(address.base.name)
    return None
