"""Video instructions: arithmetic on words and on their bytes and halves, with a second operation.

Everything is computed in 64 bits, where no word, half or byte of either sign overflows.

For sm_90 the assembler turns the scalar ones into ordinary instructions, whose results do not always agree with the manual. The code here
gives the results of those instructions, with a comment where the manual says otherwise.
"""

from __future__ import annotations

import re

import llvmlite.ir as ir

from memlane.emulate.code.build import I1, I32, I64, Value, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.table import semantics
from memlane.errors import PtxTypeError
from memlane.ptx import Register

_WIDE = vector(I64)
_PARTS = "b[0-3]|h[01]"
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _whole(number: int) -> Value:
    return constant(_WIDE, number)


def _selector(k: Lowering, letter: str, allowed: str) -> str:
    """Return the part of its register that an operand selects, such as `b0`; empty if it selects none. `allowed` is a regular
    expression."""
    operand = k.instruction.operand(letter)
    name = operand.name if isinstance(operand, Register) else ""
    _, dot, selector = name.partition(".")
    if dot and not re.fullmatch(allowed, selector):
        raise PtxTypeError(f"`{name}`: {k.instruction.opcode} knows no part `.{selector}` there", k.instruction.span)
    return selector


def _word(k: Lowering, letter: str) -> Value:
    """Return the register of an operand, or its number, as 32 lanes of i32."""
    operand = k.instruction.operand(letter)
    assert operand is not None
    return k.bits_of(Register(operand.name.partition(".")[0]) if isinstance(operand, Register) else operand, "b32")


def _write(k: Lowering, value: Value) -> None:
    target = k.instruction.operand("d")
    assert target is not None
    whole = Register(target.name.partition(".")[0]) if isinstance(target, Register) else target
    k.write_operand(whole, k.e.trunc(value, vector(I32)), "b32")


def _part(k: Lowering, value: Value, bits: int, number: int, signed: bool) -> Value:
    """Return part `number` of `bits` bits of words, sign- or zero-extended to 64 bits."""
    e = k.e
    moved = e.shl(e.zext(value, _WIDE), _whole(64 - bits * (number + 1)))
    return (e.ashr if signed else e.lshr)(moved, _whole(64 - bits))


def _clamped(k: Lowering, value: Value, bits: int, signed: bool) -> Value:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return k.e.intrinsic("smin", [k.e.intrinsic("smax", [value, _whole(low)]), _whole(high)])


def _compared(k: Lowering, a: Value, b: Value) -> Value:
    return k.e.zext(k.e.icmp_signed(_COMPARISONS[k.slot_of("cmp")], a, b), _WIDE)


def _calculated(k: Lowering, name: str, a: Value, b: Value) -> Value:
    e = k.e
    match name:
        case "vadd":
            return e.add(a, b)
        case "vsub":
            return e.sub(a, b)
        case "vabsdiff":
            return e.intrinsic("abs", [e.sub(a, b), ir.Constant(I1, 0)])
        case "vmin" | "vmax":
            return e.intrinsic("s" + name[1:], [a, b])
        case "vavrg":  # half of the sum, rounded away from zero
            total = e.add(a, b)
            up = e.zext(e.icmp_signed(">=", total, _whole(0)), _WIDE)
            return e.ashr(e.add(total, up), _whole(1))
    assert name == "vset", name
    return _compared(k, a, b)


# -- scalar --------------------------------------------------------------------------------------------------------------------------


def _size(selector: str) -> int:
    return {"": 32, "b": 8, "h": 16}[selector[:1]]


def _source(k: Lowering, letter: str, kind: str) -> Value:
    """Return a byte, half or word of an operand, sign- or zero-extended by its type."""
    selector = _selector(k, letter, _PARTS)
    return _part(k, _word(k, letter), _size(selector), int(selector[1:] or 0), kind == "s32")


def _finish(k: Lowering, value: Value, kind: str, third: str = "") -> None:
    """Saturate, then apply the second operation or insert the result into a part of `c`. `third`: the type of `c`, unless that is
    `kind`."""
    second = k.slot_of("second")
    part = _selector(k, "d", _PARTS)
    if part and (second or not k.has("c")):
        what = f"{k.instruction.name} writes a part of its destination only where it merges that with a fourth operand"
        raise PtxTypeError(what, k.instruction.span)
    if k.instruction.has("sat"):
        value = _saturated(k, value, part, kind)
    if second:
        value = _combined(k, second, value, third or kind)
    elif part:
        shift = 16 if part == "h1" else 0  # the assembler inserts the upper half of the result there, and not the lower
        value = _merged(k, k.e.lshr(value, _whole(shift)), _size(part), int(part[1]), _part(k, _word(k, "c"), 32, 0, False))
    _write(k, value)


def _saturated(k: Lowering, value: Value, part: str, kind: str) -> Value:
    """Limit a result to the range of its type. For parts the assembler limits only at the top, as if the result were unsigned, and shifts
    to the range of a word; unsigned sums and differences of words it limits only at 0."""
    e, name = k.e, k.instruction.opcode
    if part and name not in ("vshl", "vshr"):
        return e.intrinsic("umin", [value, _whole((1 << (_size(part) - (kind == "s32"))) - 1)])
    if kind == "u32" and name in ("vadd", "vsub", "vabsdiff"):
        return e.intrinsic("smax", [value, _whole(0)])
    return _clamped(k, value, 32, kind == "s32")


def _combined(k: Lowering, second: str, value: Value, kind: str) -> Value:
    """Apply the second operation, in 64 bits of the sign of `kind`. A sum is cut to 32 bits before and extended by its sign, whatever its
    type, and so is a saturated `vshl` or `vshr` of `u32`: the manual keeps the upper bits, the assembler does not."""
    name = k.instruction.opcode
    if name in ("vadd", "vsub") or (name in ("vshl", "vshr") and kind == "u32" and k.instruction.has("sat")):
        value = _part(k, k.e.trunc(value, vector(I32)), 32, 0, True)
    c = _part(k, _word(k, "c"), 32, 0, kind == "s32")
    return k.e.add(value, c) if second == "add" else k.e.intrinsic(("s" if kind == "s32" else "u") + second, [value, c])


def _merged(k: Lowering, value: Value, bits: int, number: int, into: Value) -> Value:
    e, mask = k.e, ((1 << bits) - 1) << bits * number
    moved = e.and_(e.shl(value, _whole(bits * number)), _whole(mask))
    return e.or_(moved, e.and_(into, _whole(~mask)))


@semantics("video/vadd", "video/vsub", "video/vabsdiff", "video/vmin", "video/vmax")
def arithmetic(k: Lowering) -> None:
    a, b = (_source(k, letter, k.slot_of(f"{letter}type")) for letter in "ab")
    _finish(k, _calculated(k, k.instruction.opcode, a, b), k.slot_of("dtype"))


@semantics("video/vshl", "video/vshr")
def shift(k: Lowering) -> None:
    e, a, b = k.e, _source(k, "a", k.slot_of("atype")), _source(k, "b", "u32")
    b = e.and_(b, _whole(31)) if k.slot_of("mode") == "wrap" else e.intrinsic("umin", [b, _whole(32)])
    if k.instruction.opcode == "vshr":
        return _finish(k, e.ashr(a, b), k.slot_of("dtype"))
    value = e.shl(a, b)
    if k.instruction.has("sat"):  # saturates an intermediate result of 34 bits
        value = e.ashr(e.shl(value, _whole(30)), _whole(30))
    _finish(k, value, k.slot_of("dtype"))


@semantics("video/vset")
def vset(k: Lowering) -> None:
    """Compare. The manual says that `c` is unsigned as the result is; the assembler gives it the sign of `a`."""
    a, b = (_source(k, letter, k.slot_of(f"{letter}type")) for letter in "ab")
    _finish(k, _compared(k, a, b), "u32", k.slot_of("atype"))


@semantics("video/vmad")
def vmad(k: Lowering) -> None:
    """Multiply and add. Whole words are signed, even of `u32`: the manual says otherwise, but the assembler makes a signed multiplication
    of every `vmad`. Only the operations on the sum follow the types: it is unsigned where both factors are and
    nothing is negated."""
    e, kinds = k.e, [k.slot_of(f"{letter}type") for letter in "ab"]
    signed = "s32" in kinds
    _selector(k, "c", "")
    _selector(k, "d", "")
    a, b = (_source(k, letter, kind if _selector(k, letter, _PARTS) else "s32") for letter, kind in zip("ab", kinds, strict=True))
    minus_product, minus_c = _negations(k)
    signed = signed or minus_product or minus_c
    product, c = e.mul(a, b), _part(k, _word(k, "c"), 32, 0, True)
    total = e.add(e.neg(product) if minus_product else product, e.neg(c) if minus_c else c)
    if k.instruction.has("po"):
        total = e.add(total, _whole(1))
    scale = k.slot_of("scale")
    if scale:
        total = (e.ashr if signed else e.lshr)(total, _whole(int(scale[3:])))
    if k.instruction.has("sat"):
        total = _clamped(k, total, 32, signed)
    _write(k, total)


def _negations(k: Lowering) -> tuple[bool, bool]:
    """Return whether `vmad` negates the product of a and b, and whether it negates c. It cannot do both, nor either of them with `.po`."""
    a, b, c = (isinstance(one := k.instruction.operand(letter), Register) and one.negated for letter in "abc")
    if (a != b and c) or ((a != b or c) and k.instruction.has("po")):
        what = f"{k.instruction.name} negates either one factor or `c`, and nothing with `.po`"
        raise PtxTypeError(what, k.instruction.span)
    return a != b, c


# -- SIMD ----------------------------------------------------------------------------------------------------------------------------


def _elements(k: Lowering, letter: str, lanes: int, first: int) -> list[Value]:
    """Return the bytes or halves that an operand selects of `a` and `b` together, lowest first; by default four, or two, from `first`
    on."""
    word, last = ("b", 7) if lanes == 4 else ("h", 3)
    selector = _selector(k, letter, f"{word}[0-{last}]{{{lanes}}}")
    numbers = [int(digit) for digit in reversed(selector[1:])] or list(range(first, first + lanes))
    words, bits = [_word(k, "a"), _word(k, "b")], 32 // lanes
    return [_part(k, words[number // lanes], bits, number % lanes, k.slot_of(f"{letter}type") == "s32") for number in numbers]


@semantics(
    "video/vadd2",
    "video/vadd4",
    "video/vsub2",
    "video/vsub4",
    "video/vavrg2",
    "video/vavrg4",
    "video/vabsdiff2",
    "video/vabsdiff4",
    "video/vmin2",
    "video/vmin4",
    "video/vmax2",
    "video/vmax4",
    "video/vset2",
    "video/vset4",
)
def simd(k: Lowering) -> None:
    """Compute on bytes or halves. Results go to the parts that the destination selects; the others keep those of `c`. With `.add` all
    results are added to `c`."""
    e, name, lanes = k.e, k.instruction.opcode[:-1], int(k.instruction.opcode[-1])
    bits, _ = 32 // lanes, _selector(k, "c", "")
    chosen = _selector(k, "d", "h1?0|h1" if lanes == 2 else "b(?=.)3?2?1?0?")
    places = {int(digit) for digit in chosen[1:]} or set(range(lanes))
    pairs = zip(_elements(k, "a", lanes, 0), _elements(k, "b", lanes, lanes), strict=True)
    total = _part(k, _word(k, "c"), 32, 0, False)
    for number, (a, b) in enumerate(pairs):
        if number in places:
            value = _calculated(k, name, a, b)
            if k.instruction.has("sat"):
                value = _clamped(k, value, bits, k.slot_of("dtype") == "s32")
            total = e.add(total, value) if k.instruction.has("add") else _merged(k, value, bits, number, total)
    _write(k, total)
