"""Logic and shifts."""

from __future__ import annotations

from collections.abc import Callable

from memlane.emulate.code.build import I32, I64, Value, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES, Immediate


@semantics("logic/and")
def and_(k: Lowering) -> None:
    k.write("d", k.e.and_(k.read("a"), k.read("b")))


@semantics("logic/or")
def or_(k: Lowering) -> None:
    k.write("d", k.e.or_(k.read("a"), k.read("b")))


@semantics("logic/xor")
def xor(k: Lowering) -> None:
    k.write("d", k.e.xor(k.read("a"), k.read("b")))


@semantics("logic/not")
def not_(k: Lowering) -> None:
    k.write("d", k.e.not_(k.read("a")))


@semantics("logic/cnot")
def cnot(k: Lowering) -> None:
    a = k.read("a")
    k.write("d", k.e.zext(k.e.icmp_unsigned("==", a, constant(a.type, 0)), a.type))


@semantics("logic/lop3")
def lop3(k: Lowering) -> None:
    """Compute any function of three bits, as the sum of its minterms or, where shorter, the complement of the sum of the others."""
    e = k.e
    table = k.instruction.operand("lut")
    if not isinstance(table, Immediate):
        raise k.unsupported()
    bits = [k.read(letter) for letter in "abc"]
    chosen = [row for row in range(8) if table.value >> row & 1]
    inverted = len(chosen) > 4
    if inverted:
        chosen = [row for row in range(8) if row not in chosen]
    result: Value = constant(vector(I32), 0)
    for row in chosen:
        terms = [bit if row >> (2 - place) & 1 else e.not_(bit) for place, bit in enumerate(bits)]
        result = e.or_(result, e.and_(e.and_(terms[0], terms[1]), terms[2]))
    result = e.not_(result) if inverted else result
    k.write("d", result)
    if k.slot_of("bool"):
        some = e.mask_of(e.icmp_unsigned("!=", result, constant(vector(I32), 0)))
        k.write_second("d", (e.and_ if k.slot_of("bool") == "and" else e.or_)(some, k.read("q")))


@semantics("logic/shf")
def shf(k: Lowering) -> None:
    """Shift the pair b:a left (and take its high word) or right (its low word)."""
    e, kind = k.e, vector(I32)
    amount = k.read("c")
    if k.slot_of("mode") == "clamp":
        amount = e.intrinsic("umin", [amount, constant(kind, 32)])
    else:
        amount = e.and_(amount, constant(kind, 31))
    wide = vector(I64)
    pair = e.or_(e.shl(e.zext(k.read("b"), wide), constant(wide, 32)), e.zext(k.read("a"), wide))
    distance = e.zext(amount, wide)
    if k.slot_of("direction") == "l":
        k.write("d", e.trunc(e.lshr(e.shl(pair, distance), constant(wide, 32)), kind))
    else:
        k.write("d", e.trunc(e.lshr(pair, distance), kind))


def _shift(k: Lowering, operation: Callable[[Value, Value], Value], signed: bool) -> None:
    """Shift by an amount; the width or more gives zero, or the sign in all bits."""
    e, a, amount = k.e, k.read("a"), k.read("b")
    kind, bits = a.type, a.type.element.width
    immediate = k.instruction.operand("b")
    if isinstance(immediate, Immediate):
        known = immediate.value & 0xFFFFFFFF
        if known < bits:
            return k.write("d", operation(a, constant(kind, known)))
        return k.write("d", operation(a, constant(kind, bits - 1)) if signed else constant(kind, 0))
    inside = e.icmp_unsigned("<", amount, constant(amount.type, bits))
    safe = e.select(inside, amount, constant(amount.type, bits - 1))
    if bits > 32:
        safe = e.zext(safe, kind)
    elif bits < 32:
        safe = e.trunc(safe, kind)
    shifted = operation(a, safe)
    return k.write("d", shifted if signed else e.select(inside, shifted, constant(kind, 0)))


@semantics("logic/shl")
def shl(k: Lowering) -> None:
    _shift(k, k.e.shl, signed=False)


@semantics("logic/shr")
def shr(k: Lowering) -> None:
    signed = SCALAR_TYPES[k.slot_type("a")].kind == "s"
    _shift(k, k.e.ashr if signed else k.e.lshr, signed)
