"""Compute the addresses that ptxas would otherwise materialise late, inside the timed window, so that the first clock read waits for them.

    ld.shared.f32 [sums]                 reads the base of the block's shared memory (S2UR SR_CgaCtaId)
    ld.shared::cluster.f32 [%r1]         reads the base of the shared window (S2R SR_SWINHI); the access becomes a generic one
    ld.global.f32 [%rd1]                 reloads a parameter (LDC) before each use where that saves a register

No instruction of the PTX shows these reads. ptxas may place them after the first clock read, and the access is then charged for them. For
the first two kinds the address is also computed before the window and the clock read waits for it; ptxas merges both computations into one.
ptxas would reload a parameter, so such an access uses the parameter or-ed with a zero that ptxas cannot prove to be zero: one extra `LOP3`
before the window. An atomic whose operand is a parameter (`atomicMax(&best, n)`) is treated likewise. The access itself stays the same
instruction.
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
"""Opcodes that ptxas folds into an address that it recomputes, if their only register operand is the parameter."""

_TIED = {f"{kind}{bits}": bits for kind in "busf" for bits in (32, 64)}
"""Register types that can be or-ed with the opaque zero, with their width in bits."""


@dataclass(frozen=True, slots=True)
class EarlyAddress:
    """An access whose address is computed before its window."""

    instruction: Instruction
    """The access, with an address that ptxas does not recompute."""
    text: str = ""
    """PTX to place before the first clock read."""
    sources: tuple[tuple[str, str], ...] = ()
    """Registers that `text` defines and the clock read has to wait for, with their types."""
    instead: tuple[str, ...] = ()
    """Registers of the kernel that the clock read no longer has to wait for."""


class EarlyAddresses:
    """Early address computation for the accesses of one kernel."""

    def __init__(self, kernel: Function, architecture: int, prefix: str, zero: str) -> None:
        """Collect the writers of each register. `zero`: the register that holds the opaque zero; empty if there is none, and then `of`
        changes nothing."""
        self._clusters = architecture >= _OLDEST_WITH_CLUSTERS
        self._register, self._operand, self._zero = f"%{prefix}address", f"%{prefix}operand", zero
        self._flat = tuple(flatten_scopes(kernel).instructions())
        """The kernel's instructions with scopes flattened, so that each register has one name in the whole function."""
        self._writers: Mapping[str, list[Instruction]] = defaultdict(list)
        for one in self._flat:
            if one.opcode == "cvta" and one.guard is None and one.operands[0] == one.operands[1]:
                continue  # The register keeps its value.
            for name in registers_written(one):
                self._writers[name].append(one)

    def access_with_early_address(self, index: int, instruction: Instruction, scope: Scope) -> EarlyAddress:
        """Return the access at `index` of the kernel with its address computed early; any instruction without exactly one address is
        unchanged."""
        if not self._zero:
            return EarlyAddress(instruction)
        early = self._with_early_address(index, instruction, scope)
        return self._with_operands(index, early, scope) if instruction.form.effect == "atomic" else early

    def _with_operands(self, index: int, early: EarlyAddress, scope: Scope) -> EarlyAddress:
        """Return an atomic whose parameter operands are also computed before the window."""
        (access,), (flat,) = memory_accesses(early.instruction), memory_accesses(self._flat[index])
        for number, (operand, same) in enumerate(zip(access.values, flat.values, strict=True)):
            if not isinstance(operand, Register) or not self._is_parameter(same) or scope.type_of(operand.name) not in _TIED:
                continue
            new, kind = f"{self._operand}{number}", scope.type_of(operand.name)
            operands = tuple(Register(new) if one is operand else one for one in early.instruction.operands)
            early = EarlyAddress(
                replace(early.instruction, operands=operands),
                early.text + _tie(new, operand.name, kind, self._zero),
                (*early.sources, (new, f"b{_TIED[kind]}")),
                (*early.instead, operand.name),
            )
        return early

    def _with_early_address(self, index: int, instruction: Instruction, scope: Scope) -> EarlyAddress:
        """Return the access with an early address if ptxas could compute part of it late, else unchanged."""
        found, new = memory_accesses(instruction), self._register
        address = found[0].address if len(found) == 1 else None
        if not isinstance(address, Address) or address not in instruction.operands:
            return EarlyAddress(instruction)
        space, base = found[0].space, address.base
        if space in ("shared", "shared::cluster") and isinstance(base, Symbol) and self._clusters:
            offset = f"+{base.offset}" if base.offset else ""
            return EarlyAddress(instruction, f".reg .b32 {new};\nmov.u32 {new}, {base.name}{offset};\n", ((new, "b32"),))
        if space == "shared::cluster" and isinstance(base, Register):
            wide = scope.type_of(base.name).endswith("64")
            widened = f"{'mov.b64' if wide else 'cvt.u64.u32'} {new}, {alias(base.name)};\n"
            text = f".reg .b64 {new};\n{widened}cvta.shared::cluster.u64 {new}, {new};\n"
            return EarlyAddress(instruction, text, ((new, "b64"),), (base.name,))
        flat = memory_accesses(self._flat[index])[0].address
        if space in ("global", "generic") and isinstance(base, Register) and isinstance(flat, Address) and self._is_parameter(flat.base):
            return self._with_tied_base(instruction, address, base)
        return EarlyAddress(instruction)

    def _with_tied_base(self, instruction: Instruction, address: Address, base: Register) -> EarlyAddress:
        """Return the access with its base register replaced by one that is or-ed with the opaque zero."""
        new = self._register
        operands = tuple(replace(address, base=Register(new)) if one is address else one for one in instruction.operands)
        return EarlyAddress(replace(instruction, operands=operands), _tie(new, base.name, "b64", self._zero), ((new, "b64"),), (base.name,))

    def _is_parameter(self, operand: object) -> bool:
        """Return whether an operand is a register of the flattened kernel that holds a parameter, possibly plus or minus a constant."""
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
    """Return PTX that copies a register of the kernel into `new` and ors it with the opaque zero."""
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
    """Return the number of the architecture that a module is compiled for: 90 for `sm_90a`."""
    return int("".join(filter(str.isdecimal, target[0])) or 0)
