"""Addresses of which the assembler makes a part late, where no instruction of the PTX says so; and how the first clock read waits for them.

    ld.shared.f32 [sums]                 where the shared memory of the block begins is asked (S2UR SR_CgaCtaId)
    ld.shared::cluster.f32 [%r1]         so is where the window of such addresses lies (S2R SR_SWINHI); the access is then a generic one
    ld.global.f32 [%rd1]                 a parameter is loaded (LDC) in front of each use again, where that saves a register

Left alone the assembler may do so behind the first clock read, and the access is charged with the time. Of the first two the address is
made in front of the window too, for the clock read to wait for: the assembler makes it once for both. A parameter it would load again, so
that access has the parameter with a zero in it which the assembler does not know: one `LOP3` more, in front of the window. So has an atomic
whose operand is a parameter (`atomicMax(&best, n)`). The access itself is the same instruction as ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.ptx import (
    Address,
    Function,
    Immediate,
    Instruction,
    Register,
    Scope,
    Symbol,
    flatten_scopes,
    memory_accesses,
    registers_written,
)
from memlane.ptx.edit import alias

_OLDEST_WITH_CLUSTERS = 90
_HANDED_ON = frozenset({"mov", "cvta", "add", "sub"})
"""What the assembler folds into an address that it loads again, with no register but that of the parameter."""

_TIED = {f"{kind}{bits}": bits for kind in "busf" for bits in (32, 64)}
"""Types of registers, with their bits, that can be tied to the zero."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """An access whose address is there before its window."""

    instruction: Instruction
    """The access, by an address that is not made again."""
    text: str = ""
    """PTX in front of the first clock read."""
    sources: tuple[tuple[str, str], ...] = ()
    """Registers that this makes and that the clock read has to wait for, with their types."""
    instead: tuple[str, ...] = ()
    """Registers of the kernel that it need not wait for any more."""


class Addresses:
    """The addresses of one kernel."""

    def __init__(self, kernel: Function, architecture: int, prefix: str, zero: str) -> None:
        """`zero`: the register that is 0, which the assembler does not know; empty if there is none, and then nothing is done."""
        self._clusters = architecture >= _OLDEST_WITH_CLUSTERS
        self._register, self._operand, self._zero = f"%{prefix}address", f"%{prefix}operand", zero
        self._flat = tuple(flatten_scopes(kernel).instructions())
        """The same instructions, with registers whose names are different in each scope."""
        self._writers: Mapping[str, list[Instruction]] = defaultdict(list)
        for one in self._flat:
            if one.opcode == "cvta" and one.guard is None and one.operands[0] == one.operands[1]:
                continue  # What it holds is the same as before.
            for name in registers_written(one):
                self._writers[name].append(one)

    def of(self, index: int, instruction: Instruction, scope: Scope) -> Addressed:
        """Of an access with one address, by its index in the kernel; others are as they were."""
        if not self._zero:
            return Addressed(instruction)
        addressed = self._addressed(index, instruction, scope)
        return self._with_operands(index, addressed, scope) if instruction.form.effect == "atomic" else addressed

    def _with_operands(self, index: int, addressed: Addressed, scope: Scope) -> Addressed:
        """An atomic whose operands are there too."""
        (access,), (flat,) = memory_accesses(addressed.instruction), memory_accesses(self._flat[index])
        for number, (operand, same) in enumerate(zip(access.values, flat.values, strict=True)):
            if not isinstance(operand, Register) or not self._is_parameter(same) or scope.type_of(operand.name) not in _TIED:
                continue
            new, kind = f"{self._operand}{number}", scope.type_of(operand.name)
            operands = tuple(Register(new) if one is operand else one for one in addressed.instruction.operands)
            addressed = Addressed(
                replace(addressed.instruction, operands=operands),
                addressed.text + _tie(new, operand.name, kind, self._zero),
                (*addressed.sources, (new, f"b{_TIED[kind]}")),
                (*addressed.instead, operand.name),
            )
        return addressed

    def _addressed(self, index: int, instruction: Instruction, scope: Scope) -> Addressed:
        found, new = memory_accesses(instruction), self._register
        address = found[0].address if len(found) == 1 else None
        if not isinstance(address, Address) or address not in instruction.operands:
            return Addressed(instruction)
        space, base = found[0].space, address.base
        if space in ("shared", "shared::cluster") and isinstance(base, Symbol) and self._clusters:
            offset = f"+{base.offset}" if base.offset else ""
            return Addressed(instruction, f".reg .b32 {new};\nmov.u32 {new}, {base.name}{offset};\n", ((new, "b32"),))
        if space == "shared::cluster" and isinstance(base, Register):
            wide = scope.type_of(base.name).endswith("64")
            widened = f"{'mov.b64' if wide else 'cvt.u64.u32'} {new}, {alias(base.name)};\n"
            text = f".reg .b64 {new};\n{widened}cvta.shared::cluster.u64 {new}, {new};\n"
            return Addressed(instruction, text, ((new, "b64"),), (base.name,))
        flat = memory_accesses(self._flat[index])[0].address
        if space in ("global", "generic") and isinstance(base, Register) and isinstance(flat, Address) and self._is_parameter(flat.base):
            return self._tied(instruction, address, base)
        return Addressed(instruction)

    def _tied(self, instruction: Instruction, address: Address, base: Register) -> Addressed:
        new = self._register
        operands = tuple(replace(address, base=Register(new)) if one is address else one for one in instruction.operands)
        return Addressed(replace(instruction, operands=operands), _tie(new, base.name, "b64", self._zero), ((new, "b64"),), (base.name,))

    def _is_parameter(self, operand: object) -> bool:
        """Whether an operand is a register of the flattened kernel that holds a parameter, or what lies at a fixed distance from one."""
        if not isinstance(operand, Register):
            return False
        name, seen = operand.name, set[str]()
        while name not in seen:
            seen.add(name)
            if len(self._writers[name]) != 1:
                return False
            (one,) = self._writers[name]
            if one.opcode == "ld" and one.has("param"):
                return one.guard is None
            sources = [operand for operand in one.operands[1:] if not isinstance(operand, Immediate)]
            if one.opcode not in _HANDED_ON or one.guard is not None or len(sources) != 1 or not isinstance(sources[0], Register):
                return False
            name = sources[0].name
        return False


def _tie(new: str, register: str, kind: str, zero: str) -> str:
    """PTX that makes of a register of the kernel a `new` one, which holds the same and needs the zero."""
    if _TIED[kind] == 32:
        return f".reg .b32 {new};\nmov.b32 {new}, {alias(register)};\nor.b32 {new}, {new}, {zero};\n"
    low, high = f"{new}_low", f"{new}_high"
    return f"""\
.reg .b64 {new};
.reg .b32 {low}, {high};
mov.b64 {{{low}, {high}}}, {alias(register)};
or.b32 {low}, {low}, {zero};
mov.b64 {new}, {{{low}, {high}}};
"""


def architecture_of(target: Sequence[str]) -> int:
    """The number of the architecture that a module is for: 90 of `sm_90a`."""
    return int("".join(filter(str.isdecimal, target[0])) or 0)
