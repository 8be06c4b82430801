"""Conversion and rearrangement."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.code.build import FLOATS, I32, I64, INTEGERS, Value, constant, real, vector
from memlane.emulate.code.formats import narrow, odd_sum, widen
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.rounding import directed
from memlane.emulate.semantics.floating import canonical, flushed
from memlane.emulate.semantics.table import semantics
from memlane.errors import PtxTypeError
from memlane.ptx import SCALAR_TYPES, Immediate, ScalarType

_ROUNDINGS = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


@semantics("convert/cvt")
def cvt(k: Lowering) -> None:
    target_name, source_name = k.instruction.modifiers[-2:]
    if "x2" in target_name + source_name:
        return _packed(k, target_name, source_name)
    target, source = SCALAR_TYPES[target_name], SCALAR_TYPES[source_name]
    value = _operand(k, "a", source)
    if source.kind == "f" and target.kind == "f":
        return k.write("d", _float_to_float(k, value, target, source))
    if source.kind == "f":
        return k.write("d", _float_to_integer(k, value, target, source))
    if target.kind == "f":
        return k.write("d", _integer_to_float(k, value, target, source))
    return k.write("d", _integer_to_integer(k, value, target, source))


def _operand(k: Lowering, letter: str, source: ScalarType) -> Value:
    """Return an operand of `cvt`; floating-point ones as f32 or f64."""
    if source.kind != "f":
        return k.read(letter, source.name)
    if source.bits == 16:
        return widen(k.e, k.read(letter, "b16"), source.name)
    value = k.read(letter, source.name)
    # Toward f16 nothing is flushed: with `.rm` and `.rp` subnormal numbers affect the result.
    return flushed(k, value) if k.instruction.has("ftz") and k.instruction.modifiers[-2] != "f16" else value


def _rounding(k: Lowering) -> str:
    return next((word for word in k.instruction.modifiers if word in ("rn", "rna", "rz", "rm", "rp", *_ROUNDINGS)), "")


def _clamped_to_unit(k: Lowering, value: Value) -> Value:
    """Clamp to 0 and 1, with 0 for a NaN, as `.sat` does."""
    e, low, high = k.e, real(value.type, 0.0), real(value.type, 1.0)
    value = e.select(e.fcmp_ordered(">", value, low), value, low)
    return e.select(e.fcmp_ordered(">", value, high), high, value)


def _to_format(k: Lowering, value: Value, name: str, *, payload: bool = False) -> Value:
    """Round to f16, bf16, tf32, f32 or an eight-bit format as the instruction says; return the bits in i32 lanes. `payload`: see
    `narrow`."""
    direction, words = _rounding(k), k.instruction
    return narrow(
        k.e,
        value,
        name,
        direction if direction not in ("", *_ROUNDINGS) else "rn",
        finite=words.has("satfinite"),
        relu=words.has("relu"),
        payload=payload,
    )


def _tf32_away(k: Lowering, value: Value) -> Value:
    """Round f32 lanes to tf32 with ties away from zero. A NaN loses its lower bits, even if infinity is left. With `.satfinite` the next
    lower encoding is used, as for infinity, which thereby becomes the largest number."""
    e, kind = k.e, vector(I32)
    bits = e.and_(e.bitcast(value, kind), constant(kind, 0xFFFFE000))
    if k.instruction.has("satfinite"):
        bits = e.sub(bits, constant(kind, 0x2000))
    return e.select(e.fcmp_unordered("uno", value, value), bits, _to_format(k, value, "tf32"))


def _float_to_float(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    e, rounding = k.e, _rounding(k)
    if rounding in _ROUNDINGS:
        value = e.intrinsic(_ROUNDINGS[rounding], [value])
    if k.instruction.has("sat"):
        value = _clamped_to_unit(k, value)
    if target.name == "tf32" and rounding == "rna":
        return _tf32_away(k, value)
    if target.name in ("f16", "bf16", "tf32"):
        return _to_format(k, value, target.name, payload=source.bits == 64)
    if target.bits > source.bits and target.bits == 64:
        value = e.fpext(value, vector(FLOATS[64]))
    elif target.bits < source.bits:
        is_directed = rounding in ("rz", "rm", "rp")
        rounded = e.bitcast(_to_format(k, value, "f32", payload=True), vector(FLOATS[32])) if is_directed else None
        value = e.fptrunc(value, vector(FLOATS[32])) if rounded is None else rounded
    if k.instruction.has("ftz"):
        value = flushed(k, value)
    # A NaN keeps the bits that fit, coming from f64 or, without `.ftz`, from bf16.
    if source.bits == 64 or (source.name in ("bf16", "f32") and not rounding and not k.instruction.has("ftz")):
        return value
    return canonical(k, value)


def _packed(k: Lowering, target: str, source: str) -> None:
    """Convert two numbers in one register; a is the upper one, where there are two operands."""
    e, kind = k.e, vector(I32)
    form = target.removesuffix("x2")
    if k.instruction.has("rs"):
        raise k.unsupported()
    bits = 8 if form in ("e4m3", "e5m2") else 16
    if source == "f32":
        upper, lower = (k.read(letter) for letter in "ab")
    else:
        both, width = k.read("a", "b32" if source == "f16x2" else "b16"), 16 if source == "f16x2" else 8
        both = e.zext(both, kind) if both.type != kind else both
        part = source.removesuffix("x2")
        mask = constant(kind, (1 << width) - 1)
        upper, lower = (widen(e, e.and_(e.lshr(both, constant(kind, shift)), mask), part) for shift in (width, 0))
    result = e.or_(e.shl(_to_format(k, upper, form), constant(kind, bits)), _to_format(k, lower, form))
    k.write("d", result)


def _float_to_integer(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    """Convert to integers. Out of range gives the nearest integer; NaN gives 0, or the top bit where one side has 64 bits."""
    e = k.e
    kind = vector(INTEGERS[target.bits])
    if _rounding(k) not in _ROUNDINGS:
        raise PtxTypeError(f"{k.instruction.name} needs a rounding to integers: write `.rzi`, `.rni`, `.rmi` or `.rpi`", k.instruction.span)
    rounded = e.intrinsic(_ROUNDINGS[_rounding(k)], [value])
    name = f"llvm.fpto{target.kind}i.sat.v32i{target.bits}.v32f{max(32, source.bits)}"
    result = e.call(e.declare(name, kind, [value.type]), [rounded])
    if source.bits == 64 or target.bits == 64:
        nothing = e.fcmp_unordered("uno", value, value)
        result = e.select(nothing, constant(kind, 1 << (target.bits - 1)), result)
    return result


def _integer_to_float(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    e, rounding = k.e, _rounding(k)
    if rounding == "rn" and target.bits >= 32:
        result = (e.sitofp if source.kind == "s" else e.uitofp)(value, vector(FLOATS[target.bits]))
        return _clamped_to_unit(k, result) if k.instruction.has("sat") else result
    upper, lower = _halves(k, value, source)
    if target.bits == 64:
        e.store(upper, k.scratch("operands"), align=8)
        e.store(lower, e.at(k.scratch("operands"), 8 * LANES), align=8)
        k.call(directed("fadd", 64, LANES, rounding), k.scratch("operands"), k.scratch("d"))
        whole = e.load_lanes(k.scratch("d"), I64)
        result = e.bitcast(whole, vector(FLOATS[64]))
        return _clamped_to_unit(k, result) if k.instruction.has("sat") else result
    exact = odd_sum(e, upper, lower)
    return _to_format(k, _clamped_to_unit(k, exact) if k.instruction.has("sat") else exact, target.name)


def _halves(k: Lowering, value: Value, source: ScalarType) -> tuple[Value, Value]:
    """Split an integer into a sum of two f64: a multiple of 2^32, and the rest."""
    e, wide, doubles = k.e, vector(I64), vector(FLOATS[64])
    extend = e.sext if source.kind == "s" else e.zext
    value = value if source.bits == 64 else extend(value, wide)
    high = (e.ashr if source.kind == "s" else e.lshr)(value, constant(wide, 32))
    low = e.and_(value, constant(wide, 0xFFFFFFFF))
    return e.fmul(e.sitofp(high, doubles), real(doubles, 2.0**32)), e.sitofp(low, doubles)


def _integer_to_integer(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    if k.instruction.has("sat"):
        value = _saturated(k, value, target, source)
    kind = vector(INTEGERS[target.bits])
    if target.bits < source.bits:
        return k.e.trunc(value, kind)
    if target.bits > source.bits:
        return (k.e.sext if source.kind == "s" else k.e.zext)(value, kind)
    return value


def _saturated(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    """Clamp the value to the range of the target, still in the source's width."""
    low = -(1 << (target.bits - 1)) if target.kind == "s" else 0
    high = (1 << (target.bits - (target.kind == "s"))) - 1
    source_low = -(1 << (source.bits - 1)) if source.kind == "s" else 0
    source_high = (1 << (source.bits - (source.kind == "s"))) - 1
    prefix = "s" if source.kind == "s" else "u"
    if low > source_low:
        value = k.e.intrinsic(f"{prefix}max", [value, constant(value.type, low)])
    if high < source_high:
        value = k.e.intrinsic(f"{prefix}min", [value, constant(value.type, high)])
    return value


@semantics("convert/cvt.pack")
def cvt_pack(k: Lowering) -> None:
    """Pack a and b, clamped to a short integer type, with a above b, and the low part of c above both."""
    e, kind, name = k.e, vector(I32), k.slot_of("dtype")
    bits, signed = int(name[1:]), name[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    a, b = (
        e.and_(
            e.intrinsic("smin", [e.intrinsic("smax", [k.read(letter), constant(kind, low)]), constant(kind, high)]),
            constant(kind, (1 << bits) - 1),
        )
        for letter in "ab"
    )
    result = e.or_(e.shl(a, constant(kind, bits)), b)
    if k.has("c"):
        result = e.or_(result, e.shl(k.read("c"), constant(kind, 2 * bits)))
    k.write("d", result)


@semantics("convert/prmt")
def prmt(k: Lowering) -> None:
    """Permute bytes: each byte of the result is one of the eight bytes of b:a, or its sign."""
    e, kind = k.e, vector(I32)
    a, b, selectors = k.read("a"), k.read("b"), k.read("c")
    mode = k.slot_of("mode")
    known = k.instruction.operand("c")
    wide = vector(INTEGERS[64])
    both = e.or_(e.shl(e.zext(b, wide), constant(wide, 32)), e.zext(a, wide))
    result: Value = constant(kind, 0)
    for number in range(4):
        choice: Value
        if mode:
            choice = _mode_choice(k, mode, selectors, number)
        elif isinstance(known, Immediate):
            choice = constant(kind, known.value >> (4 * number) & 15)
        else:
            choice = e.and_(e.lshr(selectors, constant(kind, 4 * number)), constant(kind, 15))
        distance = e.zext(e.shl(e.and_(choice, constant(kind, 7)), constant(kind, 3)), wide)
        byte = e.and_(e.trunc(e.lshr(both, distance), kind), constant(kind, 0xFF))
        sign = e.select(e.icmp_unsigned(">", byte, constant(kind, 0x7F)), constant(kind, 0xFF), constant(kind, 0))
        byte = e.select(e.icmp_unsigned(">", choice, constant(kind, 7)), sign, byte)
        result = e.or_(result, e.shl(byte, constant(kind, 8 * number)))
    k.write("d", result)


_MODES = {
    "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "rc8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
    "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}
"""Byte of b:a for each byte of the result, lowest first, for each value of the two low bits of c."""


def _mode_choice(k: Lowering, mode: str, selectors: Value, number: int) -> Value:
    e, kind = k.e, vector(I32)
    low = e.and_(selectors, constant(kind, 3))
    choice: Value = constant(kind, _MODES[mode][0][number])
    for value in range(1, 4):
        choice = e.select(e.icmp_unsigned("==", low, constant(kind, value)), constant(kind, _MODES[mode][value][number]), choice)
    return choice
