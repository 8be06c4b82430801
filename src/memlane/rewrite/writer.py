"""Rewrite a function with new addresses for its accesses to one array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from memlane.layout.program import Program
from memlane.ptx import (
    Address,
    Block,
    ControlFlow,
    Function,
    Guard,
    Instruction,
    Label,
    Register,
    RegisterDecl,
    Statement,
    flatten_scopes,
    registers_written,
)
from memlane.ptx.edit import alias, free_prefix, placed
from memlane.rewrite.arrays import SharedArray
from memlane.rewrite.emit import LookUp, emit
from memlane.rewrite.placement import Placement
from memlane.rewrite.provenance import ArrayAccess
from memlane.rewrite.terms import Sums, Terms
from memlane.rewrite.values import Pointer, wrapped

PREFIX = "at"
"""Prefix of the names of registers that hold new addresses."""


def constant_offset(access: ArrayAccess, instruction: Instruction) -> int | None:
    """Return the byte offset in the array; None if it is unknown at compile time."""
    address = instruction.operands[access.operand]
    assert isinstance(address, Address)
    if access.pointer.offset is None:
        return None
    offset = access.pointer.offset + address.offset
    return offset if access.pointer.generic else wrapped(offset)


@dataclass(frozen=True)
class RewrittenFunction:
    """Rewritten function, with the number of accesses at constant and at reused addresses."""

    function: Function
    folded: int
    shared: int


@dataclass
class _Mapped:
    """Computed address that is still in its register."""

    offset: int
    """The constant offset in the brackets."""
    nbytes: int
    name: str
    """The register with the new address."""


@dataclass
class Writer:
    """Rewrites one function."""

    original: Function
    accesses: Sequence[ArrayAccess]
    array: SharedArray
    placement: Placement
    tables: Mapping[tuple[int, ...], LookUp]
    folded: int = 0
    shared: int = 0
    _declared: dict[str, int] = field(default_factory=dict)
    _programs: dict[int, Program] = field(default_factory=dict)
    _distances: dict[tuple[int, int, int, int], int | None] = field(default_factory=dict)
    _known: dict[tuple[str, Guard | None], list[_Mapped]] = field(default_factory=dict)

    def rewrite(self) -> RewrittenFunction:
        function = self.original
        assert function.body is not None
        self._prefix = free_prefix(function, PREFIX)
        flat = flatten_scopes(function)
        assert flat.body is not None
        # Flattened names are unique, so registers of different inner blocks are not confused.
        self._flat = list(flat.body.instructions())
        self._sums = Sums(function, ControlFlow(flat), self.array.names)
        self._depth = 0
        self._of: dict[int, list[ArrayAccess]] = {}
        for one in self.accesses:
            self._of.setdefault(one.index, []).append(one)
        self._next = count()
        body = self._block(function.body)
        declared = tuple(RegisterDecl(kind, f"%{self._prefix}{kind}_", used) for kind, used in sorted(self._declared.items()))
        return RewrittenFunction(replace(function, body=Block((*declared, *body.statements))), self.folded, self.shared)

    def _block(self, old: Block) -> Block:
        new: list[Statement] = []
        for one in old.statements:
            if isinstance(one, Block):
                self._depth += 1
                one = self._block(one)
                self._depth -= 1
            elif isinstance(one, Label):
                self._known.clear()
            if isinstance(one, Instruction):
                new += self._instruction(one)
            else:
                new.append(one)
        return Block(tuple(new))

    def _instruction(self, one: Instruction) -> Iterator[Statement]:
        """Yield an instruction with new addresses, after the PTX that computes them."""
        index = next(self._next)
        changed = one
        for access in self._of.get(index, ()):
            before, address = self._address(one, self._flat[index], access)
            yield from before
            operands = list(changed.operands)
            operands[access.operand] = address
            changed = replace(changed, operands=tuple(operands))
        yield changed
        written = set(registers_written(self._flat[index]))
        if written:
            kept = {
                key: known for key, known in self._known.items() if key[0] not in written and not (key[1] and key[1].register in written)
            }
            self._known = kept

    def _address(self, one: Instruction, flat: Instruction, access: ArrayAccess) -> tuple[Sequence[Statement], Address]:
        """Return the PTX to insert before an access, and its new address."""
        address, pointer = one.operands[access.operand], access.pointer
        assert isinstance(address, Address)
        constant = constant_offset(access, one)
        if constant is not None:
            self.folded += 1
            return (), replace(address, offset=address.offset + self._moved(constant) - constant)
        assert isinstance(address.base, Register)
        offset = address.offset if pointer.generic else wrapped(address.offset)
        flat_address = flat.operands[access.operand]
        assert isinstance(flat_address, Address)
        assert isinstance(flat_address.base, Register)
        register, guard = flat_address.base.name, flat.guard
        for key in dict.fromkeys(((register, guard), (register, None))):
            for known in self._known.get(key, ()):
                apart = self._distance(known, offset, access)
                if apart is not None:
                    self.shared += 1
                    return (), Address(Register(known.name), apart)
        # In an inner block, local registers may shadow the operands of the address.
        terms = None if self._depth or pointer.generic else self._sums.of(register, flat)
        text, name = self._computed(alias(address.base.name), offset, pointer, access.nbytes, one.guard, terms)
        self._known.setdefault((register, guard), []).append(_Mapped(offset, access.nbytes, name))
        return placed(text, one.location), Address(Register(name), 0)

    def _moved(self, constant: int) -> int:
        """Return the new place of a constant offset; offsets outside the array stay."""
        inside = constant - self.array.first
        return self.placement.of(inside) + self.array.first if 0 <= inside < self.array.nbytes else constant

    def _distance(self, known: _Mapped, offset: int, access: ArrayAccess) -> int | None:
        """Return the distance of a new address from a known one; None if it varies."""
        if known.offset == offset and known.nbytes == access.nbytes:
            return 0
        if self.array.is_dynamic or known.nbytes % self.placement.element or access.nbytes % self.placement.element:
            return None  # one of the two may lie outside, or somewhere in an element
        key = offset - known.offset, min(known.nbytes, access.nbytes), known.offset, access.pointer.multiple
        if key not in self._distances:
            self._distances[key] = self.placement.distance(*key)
        return self._distances[key]

    def _fresh(self, kind: str) -> str:
        """Return an unused register of a type."""
        number = self._declared.get(kind, 0)
        self._declared[kind] = number + 1
        return f"%{self._prefix}{kind}_{number}"

    def _computed(
        self, source: str, offset: int, pointer: Pointer, nbytes: int, guard: Guard | None, terms: Terms | None
    ) -> tuple[str, str]:
        """Return PTX that computes the new address of [source + offset], and its register."""
        base = self._fresh("b32")
        begin = f"+{self.array.first}" if self.array.first else ""
        lines = [f"mov.u32 {base}, {self.array.names[0]}{begin};"]
        under = f"@{'!' if guard.negated else ''}{alias(guard.register)} " if guard else ""
        elements = None
        if terms is not None:
            elements = replace(terms, constant=terms.constant + offset - self.array.first).divided(self.placement.element)
        if elements is not None:
            number = self._sum(elements, lines)
            if not elements.exact and self.placement.element > 1:
                whole = self._fresh("b32")
                lines.append(f"and.b32 {whole}, {number}, {(1 << 32) // self.placement.element - 1};")
                number = whole
            plain, found = "", self._mapped(number, 0, under, lines)
        else:
            if terms is not None:
                terms = replace(terms, constant=terms.constant - self.array.first)
            plain = inside = self._offset(source, pointer, base, lines) if terms is None else self._sum(terms, lines)
            if offset:
                inside = self._fresh("b32")
                lines.append(f"add.s32 {inside}, {plain}, {offset};")
            found = self._mapped(inside, nbytes, under, lines)
        if pointer.generic:
            apart, wide, new = self._fresh("b32"), self._fresh("b64"), self._fresh("b64")
            lines += [f"sub.s32 {apart}, {found}, {plain};", f"cvt.s64.s32 {wide}, {apart};", f"add.s64 {new}, {source}, {wide};"]
        else:
            new = self._fresh("b32")
            lines.append(f"add.s32 {new}, {base}, {found};")
        return "\n".join(filter(None, lines)), new

    def _mapped(self, inside: str, nbytes: int, under: str, lines: list[str]) -> str:
        """Append PTX that maps the byte offset in `inside`, or for `nbytes` 0 the element index; return the register or number with the new
        offset."""
        if not self.array.is_dynamic:
            text, found = emit(self._program(nbytes), inside, self._fresh, self.tables, under)
            lines.append(text)
            return found
        unit, test, chosen = 1 if nbytes else self.placement.element, self._fresh("pred"), self._fresh("b32")
        lines.append(f"setp.lt.u32 {test}, {inside}, {self.array.nbytes // unit};")
        text, found = emit(self._program(nbytes), inside, self._fresh, self.tables, f"@{test} ")
        lines.append(text)
        if unit > 1:
            outside = self._fresh("b32")
            lines.append(f"mul.lo.s32 {outside}, {inside}, {unit};")
            inside = outside
        lines.append(f"selp.b32 {chosen}, {found}, {inside}, {test};")
        return chosen

    def _program(self, nbytes: int) -> Program:
        """Return the map for accesses of `nbytes` bytes, or of element indices for 0."""
        if nbytes not in self._programs:
            self._programs[nbytes] = self.placement.program(nbytes) if nbytes else self.placement.program_of_elements()
        return self._programs[nbytes]

    def _offset(self, source: str, pointer: Pointer, base: str, lines: list[str]) -> str:
        """Append PTX that subtracts `base` from the address in the source register; return the register with the difference."""
        if pointer.generic:
            generic, source = source, self._fresh("b64")
            lines.append(f"cvta.to.shared.u64 {source}, {generic};")
        if pointer.bits == 64:
            narrow = self._fresh("b32")
            lines.append(f"cvt.u32.u64 {narrow}, {source};")
            source = narrow
        found = self._fresh("b32")
        lines.append(f"sub.s32 {found}, {source}, {base};")
        return found

    def _sum(self, terms: Terms, lines: list[str]) -> str:
        """Append PTX that computes a sum of registers; return its register or number."""
        total = ""
        for term in terms.registers:
            part = alias(term.register)
            if term.bits == 64:
                narrow = self._fresh("b32")
                lines.append(f"cvt.u32.u64 {narrow}, {part};")
                part = narrow
            if term.factor != 1:
                product = self._fresh("b32")
                lines.append(f"mul.lo.s32 {product}, {part}, {term.factor};")
                part = product
            if total:
                joined = self._fresh("b32")
                lines.append(f"add.s32 {joined}, {total}, {part};")
                part = joined
            total = part
        if not total:
            return str(terms.constant)
        if terms.constant:
            joined = self._fresh("b32")
            lines.append(f"add.s32 {joined}, {total}, {terms.constant};")
            total = joined
        return total
