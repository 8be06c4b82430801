"""Why the assembled code has no access for a site, in words: whose access stands for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from memlane.instrument.assembled import Assembled
from memlane.instrument.probes import ProbeLines
from memlane.ptx import Address, Instruction, Register, Vector, registers_written
from memlane.record import Site
from memlane.sass import Access

ABSENT = "the assembled code has no such access: merged with a neighbour, never executed, or an operand of another instruction"
"""Where nothing tells which."""


@dataclass(frozen=True)
class Absent:
    """The sites of one traced kernel."""

    code: Assembled
    kernel: str
    sites: Mapping[int, Site]
    probes: Mapping[int, ProbeLines]
    """By number of the site."""

    def reason(self, number: int) -> str:
        """Of a site without an access."""
        site, own = self.sites[number], self._addresses[number]
        if own is None:
            return ABSENT
        equal = []
        for other, address in self._addresses.items():
            if other == number or address is None or address.base != own.base or self.sites[other].space != site.space:
                continue
            if not self._holds(own.base, other, number):
                continue
            made = [access.nbytes for access in self._accesses(other)]
            within = own.offset - address.offset
            widest = max(made, default=0)
            if widest > self.sites[other].nbytes and abs(within) < widest:
                return (
                    f"merged with a neighbour: the assembler made one access of {widest} B of it and the one of {self._line(other, site)}"
                )
            if made and within == 0 and self.sites[other].nbytes >= site.nbytes and self._at(other) < self._at(number):
                equal.append(other)
        if not equal:
            return ABSENT
        nearest = max(equal, key=self._at)
        return f"merged with an equal access: the assembler uses the value of the {self.sites[nearest].kind} of {self._line(nearest, site)}"

    def _at(self, number: int) -> int:
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
        return {number: self._address(self._at(number)) for number in self.probes}

    def _address(self, at: int) -> Address | None:
        """That of the kernel; in front of the access stands what ties a parameter to the probe, if one is the address."""
        found = [operand for operand in self._instructions[at].operands if isinstance(operand, Address)]
        if len(found) != 1:
            return None
        base = found[0].base
        if isinstance(base, Register) and base.name.startswith("%ml") and base.name.endswith("_address"):
            halves = Vector((Register(f"{base.name}_low"), Register(f"{base.name}_high")))
            made = next((one for one in reversed(self._instructions[:at]) if one.opcode == "mov" and one.operands[0] == halves), None)
            if made is None or not isinstance(made.operands[1], Register):
                return None
            base = made.operands[1]
        return Address(base, found[0].offset)

    def _holds(self, base: object, one: int, other: int) -> bool:
        """Whether the base of both addresses is not written between them."""
        first, last = sorted((self._at(one), self._at(other)))
        between = self._instructions[first:last]
        return not isinstance(base, Register) or all(base.name not in registers_written(instruction) for instruction in between)

    def _accesses(self, number: int) -> Sequence[Access]:
        return tuple(self.code.accesses(self.kernel, self._at(number), self.sites[number].space).values())
