"""Find where an address comes from: kernel parameters, loads whose values it is computed from, and the array it points into."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from memlane.ptx.access import memory_accesses
from memlane.ptx.ir import Address, Function, Instruction, Register, Symbol
from memlane.ptx.registers import registers_in, values_read, values_written
from memlane.ptx.types import SCALAR_TYPES
from memlane.walks import components

Base = int | str | tuple[int, int]
"""Object that an address points into: the position of a pointer parameter, the name of a variable, or for a pointer that is a member of a
structure, the position of that parameter and the member's offset in bytes."""


@dataclass(frozen=True)
class Origins:
    """Origins of the address of one access, as far as the kernel's text shows them; an over-approximation."""

    parameters: tuple[int, ...] = ()
    """Positions of parameters of the kernel."""
    loads: tuple[int, ...] = ()
    """Indices of the kernel's instructions that load values which the address is computed from. The addresses of these loads are not
    followed."""
    bases: tuple[Base, ...] = ()
    """Objects that the address points into. Offsets such as an index are left out. Nothing is known about a pointer that was loaded from
    memory."""


def origins_of(function: Function) -> Mapping[int, Origins]:
    """Map the index of each instruction that accesses memory to the origins of its address.

    Flow-insensitive: every instruction that writes a register counts as an origin of its value. The guard of an instruction counts as an
    origin too; branches do not.
    """
    instructions = tuple(function.instructions())
    sources = _Sources(function, instructions)
    addressed = {index: tuple(_address_registers(one)) for index, one in enumerate(instructions) if one.form.addresses}
    used = {name for names in addressed.values() for name in names}
    behind, pointed = sources.behind(used), sources.pointed_at(used)
    known: dict[tuple[int, int], Origins] = {}
    found = {}
    for index, names in addressed.items():
        bits = reduce(or_, (behind[name] for name in names), 0)
        bases = reduce(or_, (pointed[name] for name in names), sources.named_in(instructions[index]))
        if (bits, bases) not in known:
            known[bits, bases] = replace(sources.origins(bits), bases=sources.bases(bases))
        found[index] = known[bits, bases]
    return found


def _address_registers(one: Instruction) -> Iterator[str]:
    """Yield the registers in the addresses of an instruction, except those in parameter space."""
    for access in memory_accesses(one):
        if access.space != "param":
            yield from registers_in(access.address)


_POINTER_OPERANDS = {"mov": "a", "cvta": "a", "cvt": "a", "add": "ab", "sub": "a", "and": "ab", "or": "ab", "selp": "ab", "mad": "c"}
"""Operands through which a pointer reaches the result, by opcode. A factor or a shifted operand is an index."""
_POINTER_BITS = 64


class _Sources:
    """Def-use chains of a function with two bit sets per register: its values come from (parameters, then loads), and it points into
    (parameters, then variables and members)."""

    def __init__(self, function: Function, instructions: tuple[Instruction, ...]) -> None:
        self._parameters = {one.name: position for position, one in enumerate(function.params)}
        self._loads: list[int] = []
        self._own: dict[str, int] = defaultdict(int)
        """Bits of what a register is loaded from, by register."""
        self._before: dict[str, dict[str, None]] = defaultdict(dict)
        """Registers that a register is computed from, by register."""
        self._params = function.params
        self._others: dict[str | tuple[int, int], int] = {}
        """Number of each variable, and of each member of a structure."""
        self._base: dict[str, int] = defaultdict(int)
        """Bits of the arrays whose address a register takes, by register."""
        self._passed: dict[str, dict[str, None]] = defaultdict(dict)
        """Registers from which a register gets a pointer, by register."""
        for index, one in enumerate(instructions):
            written = values_written(one)
            if written:
                base, pointers = self._pointer(one)
                for number, name in enumerate(written):
                    self._base[name] |= base | self._member(one, number)
                    self._passed[name].update(pointers)
                bit, read = self._source(one, index)
                for name in written:
                    self._own[name] |= bit
                    self._before[name].update(read)

    def _parameter(self, one: Instruction) -> int | None:
        """Return the position of the parameter that an instruction loads or takes the address of; None for any other instruction, and for a
        load from behind its end, where other parameters may lie."""
        named = one.operand("a")
        if isinstance(named, Symbol) and one.opcode == "mov":
            return self._parameters.get(named.name)
        if isinstance(named, Address) and isinstance(named.base, Symbol) and one.form.addresses.get("a") == "param":
            found = self._parameters.get(named.base.name)
            return found if found is not None and 0 <= named.offset < self._params[found].nbytes else None
        return None

    def _source(self, one: Instruction, index: int) -> tuple[int, dict[str, None]]:
        """Return the bit of the parameter or load that an instruction reads, or else the registers that it computes from."""
        parameter = self._parameter(one)
        if parameter is not None:
            return 1 << parameter, {}
        if one.form.addresses:
            self._loads.append(index)
            return 1 << len(self._parameters) + len(self._loads) - 1, {}
        return 0, dict.fromkeys(values_read(one))

    def _pointer(self, one: Instruction) -> tuple[int, dict[str, None]]:
        """Return the bits of what an instruction takes the address of, or else the registers from which its result gets a pointer."""
        parameter = self._parameter(one)
        if parameter is not None:
            if one.opcode != "mov" and self._params[parameter].shape is not None:
                return 0, {}  # a member of a structure
            is_pointer = one.opcode == "mov"
            scalar = SCALAR_TYPES.get(self._params[parameter].type)
            return (1 << parameter, {}) if is_pointer or (scalar is not None and scalar.bits == _POINTER_BITS) else (0, {})
        if one.form.addresses:
            return 0, {}
        operands = [one.operand(letter) for letter in _POINTER_OPERANDS.get(one.opcode, "") if letter in one.form.operands]
        named = (self._bit(operand.name) for operand in operands if isinstance(operand, Symbol))
        return reduce(or_, named, 0), dict.fromkeys(operand.name for operand in operands if isinstance(operand, Register))

    def _member(self, one: Instruction, number: int) -> int:
        """Return the bit of the member that an instruction loads from a structure into its result of that number; 0 if it loads none."""
        parameter = self._parameter(one)
        address = one.operand("a")
        if parameter is None or self._params[parameter].shape is None or not isinstance(address, Address):
            return 0
        return self._bit((parameter, address.offset + number * _POINTER_BITS // 8))

    def _bit(self, base: str | tuple[int, int]) -> int:
        """Return the bit of a parameter, a variable or a member."""
        if isinstance(base, str) and base in self._parameters:
            return 1 << self._parameters[base]
        return 1 << len(self._parameters) + self._others.setdefault(base, len(self._others))

    def named_in(self, one: Instruction) -> int:
        """Return the bits of the variables that an access names in its address."""
        bases = (access.address.base for access in memory_accesses(one) if access.space != "param" and isinstance(access.address, Address))
        return reduce(or_, (self._bit(base.name) for base in bases if isinstance(base, Symbol)), 0)

    def behind(self, names: Iterable[str]) -> Mapping[str, int]:
        """Map these registers, and all that they are computed from, to the bits of the origins of their values."""
        return _gathered(names, self._before, self._own)

    def pointed_at(self, names: Iterable[str]) -> Mapping[str, int]:
        """Map these registers, and all from which they get a pointer, to the bits of what they point into."""
        return _gathered(names, self._passed, self._base)

    def bases(self, bits: int) -> tuple[Base, ...]:
        """Return the parameters, variables and members of a bit set."""
        names = [*range(len(self._parameters)), *self._others]
        return tuple(name for place, name in enumerate(names) if bits >> place & 1)

    def origins(self, bits: int) -> Origins:
        """Return the parameters and loads of a bit set."""
        count = len(self._parameters)
        positions = [place for place, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]
        parameters = tuple(place for place in positions if place < count)
        return Origins(parameters, tuple(self._loads[place - count] for place in positions if place >= count))


def _gathered(names: Iterable[str], edges: Mapping[str, dict[str, None]], own: Mapping[str, int]) -> Mapping[str, int]:
    """Map each register to the union of its own bits and those of all registers reachable by `edges`."""
    found: dict[str, int] = {}

    def before(name: str) -> Iterable[str]:
        return edges.get(name, ())

    for component in reversed(components(names, before)):
        outside = {one for name in component for one in before(name)} - component
        bits = reduce(or_, (own.get(name, 0) for name in component), 0)
        found.update(dict.fromkeys(component, reduce(or_, (found[name] for name in outside), bits)))
    return found
