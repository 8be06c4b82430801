"""Arithmetic in f16 and bf16, alone and in pairs, and mixed with f32. Pairs are computed as 64 numbers instead of 32."""

from __future__ import annotations

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.build import F64, I16, I32, Value, constant, real, vector
from memlane.emulate.code.formats import like, narrow, odd_sum, widen
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.tensor_copies import OOB_NAN
from memlane.emulate.semantics.compare import holds, with_predicate, write_both
from memlane.emulate.semantics.floating import finish, library, rounded
from memlane.emulate.semantics.table import semantics


def _bits(k: Lowering, letter: str, name: str) -> Value:
    """Return an operand as 32 or 64 i16, flushed if the instruction says so."""
    operand = k.instruction.operand(letter)
    assert operand is not None
    e = k.e
    if name.endswith("x2"):
        bits = e.bitcast(k.bits_of(operand, "b32"), ir.VectorType(I16, 2 * LANES))
    else:
        bits = k.bits_of(operand, "b16")
    return _flushed(k, bits) if k.instruction.has("ftz") and name.startswith("f16") else bits


def _flushed(k: Lowering, bits: Value) -> Value:
    """Return f16 bits with subnormal numbers replaced by a zero of their sign."""
    e, kind = k.e, bits.type
    tiny = e.icmp_unsigned("==", e.and_(bits, constant(kind, 0x7C00)), constant(kind, 0))
    return e.select(tiny, e.and_(bits, constant(kind, 0x8000)), bits)


def _read(k: Lowering, letters: str) -> list[Value]:
    """Return operands as f32."""
    name = k.slot_type(letters[0])
    return [widen(k.e, _bits(k, letter, name), name.removesuffix("x2")) for letter in letters]


def _write(k: Lowering, bits: Value) -> None:
    """Write a result given as i16 or wider lanes."""
    e = k.e
    if bits.type.element != I16:
        bits = e.trunc(bits, like(bits.type, I16))
    if k.instruction.has("ftz") and k.slot_type("d").startswith("f16"):
        bits = _flushed(k, bits)
    k.write("d", e.bitcast(bits, vector(I32)) if bits.type.count > LANES else bits)


def _finish(k: Lowering, value: Value) -> None:
    """Flush a product that is subnormal before it is rounded, clamp, round and store a result."""
    e = k.e
    if k.instruction.has("ftz") and k.instruction.opcode == "mul" and k.slot_type("d").startswith("f16"):
        size = e.intrinsic("fabs", [value])
        nothing = e.intrinsic("copysign", [real(value.type, 0.0), value])
        value = e.select(e.fcmp_ordered("<", size, real(value.type, 2.0**-14)), nothing, value)
    if k.instruction.has("sat"):
        low, high = real(value.type, 0.0), real(value.type, 1.0)
        value = e.select(e.fcmp_ordered(">", value, low), value, low)
        value = e.select(e.fcmp_ordered(">", value, high), high, value)
    _write(k, narrow(e, value, k.slot_type("d").removesuffix("x2"), relu=k.instruction.has("relu")))


# An f32 has more than twice the bits of either format and two to spare: rounding to f32 first does not change the final rounding.


@semantics("half/add")
def add(k: Lowering) -> None:
    _finish(k, k.e.fadd(*_read(k, "ab")))


@semantics("half/sub")
def sub(k: Lowering) -> None:
    _finish(k, k.e.fsub(*_read(k, "ab")))


@semantics("half/mul")
def mul(k: Lowering) -> None:
    _finish(k, k.e.fmul(*_read(k, "ab")))


@semantics("half/fma")
def fma(k: Lowering) -> None:
    """Multiply and add; the product is exact in f32, or in f64 where the exponents of f32 do not suffice.

    With `.oob` a factor that a tensor copy found outside its array makes the result 0, whatever its sign; measured on an H200.
    """
    e = k.e
    a, b, c = _read(k, "abc")
    if k.slot_type("d").startswith("bf16"):
        a, b, c = (e.fpext(value, like(value.type, F64)) for value in (a, b, c))
    total = odd_sum(e, e.fmul(a, b), c)
    if k.instruction.has("oob"):
        sizes = [e.and_(bits, constant(bits.type, 0x7FFF)) for bits in (_bits(k, letter, k.slot_type(letter)) for letter in "ab")]
        outside = e.or_(*(e.icmp_unsigned("==", size, constant(size.type, OOB_NAN & 0x7FFF)) for size in sizes))
        total = e.select(outside, real(total.type, 0.0), total)
    _finish(k, total)


@semantics("half/neg")
def neg(k: Lowering) -> None:
    bits = _bits(k, "a", k.slot_type("a"))
    _write(k, k.e.xor(bits, constant(bits.type, 0x8000)))


@semantics("half/abs")
def abs_(k: Lowering) -> None:
    bits = _bits(k, "a", k.slot_type("a"))
    _write(k, k.e.and_(bits, constant(bits.type, 0x7FFF)))


@semantics("half/min", "half/max")
def min_max(k: Lowering) -> None:
    """Return the minimum or maximum: a number wins over a NaN, -0 is below +0; with `.NaN` a NaN wins."""
    e, instruction = k.e, k.instruction
    a, b = _read(k, "ab")
    operation = {"min": "minimum", "max": "maximum"}[instruction.opcode] + ("" if instruction.has("NaN") else "num")
    kind = like(a.type, I32)
    signs = e.and_(e.xor(e.bitcast(a, kind), e.bitcast(b, kind)), constant(kind, 0x80000000))
    if instruction.has("abs"):
        a, b = (e.intrinsic("fabs", [value]) for value in (a, b))
    result = e.intrinsic(operation, [a, b])
    if instruction.has("xorsign"):
        size = e.and_(e.bitcast(result, kind), constant(kind, 0x7FFFFFFF))
        result = e.bitcast(e.or_(size, signs), result.type)
    _finish(k, result)


@semantics("half/tanh", "half/ex2")
def transcendental(k: Lowering) -> None:
    (a,) = _read(k, "a")
    _finish(k, library(k, {"ex2": "exp2"}.get(k.instruction.opcode, k.instruction.opcode), a))


# -- mixed with f32 --------------------------------------------------------------------------------------------------------------


def _short(k: Lowering, letter: str, slot: str) -> Value:
    return widen(k.e, k.read(letter, "b16"), k.slot_of(slot))


@semantics("half/add mixed")
def mixed_add(k: Lowering) -> None:
    finish(k, rounded(k, "fadd", [_short(k, "a", "atype"), k.read("b")]))


@semantics("half/sub mixed")
def mixed_sub(k: Lowering) -> None:
    finish(k, rounded(k, "fsub", [_short(k, "a", "atype"), k.read("b")]))


@semantics("half/fma mixed")
def mixed_fma(k: Lowering) -> None:
    finish(k, rounded(k, "fma", [_short(k, "a", "abtype"), _short(k, "b", "abtype"), k.read("c")]))


# -- comparison ------------------------------------------------------------------------------------------------------------------


def _masks(k: Lowering) -> list[Value]:
    """Return masks of the lanes in which the comparison holds: one for numbers, or one each for the lower and the upper numbers of
    pairs."""
    e = k.e
    a, b = _read(k, "ab")
    result = holds(k, k.slot_of("cmp"), a, b)
    if a.type.count == LANES:
        return [e.bitcast(result, I32)]
    lanes = e.zext(result, like(a.type, I32))
    undefined = ir.Constant(lanes.type, ir.Undefined)
    halves = [e.shuffle_vector(lanes, undefined, ir.Constant(vector(I32), [2 * lane + half for lane in range(LANES)])) for half in (0, 1)]
    return [e.mask_of(e.icmp_unsigned("!=", half, constant(vector(I32), 0))) for half in halves]


@semantics("compare/setp half")
def setp(k: Lowering) -> None:
    """Compare; of pairs, write the lower comparison into p and the upper into q."""
    masks = _masks(k)
    write_both(k, masks[0], masks[1] if len(masks) > 1 else k.e.not_(masks[0]))


_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80, "u16": 0xFFFF, "s16": 0xFFFF}


@semantics("compare/set half")
def set_(k: Lowering) -> None:
    """Write 1.0 or all ones where the comparison holds, in each half of pairs."""
    e, masks = k.e, [with_predicate(k, mask) for mask in _masks(k)]
    kind = vector(I32)
    one = constant(kind, _ONES.get(k.slot_of("dtype"), 0xFFFF if len(masks) > 1 else 0xFFFFFFFF))
    parts = [e.select(e.lanes_of(mask), one, constant(kind, 0)) for mask in masks]
    k.write("d", parts[0] if len(parts) == 1 else e.or_(parts[0], e.shl(parts[1], constant(kind, 16))))
