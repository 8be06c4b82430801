"""Compute integer arithmetic, carry chains, logic and shifts by the manual's definitions."""

from __future__ import annotations

from collections.abc import Callable

from instructions import Spelling
from oracle_table import answers, clamped, number, signed, word_of

from memlane.ptx import SCALAR_TYPES

_INTEGER = "integer-arithmetic-instructions-"
_LOGIC = "logic-and-shift-instructions-"
WORD = 0xFFFFFFFF


def _type(s: Spelling) -> str:
    return s.form.slots["type"]


def _bits(s: Spelling) -> int:
    return SCALAR_TYPES[_type(s)].bits


def _whole(s: Spelling) -> int:
    return (1 << _bits(s)) - 1


def _by_parts(s: Spelling, operation: Callable[[int, int], int], a: int, b: int) -> int:
    """Apply an operation on numbers of the type; for packed types, to both halves."""
    kind = _type(s)
    if SCALAR_TYPES[kind].lanes == 1:
        return operation(number(a, kind), number(b, kind)) & _whole(s)
    halves = [operation(number(a >> shift, kind), number(b >> shift, kind)) & 0xFFFF for shift in (0, 16)]
    return halves[0] | halves[1] << 16


@answers(_INTEGER + "add")
def add(s: Spelling, a: int, b: int) -> int:
    return clamped(signed(a, 32) + signed(b, 32), "s32") if s.has("sat") else _by_parts(s, lambda x, y: x + y, a, b)


@answers(_INTEGER + "sub")
def sub(s: Spelling, a: int, b: int) -> int:
    return clamped(signed(a, 32) - signed(b, 32), "s32") if s.has("sat") else _by_parts(s, lambda x, y: x - y, a, b)


def _product(s: Spelling, a: int, b: int) -> int:
    """Return the part of the product that `.lo`, `.hi` or `.wide` takes."""
    whole = number(a, _type(s)) * number(b, _type(s))
    return whole >> _bits(s) if s.has("hi") else whole


@answers(_INTEGER + "mul")
def mul(s: Spelling, a: int, b: int) -> int:
    return _product(s, a, b) & ((1 << 2 * _bits(s)) - 1 if s.has("wide") else _whole(s))


@answers(_INTEGER + "mad")
def mad(s: Spelling, a: int, b: int, c: int) -> int:
    if s.has("sat"):
        return clamped(_product(s, a, b) + signed(c, 32), "s32")
    return (_product(s, a, b) + c) & ((1 << 2 * _bits(s)) - 1 if s.has("wide") else _whole(s))


def _product24(s: Spelling, a: int, b: int) -> int:
    """Multiply 24-bit operands. The manual does not define wider operands; an H200 uses their lower 24 bits."""
    x, y = ((signed(v, 24) if _type(s) == "s32" else v & 0xFFFFFF) for v in (a, b))
    return x * y >> 16 if s.has("hi") else x * y


@answers(_INTEGER + "mul24")
def mul24(s: Spelling, a: int, b: int) -> int:
    return _product24(s, a, b) & WORD


@answers(_INTEGER + "mad24")
def mad24(s: Spelling, a: int, b: int, c: int) -> int:
    if s.has("sat"):
        return clamped(signed(_product24(s, a, b), 32) + signed(c, 32), "s32")
    return (_product24(s, a, b) + c) & WORD


@answers(_INTEGER + "sad")
def sad(s: Spelling, a: int, b: int, c: int) -> int:
    return (c + abs(number(a, _type(s)) - number(b, _type(s)))) & _whole(s)


@answers(_INTEGER + "div")
def div(s: Spelling, a: int, b: int) -> int:
    """Divide, and round toward zero. Division by zero is open, and the least number divided by -1 wraps (observed on H200)."""
    x, y = number(a, _type(s)), number(b, _type(s))
    if y == 0:
        return 0
    return (abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)) & _whole(s)


@answers(_INTEGER + "rem")
def rem(s: Spelling, a: int, b: int) -> int:
    """Return the remainder, with the sign of the dividend."""
    x, y = number(a, _type(s)), number(b, _type(s))
    if y == 0:
        return 0
    return (abs(x) % abs(y) * (-1 if x < 0 else 1)) & _whole(s)


@answers(_INTEGER + "abs")
def abs_(s: Spelling, a: int) -> int:
    return abs(number(a, _type(s))) & _whole(s)


@answers(_INTEGER + "neg")
def neg(s: Spelling, a: int) -> int:
    return -a & _whole(s)


@answers(_INTEGER + "min", _INTEGER + "max")
def min_max(s: Spelling, a: int, b: int) -> int:
    choose = min if s.row.opcode == "min" else max
    return _by_parts(s, lambda x, y: max(choose(x, y), 0) if s.has("relu") else choose(x, y), a, b)


@answers(_INTEGER + "popc")
def popc(s: Spelling, a: int) -> int:
    return bin(a).count("1")


@answers(_INTEGER + "clz")
def clz(s: Spelling, a: int) -> int:
    return _bits(s) - a.bit_length()


@answers(_INTEGER + "bfind")
def bfind(s: Spelling, a: int) -> int:
    x = number(a, _type(s))
    place = (~x if x < 0 else x).bit_length() - 1
    if place < 0:
        return WORD
    return _bits(s) - 1 - place if s.has("shiftamt") else place


@answers(_INTEGER + "fns")
def fns(s: Spelling, mask: int, base: int, offset: int) -> int:
    """Run the manual's loop. A base above bit 31 is undefined."""
    steps = signed(offset, 32)
    if base > 31 or abs(steps) > 1 << 30:
        return WORD
    if steps == 0:
        return base if mask >> base & 1 else WORD
    places = range(base, 32) if steps > 0 else range(base, -1, -1)
    found = [place for place in places if mask >> place & 1]
    return found[abs(steps) - 1] if len(found) >= abs(steps) else WORD


@answers(_INTEGER + "brev")
def brev(s: Spelling, a: int) -> int:
    return int(f"{a:0{_bits(s)}b}"[::-1], 2)


@answers(_INTEGER + "bfe")
def bfe(s: Spelling, a: int, b: int, c: int) -> int:
    top, start, length = _bits(s) - 1, b & 0xFF, c & 0xFF
    sign = 0 if _type(s)[0] == "u" or length == 0 else a >> min(start + length - 1, top) & 1
    return sum((a >> (start + i) & 1 if i < length and start + i <= top else sign) << i for i in range(top + 1))


@answers(_INTEGER + "bfi")
def bfi(s: Spelling, a: int, b: int, c: int, d: int) -> int:
    start, length = c & 0xFF, d & 0xFF
    for place in range(start, min(start + length, _bits(s))):
        b = b & ~(1 << place) | (a >> (place - start) & 1) << place
    return b


@answers(_INTEGER + "szext")
def szext(s: Spelling, a: int, b: int) -> int:
    """Extend the lower `b` bits. With `.clamp`, widths from 32 take the whole word."""
    if s.has("clamp") and b >= 32:
        return a
    bits = b & 31
    kept = a & ((1 << bits) - 1)
    return (signed(kept, bits) & WORD if bits and _type(s) == "s32" else kept) & WORD


@answers(_INTEGER + "bmsk")
def bmsk(s: Spelling, a: int, b: int) -> int:
    if s.has("wrap"):
        a, b = a & 31, b & 31
    return ((1 << min(b, 32)) - 1) << min(a, 32) & WORD


def _parts(value: int, kind: str, bits: int) -> list[int]:
    pieces = [value >> shift & ((1 << bits) - 1) for shift in range(0, 32, bits)]
    return [signed(piece, bits) for piece in pieces] if kind == "s32" else pieces


@answers(_INTEGER + "dp4a")
def dp4a(s: Spelling, a: int, b: int, c: int) -> int:
    pairs = zip(_parts(a, s.form.slots["atype"], 8), _parts(b, s.form.slots["btype"], 8), strict=True)
    return (c + sum(x * y for x, y in pairs)) & WORD


@answers(_INTEGER + "dp2a")
def dp2a(s: Spelling, a: int, b: int, c: int) -> int:
    chosen = _parts(b, s.form.slots["btype"], 8)[2:] if s.has("hi") else _parts(b, s.form.slots["btype"], 8)[:2]
    return (c + sum(x * y for x, y in zip(_parts(a, s.form.slots["atype"], 16), chosen, strict=True))) & WORD


# -- logic and shift -----------------------------------------------------------------------------------------------------------------


@answers(_LOGIC + "and")
def and_(s: Spelling, a: int, b: int) -> int:
    return a & b


@answers(_LOGIC + "or")
def or_(s: Spelling, a: int, b: int) -> int:
    return a | b


@answers(_LOGIC + "xor")
def xor(s: Spelling, a: int, b: int) -> int:
    return a ^ b


@answers(_LOGIC + "not")
def not_(s: Spelling, a: int) -> int:
    return a ^ (1 if _type(s) == "pred" else _whole(s))


@answers(_LOGIC + "cnot")
def cnot(s: Spelling, a: int) -> int:
    return int(a == 0)


def lop3(lut: int, combine: str, a: int, b: int, c: int, q: int = 0) -> list[int]:
    """Return for each bit the entry of the table that the bits of a, b and c select. `oracle_exchange` passes the table of the case."""
    found = sum((lut >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))
    return [found, int(found != 0) | q if combine == "or" else int(found != 0) & q] if combine else [found]


@answers(_LOGIC + "shf")
def shf(s: Spelling, a: int, b: int, c: int) -> int:
    amount = min(c, 32) if s.has("clamp") else c & 31
    both = b << 32 | a
    return both << amount >> 32 & WORD if s.has("l") else both >> amount & WORD


@answers(_LOGIC + "shl")
def shl(s: Spelling, a: int, b: int) -> int:
    return a << min(b, _bits(s)) & _whole(s)


@answers(_LOGIC + "shr")
def shr(s: Spelling, a: int, b: int) -> int:
    return number(a, _type(s)) >> min(b, _bits(s)) & _whole(s)


_MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}
"""Bytes of b:a that make the result, by the lower two bits of c: the highest first, as in the manual's table."""


@answers("data-movement-and-conversion-instructions-prmt")
def prmt(s: Spelling, a: int, b: int, c: int) -> int:
    """Permute bytes. A selector with its upper bit set replicates the sign of its byte."""
    mode = word_of(s, *_MODES)
    selectors = [int(digit) for digit in reversed(_MODES[mode][c & 3])] if mode else [c >> 4 * place & 15 for place in range(4)]
    data = (b << 32 | a).to_bytes(8, "little")
    chosen = [(0xFF if data[selector & 7] >> 7 else 0) if selector & 8 else data[selector] for selector in selectors]
    return int.from_bytes(bytes(chosen), "little")
