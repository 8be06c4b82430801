"""Integer arithmetic."""

from __future__ import annotations

import llvmlite.ir as ir

from memlane.emulate.code.build import I1, I32, I64, INTEGERS, Value, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.arithmetic import divide
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES


def _is_signed(k: Lowering, letter: str = "a") -> bool:
    return SCALAR_TYPES[k.slot_type(letter)].kind == "s"


def _as_halves(k: Lowering, letter: str) -> Value:
    """Return a packed operand as 64 halves."""
    return k.e.bitcast(k.read(letter), ir.VectorType(INTEGERS[16], 64))


def _is_packed(k: Lowering) -> bool:
    return SCALAR_TYPES[k.slot_type("a")].lanes == 2


def clamp_signed(k: Lowering, value: Value, bits: int) -> Value:
    """Clamp wide signed lanes to the range of `bits`, and truncate them."""
    e = k.e
    low, high = constant(value.type, -(1 << (bits - 1))), constant(value.type, (1 << (bits - 1)) - 1)
    value = e.select(e.icmp_signed("<", value, low), low, value)
    value = e.select(e.icmp_signed(">", value, high), high, value)
    return e.trunc(value, vector(INTEGERS[bits]))


@semantics("integer/add")
def add(k: Lowering) -> None:
    if _is_packed(k):
        return k.write("d", k.e.bitcast(k.e.add(_as_halves(k, "a"), _as_halves(k, "b")), vector(I32)))
    a, b = k.read("a"), k.read("b")
    if k.instruction.has("sat"):
        wide = vector(I64)
        return k.write("d", clamp_signed(k, k.e.add(k.e.sext(a, wide), k.e.sext(b, wide)), 32))
    return k.write("d", k.e.add(a, b))


@semantics("integer/sub")
def sub(k: Lowering) -> None:
    a, b = k.read("a"), k.read("b")
    if k.instruction.has("sat"):
        wide = vector(I64)
        return k.write("d", clamp_signed(k, k.e.sub(k.e.sext(a, wide), k.e.sext(b, wide)), 32))
    return k.write("d", k.e.sub(a, b))


def product(k: Lowering, a: Value, b: Value, mode: str | None, signed: bool) -> Value:
    """Return the low half, the high half, or the whole of the product of two lanes."""
    e = k.e
    if mode == "lo":
        return e.mul(a, b)
    bits = a.type.element.width
    wide = vector(INTEGERS[2 * bits])
    widen = e.sext if signed else e.zext
    whole = e.mul(widen(a, wide), widen(b, wide))
    return whole if mode == "wide" else e.trunc(e.lshr(whole, constant(wide, bits)), a.type)


def _mode(k: Lowering) -> str:
    return next(word for word in ("wide", "hi", "lo") if k.instruction.has(word))


@semantics("integer/mul")
def mul(k: Lowering) -> None:
    k.write("d", product(k, k.read("a"), k.read("b"), _mode(k), _is_signed(k)))


@semantics("integer/mad")
def mad(k: Lowering) -> None:
    part, c = product(k, k.read("a"), k.read("b"), _mode(k), _is_signed(k)), k.read("c")
    if k.instruction.has("sat"):
        wide = vector(I64)
        return k.write("d", clamp_signed(k, k.e.add(k.e.sext(part, wide), k.e.sext(c, wide)), 32))
    return k.write("d", k.e.add(part, c))


def _product24(k: Lowering) -> Value:
    """Return the product of the low 24 bits of the operands: bits 0 to 31 of it, or 16 to 47."""
    e, wide = k.e, vector(I64)
    shift = constant(wide, 40)
    narrow = e.ashr if _is_signed(k) else e.lshr
    a, b = (narrow(e.shl(e.zext(k.read(letter), wide), shift), shift) for letter in "ab")
    whole = e.mul(a, b)
    return e.trunc(whole if k.slot_of("mode") == "lo" else e.lshr(whole, constant(wide, 16)), vector(I32))


@semantics("integer/mul24")
def mul24(k: Lowering) -> None:
    k.write("d", _product24(k))


@semantics("integer/mad24")
def mad24(k: Lowering) -> None:
    if k.instruction.has("sat"):
        wide = vector(I64)
        return k.write("d", clamp_signed(k, k.e.add(k.e.sext(_product24(k), wide), k.e.sext(k.read("c"), wide)), 32))
    return k.write("d", k.e.add(_product24(k), k.read("c")))


@semantics("integer/sad")
def sad(k: Lowering) -> None:
    e, a, b = k.e, k.read("a"), k.read("b")
    less = (e.icmp_signed if _is_signed(k) else e.icmp_unsigned)("<", a, b)
    k.write("d", e.add(k.read("c"), e.select(less, e.sub(b, a), e.sub(a, b))))


@semantics("integer/div", "integer/rem")
def div(k: Lowering) -> None:
    """Divide in a helper. Division by zero returns all ones, its remainder the dividend; the manual leaves both open."""
    e, scalar = k.e, SCALAR_TYPES[k.slot_type("a")]
    for letter in "ab":
        e.store_lanes(k.read(letter), k.scratch(letter))
    k.call(divide(k.instruction.opcode, scalar.kind, scalar.bits), k.scratch("a"), k.scratch("b"), k.scratch("d"))
    k.write("d", e.load_lanes(k.scratch("d"), INTEGERS[scalar.bits]))


@semantics("integer/abs")
def abs_(k: Lowering) -> None:
    a = k.read("a")
    k.write("d", k.e.intrinsic("abs", [a, ir.Constant(I1, 0)]))


@semantics("integer/neg")
def neg(k: Lowering) -> None:
    k.write("d", k.e.neg(k.read("a")))


@semantics("integer/min", "integer/max")
def min_max(k: Lowering) -> None:
    e, opcode = k.e, k.instruction.opcode
    name = f"{'s' if _is_signed(k) else 'u'}{opcode}"
    if _is_packed(k):
        a, b = _as_halves(k, "a"), _as_halves(k, "b")
    else:
        a, b = k.read("a"), k.read("b")
    result = e.intrinsic(name, [a, b])
    if k.instruction.has("relu"):
        result = e.intrinsic("smax", [result, ir.Constant(result.type, None)])
    k.write("d", e.bitcast(result, vector(I32)) if _is_packed(k) else result)


def _narrow(k: Lowering, value: Value) -> Value:
    """Truncate 64-bit lanes to the 32-bit counts that bit instructions return."""
    return k.e.trunc(value, vector(I32)) if value.type.element.width > 32 else value


@semantics("integer/popc")
def popc(k: Lowering) -> None:
    k.write("d", _narrow(k, k.e.popcount(k.read("a"))))


@semantics("integer/clz")
def clz(k: Lowering) -> None:
    k.write("d", _narrow(k, k.e.intrinsic("ctlz", [k.read("a"), ir.Constant(I1, 0)])))


@semantics("integer/bfind")
def bfind(k: Lowering) -> None:
    """Find the highest bit that differs from the sign; all ones if there is none. `.shiftamt`: the shift that moves it to the top."""
    e, a = k.e, k.read("a")
    bits = a.type.element.width
    if _is_signed(k):
        a = e.xor(a, e.ashr(a, constant(a.type, bits - 1)))
    shift = e.intrinsic("ctlz", [a, ir.Constant(I1, 0)])
    found = shift if k.instruction.has("shiftamt") else e.sub(constant(a.type, bits - 1), shift)
    nothing = e.icmp_unsigned("==", a, constant(a.type, 0))
    k.write("d", _narrow(k, e.select(nothing, constant(a.type, -1), found)))


@semantics("integer/fns")
def fns(k: Lowering) -> None:
    """Find the offset-th set bit counted from `base`, upwards or downwards; all ones if there is none.

    Uses binary search over the bits between `base` and the end: the nearest one with enough set bits before it.
    """
    e, kind = k.e, vector(I32)
    mask, base, offset = (k.read(letter) for letter in ("mask", "base", "offset"))
    zero, one, minus = (constant(kind, number) for number in (0, 1, -1))
    down = e.icmp_signed("<", offset, zero)
    # Searching downwards from `base` is searching upwards in the reversed word.
    word = e.select(down, e.intrinsic("bitreverse", [mask]), mask)
    start = e.and_(e.select(down, e.sub(constant(kind, 31), base), base), constant(kind, 31))
    here = e.and_(e.lshr(word, start), one)
    wanted = e.select(e.icmp_unsigned("==", offset, zero), one, e.intrinsic("abs", [offset, ir.Constant(I1, 0)]))
    word = e.and_(word, e.shl(minus, start))
    place: Value = zero
    left = wanted
    for width in (16, 8, 4, 2, 1):
        part = e.and_(e.lshr(word, place), constant(kind, (1 << width) - 1))
        bits = e.popcount(part)
        beyond = e.icmp_unsigned("<", bits, left)
        left = e.select(beyond, e.sub(left, bits), left)
        place = e.select(beyond, e.add(place, constant(kind, width)), place)
    found = e.icmp_unsigned(">=", e.popcount(word), wanted)
    found = e.and_(found, e.or_(e.icmp_unsigned("!=", offset, zero), e.icmp_unsigned("!=", here, zero)))
    place = e.select(down, e.sub(constant(kind, 31), place), place)
    k.write("d", e.select(found, place, minus))


@semantics("integer/brev")
def brev(k: Lowering) -> None:
    k.write("d", k.e.intrinsic("bitreverse", [k.read("a")]))


def _widened(k: Lowering, letter: str, kind: ir.Type) -> Value:
    """Return the low byte of a position or length, in lanes of `kind`."""
    value = k.e.and_(k.read(letter), constant(vector(I32), 0xFF))
    return value if kind == value.type else k.e.zext(value, kind)


def _ones(k: Lowering, length: Value) -> Value:
    """Return `length` low bits set; all bits if `length` reaches the width."""
    e, kind = k.e, length.type
    bits = kind.element.width
    short = e.icmp_unsigned("<", length, constant(kind, bits))
    safe = e.select(short, length, constant(kind, 0))
    return e.select(short, e.sub(e.shl(constant(kind, 1), safe), constant(kind, 1)), constant(kind, -1))


@semantics("integer/bfe")
def bfe(k: Lowering) -> None:
    e, a = k.e, k.read("a")
    kind, bits = a.type, a.type.element.width
    start, length = _widened(k, "b", kind), _widened(k, "c", kind)
    inside = e.icmp_unsigned("<", start, constant(kind, bits))
    shift = e.select(inside, start, constant(kind, 0))
    field = e.and_(e.select(inside, e.lshr(a, shift), constant(kind, 0)), _ones(k, length))
    if _is_signed(k):
        # The sign is the field's highest bit, or the top bit of a where the field extends past it.
        last = e.intrinsic("umin", [e.sub(e.add(start, length), constant(kind, 1)), constant(kind, bits - 1)])
        sign = e.and_(e.lshr(a, last), constant(kind, 1))
        empty = e.icmp_unsigned("==", length, constant(kind, 0))
        fill = e.select(e.or_(empty, e.icmp_unsigned("==", sign, constant(kind, 0))), constant(kind, 0), constant(kind, -1))
        taken = e.intrinsic("umin", [length, e.select(inside, e.sub(constant(kind, bits), start), constant(kind, 0))])
        field = e.or_(e.and_(field, _ones(k, taken)), e.and_(fill, e.not_(_ones(k, taken))))
    k.write("d", field)


@semantics("integer/bfi")
def bfi(k: Lowering) -> None:
    e, a, b = k.e, k.read("a"), k.read("b")
    kind, bits = b.type, b.type.element.width
    start, length = _widened(k, "c", kind), _widened(k, "d", kind)
    inside = e.icmp_unsigned("<", start, constant(kind, bits))
    shift = e.select(inside, start, constant(kind, 0))
    field = e.select(inside, e.shl(_ones(k, length), shift), constant(kind, 0))
    k.write("f", e.or_(e.and_(b, e.not_(field)), e.and_(e.shl(a, shift), field)))


@semantics("integer/bmsk")
def bmsk(k: Lowering) -> None:
    e, kind = k.e, vector(I32)
    a, b = k.read("a"), k.read("b")
    if k.slot_of("mode") == "wrap":
        a, b = (e.and_(value, constant(kind, 31)) for value in (a, b))
    inside = e.icmp_unsigned("<", a, constant(kind, 32))
    shift = e.select(inside, a, constant(kind, 0))
    k.write("d", e.select(inside, e.shl(_ones(k, b), shift), constant(kind, 0)))


@semantics("integer/szext")
def szext(k: Lowering) -> None:
    e, kind = k.e, vector(I32)
    a, b = k.read("a"), k.read("b")
    if k.slot_of("mode") == "wrap":
        b = e.and_(b, constant(kind, 31))
    shift = e.sub(constant(kind, 32), e.intrinsic("umin", [b, constant(kind, 32)]))
    whole = e.icmp_unsigned(">=", shift, constant(kind, 32))
    safe = e.select(whole, constant(kind, 0), shift)
    moved = (e.ashr if _is_signed(k) else e.lshr)(e.shl(a, safe), safe)
    k.write("d", e.select(whole, constant(kind, 0), moved))


def _part(k: Lowering, letter: str, bits: int, number: int) -> Value:
    """Return byte or half `number` of a packed operand, sign- or zero-extended."""
    e, kind = k.e, vector(I32)
    up = constant(kind, 32 - bits * (number + 1))
    down = constant(kind, 32 - bits)
    signed = k.slot_of(f"{letter}type") == "s32"
    return (e.ashr if signed else e.lshr)(e.shl(k.read(letter), up), down)


@semantics("integer/dp4a")
def dp4a(k: Lowering) -> None:
    total = k.read("c")
    for number in range(4):
        total = k.e.add(total, k.e.mul(_part(k, "a", 8, number), _part(k, "b", 8, number)))
    k.write("d", total)


@semantics("integer/dp2a")
def dp2a(k: Lowering) -> None:
    total, first = k.read("c"), 0 if k.slot_of("mode") == "lo" else 2
    for number in range(2):
        total = k.e.add(total, k.e.mul(_part(k, "a", 16, number), _part(k, "b", 8, first + number)))
    k.write("d", total)
