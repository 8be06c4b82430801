"""Floating-point arithmetic in single and double precision.

Single-precision NaN results are canonical, 0x7fffffff. In products and quotients `.ftz` flushes results that were below the smallest normal
number before rounding. Approximate instructions are computed with correctly rounded operations or the C library: nearer to the true value
than the hardware, not equal to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ir

from memlane.emulate.code.build import F32, FLOATS, I32, INTEGERS, Value, constant, real, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.arithmetic import lanewise
from memlane.emulate.runtime.rounding import directed
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES

CANONICAL_NAN = 0x7FFFFFFF
SCALAR_BITS = {kind: bits for bits, kind in FLOATS.items()}


def bits_constant(k: Lowering, kind: ir.Type, bits: int) -> Value:
    """Return the floating-point value with these bits, in all lanes."""
    return k.e.bitcast(constant(vector(I32 if kind.element == F32 else INTEGERS[64]), bits), kind)


def flushed(k: Lowering, value: Value) -> Value:
    """Return the value with subnormal lanes replaced by a zero of their sign. (`.ftz` has a meaning for f32 alone.)"""
    if value.type.element != F32:
        return value
    e, kind = k.e, vector(I32)
    bits = e.bitcast(value, kind)
    tiny = e.icmp_unsigned("==", e.and_(bits, constant(kind, 0x7F800000)), constant(kind, 0))
    return e.bitcast(e.select(tiny, e.and_(bits, constant(kind, 0x80000000)), bits), value.type)


def _flushed_before_rounding(k: Lowering, operation: str, values: Sequence[Value], result: Value) -> Value:
    """Return the result, with zero where it was rounded up to the smallest normal number: where, rounded toward zero, it is subnormal."""
    e, kind = k.e, vector(I32)
    least = e.icmp_unsigned("==", e.and_(e.bitcast(result, kind), constant(kind, 0x7FFFFFFF)), constant(kind, 0x00800000))
    before = e.block
    with e.if_then(e.icmp_unsigned("!=", e.mask_of(least), constant(I32, 0)), likely=False):
        corrected = e.select(least, flushed(k, _directed(k, operation, values, "rz")), result)
        rare = e.block
    found = e.phi(result.type)
    found.add_incoming(result, before)
    found.add_incoming(corrected, rare)
    return found


def canonical(k: Lowering, value: Value) -> Value:
    """Return the value with single-precision NaNs made canonical."""
    if value.type.element != F32:
        return value
    return k.e.select(k.e.fcmp_unordered("uno", value, value), bits_constant(k, value.type, CANONICAL_NAN), value)


def _operands(k: Lowering, letters: str) -> list[Value]:
    values = [k.read(letter) for letter in letters]
    if any(value.type.element not in FLOATS.values() for value in values):
        raise k.unsupported()
    return [flushed(k, value) for value in values] if k.instruction.has("ftz") else values


def rounded(k: Lowering, operation: str, values: Sequence[Value]) -> Value:
    """Return the result of `fadd`, `fsub`, `fmul`, `fdiv`, `fma` or `sqrt`, rounded as the instruction says."""
    e, direction = k.e, k.slot_of("rnd")
    if direction in ("rz", "rm", "rp"):
        result = _directed(k, operation, values, direction)
    elif operation in ("fma", "sqrt"):
        result = e.intrinsic(operation, values)
    else:
        result = {"fadd": e.fadd, "fsub": e.fsub, "fmul": e.fmul, "fdiv": e.fdiv}[operation](*values)
    # Sums that small are exact, roots are not that small, and an H200 flushes results of fma after rounding.
    if k.instruction.has("ftz") and operation in ("fmul", "fdiv") and result.type.element == F32 and direction != "rz":
        return _flushed_before_rounding(k, operation, values, result)
    return result


def _directed(k: Lowering, operation: str, values: Sequence[Value], direction: str) -> Value:
    e, kind = k.e, values[0].type
    operands, bits = k.scratch("operands"), SCALAR_BITS[kind.element]
    for number, value in enumerate(values):
        e.store(value, e.at(operands, number * kind.count * bits // 8), align=bits // 8)
    k.call(directed(operation, bits, kind.count, direction), operands, k.scratch("d"))
    return e.load(k.scratch("d"), typ=kind, align=bits // 8)


def finish(k: Lowering, value: Value) -> None:
    """Flush, clamp and store a result."""
    if k.instruction.has("ftz"):
        value = flushed(k, value)
    if k.instruction.has("sat"):
        low, high = real(value.type, 0.0), real(value.type, 1.0)
        value = k.e.select(k.e.fcmp_ordered(">", value, low), value, low)  # a NaN becomes 0 too
        return k.write("d", k.e.select(k.e.fcmp_ordered(">", value, high), high, value))
    return k.write("d", canonical(k, value))


@semantics("floating/add")
def add(k: Lowering) -> None:
    finish(k, rounded(k, "fadd", _operands(k, "ab")))


@semantics("floating/sub")
def sub(k: Lowering) -> None:
    finish(k, rounded(k, "fsub", _operands(k, "ab")))


@semantics("floating/mul")
def mul(k: Lowering) -> None:
    finish(k, rounded(k, "fmul", _operands(k, "ab")))


@semantics("floating/fma", "floating/mad")
def fma(k: Lowering) -> None:
    finish(k, rounded(k, "fma", _operands(k, "abc")))


@semantics("floating/div")
def div(k: Lowering) -> None:
    """Divide. `.approx` gives 0 for numbers divided by more than 2^126, and NaN for infinity divided by such numbers."""
    a, b = _operands(k, "ab")
    result = rounded(k, "fdiv", [a, b])
    if k.instruction.has("approx"):
        e, size, infinity = k.e, k.e.intrinsic("fabs", [b]), real(b.type, float("inf"))
        large = e.and_(e.fcmp_ordered(">", size, real(b.type, 2.0**126)), e.fcmp_ordered("<", size, infinity))
        result = e.select(large, e.fmul(a, e.intrinsic("copysign", [real(b.type, 0.0), b])), result)
    finish(k, result)


def _upper_word(k: Lowering, value: Value) -> Value:
    """Return f64 lanes with their lower word zero, and subnormal ones replaced by a zero of their sign."""
    e, kind = k.e, vector(INTEGERS[64])
    bits = e.and_(e.bitcast(value, kind), constant(kind, 0xFFFFFFFF << 32))
    tiny = e.icmp_unsigned("==", e.and_(bits, constant(kind, 0x7FF << 52)), constant(kind, 0))
    return e.bitcast(e.select(tiny, e.and_(bits, constant(kind, 1 << 63)), bits), value.type)


@semantics("floating/rcp.approx.ftz.f64", "floating/rsqrt.approx.ftz.f64")
def approximate_double(k: Lowering) -> None:
    """Compute `rcp` or `rsqrt` of f64, where only the upper words of operand and result count."""
    e, a = k.e, _upper_word(k, k.read("a"))
    by = e.intrinsic("sqrt", [a]) if k.instruction.opcode == "rsqrt" else a
    result = e.fdiv(real(a.type, 1.0), by)
    k.write("d", _upper_word(k, result))


@semantics("floating/rcp")
def rcp(k: Lowering) -> None:
    (a,) = _operands(k, "a")
    finish(k, rounded(k, "fdiv", [real(a.type, 1.0), a]))


@semantics("floating/sqrt")
def sqrt(k: Lowering) -> None:
    finish(k, rounded(k, "sqrt", _operands(k, "a")))


@semantics("floating/rsqrt")
def rsqrt(k: Lowering) -> None:
    (a,) = _operands(k, "a")
    finish(k, k.e.fdiv(real(a.type, 1.0), k.e.intrinsic("sqrt", [a])))


def _sign_bit(k: Lowering, kind: ir.Type) -> Value:
    bits = kind.element.width
    return constant(kind, 1 << (bits - 1))


def _as_integers(k: Lowering, value: Value) -> Value:
    return k.e.bitcast(value, vector(I32 if value.type.element == F32 else INTEGERS[64]))


@semantics("floating/abs")
def abs_(k: Lowering) -> None:
    (a,) = _operands(k, "a")
    bits = _as_integers(k, a)
    k.write("d", k.e.and_(bits, k.e.not_(_sign_bit(k, bits.type))))


@semantics("floating/neg")
def neg(k: Lowering) -> None:
    (a,) = _operands(k, "a")
    bits = _as_integers(k, a)
    k.write("d", k.e.xor(bits, _sign_bit(k, bits.type)))


@semantics("floating/copysign")
def copysign(k: Lowering) -> None:
    """Combine the magnitude of b with the sign of a."""
    e, (a, b) = k.e, [_as_integers(k, value) for value in _operands(k, "ab")]
    sign = _sign_bit(k, a.type)
    k.write("d", e.or_(e.and_(a, sign), e.and_(b, e.not_(sign))))


@semantics("floating/min", "floating/max")
def min_max(k: Lowering) -> None:
    """Return the minimum or maximum: a number wins over a NaN, -0 is below +0; with `.NaN` a NaN wins."""
    e, instruction = k.e, k.instruction
    values = _operands(k, "abc" if k.has("c") else "ab")
    operation = {"min": "minimum", "max": "maximum"}[instruction.opcode] + ("" if instruction.has("NaN") else "num")
    signs = _as_integers(k, values[0])
    for value in values[1:]:
        signs = e.xor(signs, _as_integers(k, value))
    if instruction.has("abs"):
        values = [e.intrinsic("fabs", [value]) for value in values]
    result = values[0]
    for value in values[1:]:
        result = e.intrinsic(operation, [result, value])
    if instruction.has("xorsign"):
        magnitude, sign = _as_integers(k, result), _sign_bit(k, signs.type)
        result = e.bitcast(e.or_(e.and_(magnitude, e.not_(sign)), e.and_(signs, sign)), result.type)
    finish(k, result)


@semantics("floating/testp")
def testp(k: Lowering) -> None:
    """Test a property of numbers. Zeros count as normal."""
    e = k.e
    (a,) = _operands(k, "a")
    size = e.intrinsic("fabs", [a])
    infinity, zero = real(a.type, float("inf")), real(a.type, 0.0)
    smallest = real(a.type, 2.0**-126 if SCALAR_TYPES[k.slot_type("a")].bits == 32 else 2.0**-1022)
    tests: dict[str, Callable[[], Value]] = {
        "finite": lambda: e.fcmp_ordered("<", size, infinity),
        "infinite": lambda: e.fcmp_ordered("==", size, infinity),
        "number": lambda: e.fcmp_ordered("ord", a, a),
        "notanumber": lambda: e.fcmp_unordered("uno", a, a),
        "normal": lambda: e.and_(
            e.or_(e.fcmp_ordered(">=", size, smallest), e.fcmp_ordered("==", size, zero)), e.fcmp_ordered("<", size, infinity)
        ),
        "subnormal": lambda: e.and_(e.fcmp_ordered(">", size, zero), e.fcmp_ordered("<", size, smallest)),
    }
    k.write("p", e.mask_of(tests[k.slot_of("class")]()))


def library(k: Lowering, function: str, value: Value) -> Value:
    """Apply a single-precision function of the C library to each lane."""
    k.e.store(value, k.scratch("a"), align=4)
    k.call(lanewise(function, value.type.count), k.scratch("a"), k.scratch("d"))
    return k.e.load(k.scratch("d"), typ=value.type, align=4)


@semantics("floating/sin", "floating/cos", "floating/lg2", "floating/ex2", "floating/tanh")
def transcendental(k: Lowering) -> None:
    function = {"lg2": "log2", "ex2": "exp2"}.get(k.instruction.opcode, k.instruction.opcode)
    finish(k, library(k, function, *_operands(k, "a")))
