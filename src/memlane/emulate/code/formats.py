"""Floating-point formats that the processor does not compute in: f16, bf16, tf32 and the eight-bit ones.

Values are computed as f32 or f64 and rounded to the format in integer arithmetic, in all directions. A result that is rounded twice is
first rounded "to odd": an inexact result gets an odd last bit, from which every shorter format rounds as from the exact value.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ir

from memlane.emulate.code.build import F32, F64, I16, I32, I64, Emit, Value, constant, real


@dataclass(frozen=True)
class Format:
    """A binary format: its bits are sign, exponent, mantissa, from the top."""

    exponent: int
    mantissa: int
    nan: int
    """Bits of the canonical NaN, which instructions return."""
    largest: int
    """Bits of the largest finite number."""
    infinity: int | None = None
    shift: int = 0
    """Shift of the format within its container, in bits."""

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1


FORMATS = {
    "f16": Format(5, 10, 0x7FFF, 0x7BFF, 0x7C00),
    "bf16": Format(8, 7, 0x7FFF, 0x7F7F, 0x7F80),
    "tf32": Format(8, 10, 0x3FFFF, 0x3FBFF, 0x3FC00, shift=13),
    "f32": Format(8, 23, 0x7FFFFFFF, 0x7F7FFFFF, 0x7F800000),
    "e4m3": Format(4, 3, 0x7F, 0x7E),
    "e5m2": Format(5, 2, 0x7F, 0x7B, 0x7C),
}


def like(kind: ir.Type, element: ir.Type) -> ir.VectorType:
    """Return the vector type with as many lanes of another element."""
    return ir.VectorType(element, kind.count)


def _rounds_up(e: Emit, direction: str, whole: Value, rest: Value, half: Value, negative: Value) -> Value:
    """Return whether rounding makes the magnitude one step larger than `whole`, given the discarded part `rest` of twice `half`; all are
    i64 lanes."""
    zero, one = constant(rest.type, 0), constant(rest.type, 1)
    inexact = e.icmp_unsigned("!=", rest, zero)
    match direction:
        case "rn":
            more, tie = e.icmp_unsigned(">", rest, half), e.icmp_unsigned("==", rest, half)
            return e.or_(more, e.and_(tie, e.icmp_unsigned("==", e.and_(whole, one), one)))  # ties go to even
        case "rna":
            return e.icmp_unsigned(">=", rest, half)
        case "rz":
            return e.icmp_unsigned("!=", zero, zero)
        case "rm":
            return e.and_(inexact, negative)
    assert direction == "rp", direction
    return e.and_(inexact, e.not_(negative))


def _overflowed(e: Emit, form: Format, direction: str, negative: Value, finite: bool) -> Value:
    """Return the rounded value of numbers beyond the largest of the format: infinity, or the largest if there is none or rounding goes
    inward."""
    wide = like(negative.type, I64)
    largest = constant(wide, form.largest)
    if finite or form.infinity is None or direction == "rz":
        return largest
    infinity = constant(wide, form.infinity)
    if direction in ("rn", "rna"):
        return infinity
    return e.select(negative if direction == "rm" else e.not_(negative), infinity, largest)


def narrow(
    e: Emit, value: Value, name: str, direction: str = "rn", *, finite: bool = False, relu: bool = False, payload: bool = False
) -> Value:
    """Round f32 or f64 lanes to a format; return its bits in i32 lanes. `direction` is rn, rna, rz, rm or rp.

    `finite`: numbers that are too large become the largest number. `relu`: negative numbers become 0. `payload`: a NaN keeps its sign and
    the upper bits of its fraction, and is quiet, instead of becoming canonical.
    """
    if name in ("f16", "bf16") and value.type.element == F32 and direction == "rn" and not (finite or payload):
        return _narrow_to_nearest(e, value, FORMATS[name], relu)
    form = FORMATS[name]
    wide, result_kind = like(value.type, I64), like(value.type, I32)
    if value.type.element != F64:
        value = e.fpext(value, like(value.type, F64))

    def number(bits: int) -> Value:
        return constant(wide, bits)

    bits = e.bitcast(value, wide)
    negative = e.icmp_signed("<", bits, number(0))
    size = e.and_(bits, number((1 << 63) - 1))
    field, fraction = e.lshr(size, number(52)), e.and_(size, number((1 << 52) - 1))
    significand = e.select(e.icmp_unsigned("==", field, number(0)), fraction, e.or_(fraction, number(1 << 52)))
    # Exponents as the target counts them; numbers below its first exponent lose bits instead.
    exponent = e.add(field, number(form.bias - 1023))
    lost = e.intrinsic("smax", [e.sub(number(1), exponent), number(0)])
    base = e.sub(e.intrinsic("smax", [exponent, number(1)]), number(1))
    shift = e.intrinsic("umin", [e.add(lost, number(52 - form.mantissa)), number(60)])
    whole = e.lshr(significand, shift)
    rest = e.and_(significand, e.sub(e.shl(number(1), shift), number(1)))
    half = e.shl(number(1), e.sub(shift, number(1)))
    up = _rounds_up(e, direction, whole, rest, half, negative)
    found = e.add(e.add(e.shl(base, number(form.mantissa)), whole), e.zext(up, wide))
    beyond = _overflowed(e, form, direction, negative, finite)
    found = e.select(e.icmp_unsigned(">", found, number(form.largest)), beyond, found)
    infinite = e.icmp_unsigned("==", size, number(0x7FF << 52))
    if form.infinity is not None and not finite:
        found = e.select(infinite, number(form.infinity), found)
    sign = form.exponent + form.mantissa
    found = e.or_(found, e.shl(e.zext(negative, wide), number(sign)))
    if relu:
        found = e.select(negative, number(0), found)
    nothing = number(form.nan)
    if payload:
        quiet = number(((1 << form.exponent) - 1) << form.mantissa | 1 << (form.mantissa - 1))
        kept = e.lshr(fraction, number(52 - form.mantissa))
        nothing = e.or_(e.or_(kept, quiet), e.shl(e.zext(negative, wide), number(sign)))
    found = e.select(e.icmp_unsigned(">", size, number(0x7FF << 52)), nothing, found)
    return e.trunc(e.shl(found, number(form.shift)), result_kind)


def _narrow_to_nearest(e: Emit, value: Value, form: Format, relu: bool) -> Value:
    """Round f32 lanes to the nearest f16 or bf16; return its bits in i32 lanes."""
    kind, cut = like(value.type, I32), 23 - form.mantissa

    def number(bits: int) -> Value:
        return constant(kind, bits)

    bits = e.bitcast(value, kind)
    size = e.and_(bits, number(0x7FFFFFFF))
    # Half of the last bit that stays, less one, and one more where that bit is set: a tie goes to the even number. A carry out of the
    # largest number makes infinity.
    odd = e.and_(e.lshr(size, number(cut)), number(1))
    rebased = e.add(e.add(size, odd), number(((form.bias - 127) << 23) + (1 << (cut - 1)) - 1 & 0xFFFFFFFF))
    found = e.lshr(rebased, number(cut))
    if form.bias < 127:
        # The sum with 1/2, whose last bit in f32 is that of the subnormal numbers of f16, is rounded to one of these.
        summed = e.bitcast(e.fadd(e.bitcast(size, value.type), real(value.type, 0.5)), kind)
        tiny = e.icmp_unsigned("<", size, number((128 - form.bias) << 23))
        found = e.select(tiny, e.sub(summed, number(126 << 23)), found)
        large = e.icmp_unsigned(">=", size, number((128 + form.bias) << 23))
        found = e.select(large, number(form.largest + 1), found)
    negative = e.icmp_signed("<", bits, number(0))
    signed = e.or_(found, e.lshr(e.and_(bits, number(0x80000000)), number(16)))
    found = e.select(negative, number(0), found) if relu else signed
    return e.select(e.icmp_unsigned(">", size, number(0x7F800000)), number(form.nan), found)


def widen(e: Emit, bits: Value, name: str) -> Value:
    """Return f32 lanes from the bits of a format, which holds every value of it."""
    narrow_kind, kind = bits.type, like(bits.type, I32)
    if name == "f16":
        return e.fpext(
            e.bitcast(e.trunc(bits, like(kind, I16)) if narrow_kind.element != I16 else bits, like(kind, ir.HalfType())), like(kind, F32)
        )
    if narrow_kind != kind:
        bits = e.zext(bits, kind)
    if name == "bf16":
        return e.bitcast(e.shl(bits, constant(kind, 16)), like(kind, F32))
    if name == "tf32":
        return e.bitcast(e.and_(bits, constant(kind, 0xFFFFE000)), like(kind, F32))
    if name == "e5m2":
        return widen(e, e.shl(bits, constant(kind, 8)), "f16")
    # e4m3 has no infinity, and one more exponent than IEEE would give it: shift it into an f32 with the wrong exponent, and scale.
    size = e.and_(bits, constant(kind, 0x7F))
    scaled = e.fmul(e.bitcast(e.shl(size, constant(kind, 20)), like(kind, F32)), real(like(kind, F32), 2.0**120))
    found = e.or_(e.bitcast(scaled, kind), e.shl(e.and_(bits, constant(kind, 0x80)), constant(kind, 24)))
    nothing = e.icmp_unsigned("==", size, constant(kind, 0x7F))
    return e.bitcast(e.select(nothing, constant(kind, 0x7FFFFFFF), found), like(kind, F32))


def odd_sum(e: Emit, a: Value, b: Value) -> Value:
    """Return the sum of f32 or f64 lanes, rounded to odd."""
    total = e.fadd(a, b)
    back = e.fsub(total, a)
    error = e.fadd(e.fsub(a, e.fsub(total, back)), e.fsub(b, back))
    kind = like(total.type, I32 if total.type.element == F32 else I64)
    bits, zero = e.bitcast(total, kind), real(total.type, 0.0)
    even = e.icmp_unsigned("==", e.and_(bits, constant(kind, 1)), constant(kind, 0))
    inexact = e.fcmp_ordered("!=", error, zero)  # the error of an infinite sum is NaN
    away = e.xor(e.fcmp_ordered("<", error, zero), e.icmp_signed(">=", bits, constant(kind, 0)))
    moved = e.select(away, e.add(bits, constant(kind, 1)), e.sub(bits, constant(kind, 1)))
    return e.bitcast(e.select(e.and_(even, inexact), moved, bits), total.type)
