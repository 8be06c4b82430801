"""Where an address comes from: the parameters of the kernel and the loads whose values it is computed from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from memlane.ptx import Address, Function, Instruction, Symbol, memory_accesses, registers_in, values_read, values_written
from memlane.walks import components


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
    sources = _Sources(function, instructions)
    addressed = {index: tuple(_address_registers(one)) for index, one in enumerate(instructions) if one.form.addresses}
    behind = sources.behind(name for names in addressed.values() for name in names)
    known: dict[int, Origins] = {}
    found = {}
    for index, names in addressed.items():
        bits = reduce(or_, (behind[name] for name in names), 0)
        if bits not in known:
            known[bits] = sources.origins(bits)
        found[index] = known[bits]
    return found


def _address_registers(one: Instruction) -> Iterator[str]:
    for access in memory_accesses(one):
        if access.space != "param":
            yield from registers_in(access.address)


class _Sources:
    """Where the values of registers come from, as bits: those of the parameters of a function, then those of its loads."""

    def __init__(self, function: Function, instructions: tuple[Instruction, ...]) -> None:
        self._parameters = {one.name: position for position, one in enumerate(function.params)}
        self._loads: list[int] = []
        self._own: dict[str, int] = defaultdict(int)
        """By register what it is loaded from."""
        self._before: dict[str, dict[str, None]] = defaultdict(dict)
        """By register those that it is computed from."""
        for index, one in enumerate(instructions):
            written = values_written(one)
            if written:
                bit, read = self._source(one, index)
                for name in written:
                    self._own[name] |= bit
                    self._before[name].update(read)

    def _source(self, one: Instruction, index: int) -> tuple[int, dict[str, None]]:
        """The bit of a parameter or a load; or else the registers that an instruction computes from."""
        parameter = _parameter(one, self._parameters)
        if parameter is not None:
            return 1 << parameter, {}
        if one.form.addresses:
            self._loads.append(index)
            return 1 << len(self._parameters) + len(self._loads) - 1, {}
        return 0, dict.fromkeys(values_read(one))

    def behind(self, names: Iterable[str]) -> Mapping[str, int]:
        """By register, of some and all that they are computed from: the bits of what its values come from."""
        found: dict[str, int] = {}

        def before(name: str) -> Iterable[str]:
            return self._before.get(name, ())

        for component in reversed(components(names, before)):
            outside = {one for name in component for one in before(name)} - component
            bits = reduce(or_, (self._own.get(name, 0) for name in component), 0)
            found.update(dict.fromkeys(component, reduce(or_, (found[name] for name in outside), bits)))
        return found

    def origins(self, bits: int) -> Origins:
        """What a set of bits names."""
        count = len(self._parameters)
        positions = [place for place, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]
        parameters = tuple(place for place in positions if place < count)
        return Origins(parameters, tuple(self._loads[place - count] for place in positions if place >= count))


def _parameter(one: Instruction, parameters: Mapping[str, int]) -> int | None:
    """The position of the parameter that an instruction loads, or takes the address of; None if it does something else."""
    named = one.operand("a") if one.opcode == "mov" else None
    if isinstance(named, Symbol):
        return parameters.get(named.name)
    address = one.operand("a") if one.form.addresses.get("a") == "param" else None
    if isinstance(address, Address) and isinstance(address.base, Symbol):
        return parameters.get(address.base.name)
    return None
