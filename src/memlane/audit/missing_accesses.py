"""Explain in words why the machine code has no access for a site: which access covers it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from memlane.audit.assembled_module import AssembledModule
from memlane.instrument.probe import ProbeLines
from memlane.ptx import Address, Immediate, Instruction, Operand, Register, Symbol, Vector, registers_written
from memlane.record import Site

NO_ACCESS = "the assembled code has no such access: merged with a neighbour, never executed, or an operand of another instruction"
"""The reason where no other access is found that covers the site."""

_Key = tuple[Register | Symbol | Immediate, str, int]


@dataclass(frozen=True)
class MissingAccesses:
    """Reasons for the missing accesses of one traced kernel."""

    code: AssembledModule
    kernel: str
    sites: Mapping[int, Site]
    probes: Mapping[int, ProbeLines]
    """Probes by the number of their site."""
    _made: dict[int, Sequence[int]] = field(default_factory=dict, repr=False)

    def reason(self, number: int) -> str:
        """Return why a site has no access of its own."""
        site, own = self.sites[number], self._addresses[number]
        if own is None:
            return NO_ACCESS
        nearby = self._accesses_by_base.get(self._key(number, own), {})
        for other, offset in self._near(nearby, own.offset):
            made = max(self._bytes(other))
            if made > self.sites[other].nbytes and abs(own.offset - offset) < made:
                return (
                    f"merged with a neighbour: the assembler combined it with that of {self._line(other, site)} into one access of {made} B"
                )
        before = (one for one in nearby.get(own.offset, ()) if self._instruction_of(one) < self._instruction_of(number))
        equal = [other for other in before if self.sites[other].nbytes >= site.nbytes]
        if not equal:
            return NO_ACCESS
        nearest = max(equal, key=self._instruction_of)
        return f"merged with an equal access: the assembler uses the value of the {self.sites[nearest].kind} of {self._line(nearest, site)}"

    # -- accesses near each other ----------------------------------------------------------------------------------------------

    def _key(self, number: int, address: Address) -> _Key:
        """Return a key that is equal for sites of one space whose addresses have the same base, not written between them."""
        written = self._written.get(address.base.name, []) if isinstance(address.base, Register) else []
        return address.base, self.sites[number].space, bisect_left(written, self._instruction_of(number))

    def _near(self, nearby: Mapping[int, Sequence[int]], offset: int) -> Sequence[tuple[int, int]]:
        """Return (site, offset) of each site in `nearby` that lies less than the widest access from `offset`, in the order of probes.

        `nearby` maps offsets to sites.
        """
        reach = range(offset - self._widest + 1, offset + self._widest)
        return sorted(((number, one) for one in reach for number in nearby.get(one, ())), key=lambda pair: self._place[pair[0]])

    @cached_property
    def _widest(self) -> int:
        return max((nbytes for number in self.probes for nbytes in self._bytes(number)), default=0)

    @cached_property
    def _place(self) -> Mapping[int, int]:
        return {number: place for place, number in enumerate(self.probes)}

    @cached_property
    def _written(self) -> Mapping[str, list[int]]:
        """Indices of the instructions that may write each register."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, one in enumerate(self._instructions):
            for name in registers_written(one):
                found[name].append(index)
        return found

    @cached_property
    def _accesses_by_base(self) -> Mapping[_Key, Mapping[int, list[int]]]:
        """Sites that have accesses, by key and offset."""
        found: dict[_Key, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, address in self._addresses.items():
            if address is not None and self._bytes(number):
                found[self._key(number, address)][address.offset].append(number)
        return found

    def _instruction_of(self, number: int) -> int:
        return self.probes[number].access

    def _line(self, number: int, site: Site) -> str:
        one = self.sites[number]
        if (one.file, one.line) == (site.file, site.line):
            return "the same line"
        return f"line {one.line}" if one.file == site.file else f"{PurePath(one.file).name}:{one.line}"

    @cached_property
    def _instructions(self) -> Sequence[Instruction]:
        return tuple(self.code.module.kernels[self.kernel].instructions())

    @cached_property
    def _addresses(self) -> Mapping[int, Address | None]:
        return {number: self._address(self._instruction_of(number)) for number in self.probes}

    def _address(self, at: int) -> Address | None:
        """Return the address of an access in terms of the original kernel, or None if the instruction does not have exactly one address.

        Where the address is a kernel parameter, the probe copies it to a register of its own in front of the access; that move is followed
        back.
        """
        found = [operand for operand in self._instructions[at].operands if isinstance(operand, Address)]
        if len(found) != 1:
            return None
        base = found[0].base
        if isinstance(base, Register) and base.name.startswith("%ml") and base.name.endswith("_address"):
            moves = self._moves.get(Vector((Register(f"{base.name}_low"), Register(f"{base.name}_high"))), [])
            before = bisect_left(moves, at)
            source = self._instructions[moves[before - 1]].operands[1] if before else None
            if not isinstance(source, Register):
                return None
            base = source
        return Address(base, found[0].offset)

    @cached_property
    def _moves(self) -> Mapping[Operand, Sequence[int]]:
        """Indices of the `mov` instructions that fill each vector of registers."""
        found: dict[Operand, list[int]] = defaultdict(list)
        for index, one in enumerate(self._instructions):
            if one.opcode == "mov" and isinstance(one.operands[0], Vector):
                found[one.operands[0]].append(index)
        return found

    def _bytes(self, number: int) -> Sequence[int]:
        """Return the widths in bytes of the accesses that the machine code has for a site."""
        if number not in self._made:
            made = self.code.accesses(self.kernel, self._instruction_of(number), self.sites[number].space)
            self._made[number] = [access.nbytes for access in made.values()]
        return self._made[number]
