"""List the registers that an instruction reads, and copy their bits into 32-bit words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memlane.ptx import (
    SCALAR_TYPES,
    Address,
    Arguments,
    Instruction,
    Operand,
    Pair,
    Register,
    Scope,
    TextureAddress,
    Vector,
)

__all__ = ["PREFIX", "Scope", "Words", "components", "read", "words_of"]

PREFIX = "ml"
"""Prefix of the names that probes define."""


def read(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that the instruction reads, without its guard, each once; components (`%v.x`) by their full name."""
    form = instruction.form
    written = {form.operands[letter] for letter in form.writes if letter in form.operands}
    names = (name for place, operand in enumerate(instruction.operands) if place not in written for name in components(operand))
    return tuple(dict.fromkeys(names))


def components(operand: Operand) -> Iterator[str]:
    """Yield the registers in an operand, components of vector registers by their full name."""
    match operand:
        case Register(name):
            yield name
        case Address(base):
            yield from components(base)
        case Vector(items) | TextureAddress(items) | Arguments(items):
            for item in items:
                yield from components(item)
        case Pair(first, second):
            yield from components(first)
            yield from components(second)


@dataclass(frozen=True)
class Words:
    """A register as 32-bit words, and the PTX that defines them."""

    text: str
    names: tuple[str, ...]


def words_of(register: str, kind: str, stem: str) -> Words:
    """Return PTX that copies the bits of `register`, of scalar type `kind`, into 32-bit registers named after `stem`, which it declares.

    Of 128 bits only the lower half is copied: one load writes both halves.
    """
    bits = SCALAR_TYPES[kind].bits
    if kind == "pred":
        return Words(f".reg .b32 {stem};\nselp.u32 {stem}, 1, 0, {register};\n", (stem,))
    if bits == 128:
        inner = words_of(f"{stem}l", "b64", stem)
        return Words(f".reg .b64 {stem}l, {stem}h;\nmov.b128 {{{stem}l, {stem}h}}, {register};\n{inner.text}", inner.names)
    if bits == 64:
        low, high = f"{stem}x", f"{stem}y"
        return Words(f".reg .b32 {low}, {high};\nmov.b64 {{{low}, {high}}}, {register};\n", (low, high))
    if bits == 32:
        return Words(f".reg .b32 {stem};\nmov.b32 {stem}, {register};\n", (stem,))
    if bits == 16:
        return Words(f".reg .b32 {stem};\nmov.b32 {stem}, {{{register}, {register}}};\n", (stem,))
    return Words(f".reg .b32 {stem};\ncvt.u32.u8 {stem}, {register};\n", (stem,))
