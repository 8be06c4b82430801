"""Check the types of operands: the names that are visible at a place, and whether an operand fits the type that an instruction needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from memlane.number_format import plural
from memlane.ptx.ir import Immediate, Instruction, Operand, Register, RegisterDecl, Special, Vector
from memlane.ptx.operands import register_number
from memlane.ptx.printer import operand_text
from memlane.ptx.special_registers import SPECIAL_REGISTERS
from memlane.ptx.types import SCALAR_TYPES

Complaint = tuple[str, str]
"""The error text, and the part of the instruction to point at."""

_ARCHITECTURE = re.compile(r"sm_(\d+)")


@dataclass
class NameScope:
    """The names visible at a place: registers with type and vector length, symbols with their kind."""

    outer: NameScope | None = None
    registers: dict[str, tuple[str, int]] = field(default_factory=dict)
    ranges: list[RegisterDecl] = field(default_factory=list)
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Registers of ranges that were looked up, with type and vector length."""
    symbols: dict[str, str] = field(default_factory=dict)
    target: str = ""
    """Architecture, such as `sm_90a`; set in the outermost scope only."""

    def has_wide_accesses(self) -> bool:
        """Return whether the target has loads and stores of 256 bits."""
        if self.outer is not None:
            return self.outer.has_wide_accesses()
        number = _ARCHITECTURE.match(self.target)
        return number is not None and int(number[1]) >= 100

    def register(self, name: str) -> tuple[str, int] | None:
        """Return type and vector length of a register; for a component of a vector register, those of the component."""
        found = self.registers.get(name) or self.members.get(name)
        if found is not None:  # the usual case: no component, declared in this block or found before
            return found
        base, dot, _ = name.partition(".")
        scope: NameScope | None = self
        while scope is not None:
            found = scope.registers.get(base)
            if found is None:
                matches = (entry for entry in scope.ranges if register_number(base, entry.name, entry.count) is not None)
                found = next(((entry.type, entry.vector) for entry in matches), None)
                if found is not None:
                    scope.members[base] = found
            if found is not None:
                return (found[0], 1) if dot else found
            scope = scope.outer
        return None

    def symbol(self, name: str) -> str | None:
        """Return `variable`, `label`, `function` or `table`; None if there is no such symbol."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.symbols:
                return scope.symbols[name]
            scope = scope.outer
        return None

    def declares(self, name: str) -> bool:
        return name in self.registers or name in self.symbols

    def declares_range(self, name: str) -> bool:
        """Return whether there is a range of this name, which is not a name itself: `%r` beside `%r<4>` is another register."""
        return any(entry.name == name for entry in self.ranges)


def operand_fits(scope: NameScope, operand: Operand, wanted: str, wider: bool, instruction: Instruction) -> Iterator[Complaint]:
    """Yield why an operand cannot stand where the type `wanted` is needed; with `wider`, wider registers may stand there too."""
    if isinstance(operand, Vector):
        if instruction.opcode == "mov" and instruction.slot("vec") is None:
            yield from _check_packing(scope, operand, wanted, instruction)
        elif (
            len(operand.items) > 1
            and instruction.slot("vec") is None
            and instruction.form.effect in ("", "load", "store", "atomic", "reduction")
        ):
            yield f"`{instruction.name}` needs one value there, not `{operand_text(operand)}`", ""
        else:
            for item in operand.items:
                yield from operand_fits(scope, item, wanted, wider, instruction)
    elif isinstance(operand, Register):
        declared = scope.register(operand.name)
        if operand.negated and declared is not None and declared[0] != "pred" and instruction.opcode != "vmad":
            yield f"`!` negates a predicate, but `{operand.name}` is declared as `.{declared[0]}`", operand.name
        if declared is not None and declared[1] > 1 and instruction.slot("vec") is None and instruction.opcode == "mov":
            bits = SCALAR_TYPES[declared[0]].bits * declared[1]
            if bits != SCALAR_TYPES[wanted].bits:
                yield (
                    f"`{operand.name}` has {plural(bits, 'bit')}, but `{instruction.name}` needs {SCALAR_TYPES[wanted].bits}",
                    operand.name,
                )
        elif declared is not None and not _accepts(declared[0], wanted, wider):
            yield (
                f"`{operand.name}` is declared as `.{declared[0]}`, but `{instruction.name}` needs `.{wanted}` there",
                operand.name,
            )
    elif isinstance(operand, Immediate):
        needed = SCALAR_TYPES[wanted]
        if operand.kind != "int" and needed.kind in "us":
            yield f"`{instruction.name}` needs an integer there, not `{operand_text(operand)}`", operand_text(operand)
        elif operand.kind != "int" and needed.kind == "b" and operand.kind != f"f{needed.bits}":
            yield (
                f"`{operand_text(operand)}` has {operand.kind[1:]} bits, but `{instruction.name}` needs {needed.bits}",
                operand_text(operand),
            )
        elif operand.kind == "int" and wanted in ("f32", "f64"):
            yield f"`{instruction.name}` needs a floating-point literal there, not `{operand_text(operand)}`", operand_text(operand)
    elif isinstance(operand, Special):
        found, needed = SCALAR_TYPES[SPECIAL_REGISTERS[operand.name]], SCALAR_TYPES[wanted]
        # Old manuals declared thread indices as 16 bits wide, and ptxas still accepts reading them so.
        narrowed = (needed.bits == 16 and found.bits == 32) or (operand.name == "%gridid" and needed.bits == 32)
        is_constant = operand.name == "WARP_SZ" and needed.kind in "usb"
        if found.bits != needed.bits and not narrowed and not is_constant and not (wider and found.bits > needed.bits):
            yield f"`{operand.name}` is `.{found.name}`, but `{instruction.name}` needs `.{wanted}` there", operand.name


def _check_packing(scope: NameScope, operand: Vector, wanted: str, instruction: Instruction) -> Iterator[Complaint]:
    """Check `mov.b64 %rd1, {%r1, %r2}`: the items together are as wide as the type. A `_` may stand for any of them."""
    widths = []
    if len(operand.items) == 1:
        yield f"`{instruction.name}` packs 2 or 4 registers, not `{operand_text(operand)}`", ""
        return
    for item in operand.items:
        declared = scope.register(item.name) if isinstance(item, Register) else None
        if declared is None:
            return
        widths.append(SCALAR_TYPES[declared[0]].bits)
    if sum(widths) != SCALAR_TYPES[wanted].bits:
        yield f"`{operand_text(operand)}` has {plural(sum(widths), 'bit')}, but `{instruction.name}` needs {SCALAR_TYPES[wanted].bits}", ""


def _accepts(declared: str, wanted: str, wider: bool) -> bool:
    """Return whether a register of the type `declared` may stand where `wanted` is needed."""
    register, needed = SCALAR_TYPES[declared], SCALAR_TYPES[wanted]
    if "pred" in (declared, wanted):
        return declared == wanted
    if register.bits != needed.bits:
        return wider and register.bits > needed.bits and (register.kind != "f" or needed.kind == "b")
    return "f" not in (register.kind, needed.kind) or "b" in (register.kind, needed.kind) or register.kind == needed.kind
