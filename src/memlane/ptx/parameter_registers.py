"""Rewrite loads and stores of a parameter that has become registers, as moves between these and the registers of the function.

    st.param.f32 [arg+4], %f1;        mov.b32 %arg_4, %f1;
    ld.param.s8 %r1, [arg+8];    ->   cvt.s32.s8 %r1, %arg_8;
    ld.param.b64 %rd1, [arg];         two parts that others access alone: combined by shifts

A part of one byte lies in the lower half of a 16-bit register, whose upper half is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from memlane.ptx.build import statements
from memlane.ptx.ir import Immediate, Instruction, Operand, Register, RegisterDecl, Sink, Statement, elements, with_instructions
from memlane.ptx.parameters import Unit, parameter_accesses, value_letter
from memlane.ptx.types import SCALAR_TYPES

_WIDEST = 8
"""Bytes of the widest part: 16-byte registers exist, but few instructions use them."""
_VALUE = "%value"
"""Placeholder in text for the stored value, or for the target of a load."""


@dataclass(frozen=True)
class ParameterRegisters:
    """A parameter as registers."""

    name: str
    """Stem of the names of its registers."""
    units: tuple[Unit, ...]

    def declarations(self) -> tuple[RegisterDecl, ...]:
        """Return the declarations of its registers."""
        return tuple(RegisterDecl(f"b{8 * max(2, nbytes)}", self.register(offset)) for offset, nbytes in self.units)

    def register(self, offset: int) -> str:
        """Return the register of the part at `offset`."""
        return f"{self.name}_{offset}"

    def parts(self, offset: int, nbytes: int) -> list[Unit]:
        """Return the parts that an access covers."""
        return [unit for unit in self.units if offset <= unit[0] < offset + nbytes]


def can_use_registers(one: Instruction) -> bool:
    """Return whether a load or store of a parameter can become moves."""
    return all(nbytes <= _WIDEST for _, _, nbytes, _ in parameter_accesses(one))


def access_moves(one: Instruction, registers: ParameterRegisters, type_of: Callable[[str], str]) -> Iterator[Statement]:
    """Yield the instructions that replace a load or store of a parameter; `type_of` returns the scalar type of a register."""
    ((_, offset, nbytes, _),) = parameter_accesses(one)
    letter = value_letter(one)
    value, kind = one.operand(letter), one.form.types[letter]
    for number, item in enumerate(elements(value)):
        at = offset + number * nbytes
        if not isinstance(item, Sink):
            found = (store_moves if one.form.effect == "store" else load_moves)(item, kind, at, registers, type_of)
            yield from _like(one, found)


def store_moves(
    source: Operand, kind: str, offset: int, registers: ParameterRegisters, type_of: Callable[[str], str]
) -> tuple[Statement, ...]:
    """Return the moves that store a value of scalar type `kind` into a parameter."""
    if isinstance(source, Immediate) and source.kind == "int":
        source = Immediate(source.value & ((1 << SCALAR_TYPES[kind].bits) - 1))
    return tuple(_with_value(one, source) for one in statements(_store_text(_width(source, kind, type_of), kind, offset, registers)))


def load_moves(
    target: Operand, kind: str, offset: int, registers: ParameterRegisters, type_of: Callable[[str], str]
) -> tuple[Statement, ...]:
    """Return the moves that load a value of scalar type `kind` from a parameter."""
    return tuple(_with_value(one, target) for one in statements(_load_text(_width(target, kind, type_of), kind, offset, registers)))


def _with_value(one: Statement, value: Operand) -> Statement:
    """Return a statement with `_VALUE` replaced by an operand of the function.

    Names without a `%` are recognised as registers only by their declaration, so they cannot be written into the text directly.
    """

    def put(inner: Instruction) -> Instruction:
        return replace(inner, operands=tuple(value if operand == Register(_VALUE) else operand for operand in inner.operands))

    return with_instructions(one, put)


def _like(like: Instruction, found: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield the statements with the guard and the location of the instruction that they replace."""
    for one in found:
        yield with_instructions(one, lambda inner: replace(inner, guard=like.guard, location=like.location, span=like.span))


def _width(operand: Operand, kind: str, type_of: Callable[[str], str]) -> int:
    """Return the width in bits of a register operand, or of a number."""
    return SCALAR_TYPES[type_of(operand.name)].bits if isinstance(operand, Register) else max(16, SCALAR_TYPES[kind].bits)


def _store_text(wide: int, kind: str, offset: int, registers: ParameterRegisters) -> str:
    """Return the text that stores a register of `wide` bits."""
    nbytes, text = SCALAR_TYPES[kind].nbytes, _VALUE
    parts = registers.parts(offset, nbytes)
    if len(parts) == 1:
        target = max(16, 8 * nbytes)
        if wide == target:
            return f"mov.b{target} {registers.register(offset)}, {text};"
        return f"cvt.u{target}.u{wide} {registers.register(offset)}, {text};"
    stem = f"{registers.name}_t{offset}"
    lines = [f"{{\n.reg .b64 {stem}, {stem}s;\n", f".reg .b{wide} {stem}n;\n", f"mov.b{wide} {stem}n, {text};\n"]
    lines.append(f"mov.b64 {stem}, {stem}n;\n" if wide == 64 else f"cvt.u64.u{wide} {stem}, {stem}n;\n")
    for at, size in parts:
        target = max(16, 8 * size)
        lines.append(f"shr.u64 {stem}s, {stem}, {8 * (at - offset)};\n")
        convert = "mov.b64" if target == 64 else f"cvt.u{target}.u64"
        lines.append(f"{convert} {registers.register(at)}, {stem}s;\n")
    return "".join((*lines, "}"))


def _load_text(wide: int, kind: str, offset: int, registers: ParameterRegisters) -> str:
    """Return the text that loads a register of `wide` bits."""
    nbytes, text = SCALAR_TYPES[kind].nbytes, _VALUE
    parts = registers.parts(offset, nbytes)
    sign = "s" if kind.startswith("s") else "u"
    if len(parts) == 1:
        return _extend_text(text, wide, registers.register(offset), sign, 8 * nbytes, max(16, 8 * nbytes))
    stem = f"{registers.name}_t{offset}"
    lines = [f"{{\n.reg .b64 {stem}, {stem}s;\n", f"mov.b64 {stem}, 0;\n"]
    for at, size in parts:
        lines.append(f"cvt.u64.u{8 * size} {stem}s, {registers.register(at)};\n")
        lines.append(f"shl.b64 {stem}s, {stem}s, {8 * (at - offset)};\nor.b64 {stem}, {stem}, {stem}s;\n")
    return "".join((*lines, _narrow_text(text, wide, stem, sign, 8 * nbytes), "\n}"))


def _narrow_text(target: str, wide: int, source: str, sign: str, bits: int) -> str:
    """Return the text that moves the lower `bits` of a 64-bit register."""
    if wide == bits and wide < 64:
        return f".reg .b{wide} {source}n;\ncvt.u{wide}.u64 {source}n, {source};\nmov.b{wide} {target}, {source}n;\n"
    return _extend_text(target, wide, source, sign, bits, 64)


def _extend_text(target: str, wide: int, source: str, sign: str, bits: int, source_bits: int) -> str:
    """Return the text that extends the lower `bits` of a register of `source_bits` to `wide` bits."""
    if wide == bits == source_bits:
        return f"mov.b{wide} {target}, {source};"
    return f"cvt.{sign}{wide}.{sign}{bits} {target}, {source};"
