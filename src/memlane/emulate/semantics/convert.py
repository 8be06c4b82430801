"""Conversion and rearrangement."""

from __future__ import annotations

from memlane.emulate.build import FLOATS, I32, INTEGERS, Value, constant, vector
from memlane.emulate.lowering import Lowering
from memlane.emulate.semantics.floating import canonical, flushed, real
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES, Immediate, ScalarType

_SECTION = "data-movement-and-conversion-instructions-"
_ROUNDINGS = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


@semantics(_SECTION + "cvt")
def cvt(k: Lowering) -> None:
    slots = k.instruction.form.slots
    if "dtype" not in slots and not k.instruction.modifiers[-2:]:
        raise k.unsupported()
    target, source = (SCALAR_TYPES.get(name) for name in k.instruction.modifiers[-2:])
    if target is None or source is None or k.has("b") or not all(_is_plain(kind) for kind in (target, source)):
        raise k.unsupported()
    value = k.read("a", source.name)
    if source.kind == "f" and k.instruction.has("ftz"):
        value = flushed(k, value)
    if source.kind == "f" and target.kind == "f":
        result = _float_to_float(k, value, target, source)
    elif source.kind == "f":
        result = _float_to_integer(k, value, target, source)
    elif target.kind == "f":
        result = _integer_to_float(k, value, target, source)
    else:
        result = _integer_to_integer(k, value, target, source)
    k.write("d", result)


def _is_plain(kind: ScalarType) -> bool:
    return kind.lanes == 1 and kind.name not in ("bf16", "tf32")


def _rounding(k: Lowering) -> str:
    return next((word for word in k.instruction.modifiers if word in ("rn", "rz", "rm", "rp", *_ROUNDINGS)), "")


def _float_to_float(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    e, rounding, kind = k.e, _rounding(k), vector(FLOATS[target.bits])
    if rounding in _ROUNDINGS:
        value = e.intrinsic(_ROUNDINGS[rounding], [value])
    elif rounding not in ("", "rn") and target.bits < source.bits:
        raise k.unsupported(f"{k.instruction.name}: only rounding to nearest")
    if target.bits < source.bits:
        value = e.fptrunc(value, kind)
    elif target.bits > source.bits:
        value = e.fpext(value, kind)
    if k.instruction.has("sat"):
        low, high = real(kind, 0.0), real(kind, 1.0)
        value = e.select(e.fcmp_ordered(">", value, low), value, low)
        return e.select(e.fcmp_ordered(">", value, high), high, value)
    if k.instruction.has("ftz"):
        value = flushed(k, value)
    return canonical(k, value) if rounding or target.bits != source.bits else value


def _float_to_integer(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    """Out of range gives the nearest integer there is; no number gives 0, or the top bit where one side has 64 bits."""
    e = k.e
    kind = vector(INTEGERS[target.bits])
    rounded = e.intrinsic(_ROUNDINGS[_rounding(k)], [value])
    name = f"llvm.fpto{target.kind}i.sat.v32i{target.bits}.v32f{source.bits}"
    result = e.call(e.declare(name, kind, [value.type]), [rounded])
    if source.bits == 64 or target.bits == 64:
        nothing = e.fcmp_unordered("uno", value, value)
        result = e.select(nothing, constant(kind, 1 << (target.bits - 1)), result)
    return result


def _integer_to_float(k: Lowering, value: Value, target: ScalarType, source: ScalarType) -> Value:
    if _rounding(k) != "rn":
        raise k.unsupported(f"{k.instruction.name}: only rounding to nearest")
    result = (k.e.sitofp if source.kind == "s" else k.e.uitofp)(value, vector(FLOATS[target.bits]))
    if k.instruction.has("sat"):
        low, high = real(result.type, 0.0), real(result.type, 1.0)
        result = k.e.select(k.e.fcmp_ordered(">", result, low), result, low)
        result = k.e.select(k.e.fcmp_ordered(">", result, high), high, result)
    return result


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
    """The value limited to the range of the target, still in the source's width."""
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


@semantics(_SECTION + "prmt")
def prmt(k: Lowering) -> None:
    """Each byte of the result is one of the eight bytes of b:a, or its sign."""
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
"""Which byte of b:a goes to which byte of the result, lowest first, for each value of the two low bits of c."""


def _mode_choice(k: Lowering, mode: str, selectors: Value, number: int) -> Value:
    e, kind = k.e, vector(I32)
    low = e.and_(selectors, constant(kind, 3))
    choice: Value = constant(kind, _MODES[mode][0][number])
    for value in range(1, 4):
        choice = e.select(e.icmp_unsigned("==", low, constant(kind, value)), constant(kind, _MODES[mode][value][number]), choice)
    return choice
