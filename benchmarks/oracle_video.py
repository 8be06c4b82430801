"""Compute video instructions by the manual's pseudocode: numbers of any size, cut to 32 bits at the end.

Comments name the rules that are those of the code that the assembler makes for sm_90, and not of the manual.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from instructions import Spelling
from oracle_table import group_answers, signed

from cases import Case

_SCALAR = "scalar-video-instructions-"
_SIMD = "simd-video-instructions-"
_WORD = 0xFFFFFFFF
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + 1 if a + b >= 0 else a + b) >> 1,
}
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def selectors(case: Case) -> list[str]:
    """Return what each operand of a case selects of its register, such as `b3`; empty for all of it."""
    instruction = case.code.rstrip(";").partition(" ")[2]
    return [operand.strip().partition(".")[2] for operand in instruction.split(",")]


def _piece(word: int, selector: str, kind: str) -> int:
    """Return a byte, a half or all of a word as a number."""
    bits = {"": 32, "b": 8, "h": 16}[selector[:1]]
    value = word >> bits * int(selector[1:] or 0) & ((1 << bits) - 1)
    return signed(value, bits) if kind == "s32" else value


def _limited(value: int, bits: int, kind: str) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def _saturated(name: str, value: int, bits: int, kind: str) -> int:
    """By the assembler's rules: parts are limited at the top only, as if unsigned; shifts to a word; unsigned sums of words at 0 only."""
    if bits < 32 and name not in ("vshl", "vshr"):
        return min(value & ((1 << 64) - 1), (1 << (bits - (kind == "s32"))) - 1)
    if kind == "u32" and name in ("vadd", "vsub", "vabsdiff"):
        return max(value, 0)
    return _limited(value, 32, kind)


def _merged(value: int, bits: int, place: int, word: int) -> int:
    mask = ((1 << bits) - 1) << bits * place
    return word & ~mask | value << bits * place & mask


def _types(s: Spelling) -> list[str]:
    return re.findall(r"[us]32", s.name)


def _scalar(s: Spelling, chosen: Sequence[str], a: int, b: int, c: int) -> int:
    name, kinds = s.row.opcode, _types(s)
    if name == "vset":
        kinds = ["u32", *kinds]
    x, y = _piece(a, chosen[1], kinds[1]), _piece(b, chosen[2], kinds[2])
    if name == "vset":
        value = int(_RELATIONS[s.form.slots["cmp"]](x, y))
    elif name in ("vshl", "vshr"):
        amount = y & 31 if s.has("wrap") else min(y, 32)
        value = x << amount if name == "vshl" else x >> amount
        if name == "vshl" and s.has("sat"):
            value = signed(value, 34)  # the width of the intermediate result, also in the code that ptxas makes of it for sm_90
    else:
        value = _OPERATIONS[name](x, y)
    bits = {"": 32, "b": 8, "h": 16}[chosen[0][:1]]
    if s.has("sat"):
        value = _saturated(name, value, bits, kinds[0])
    third = _piece(c, "", kinds[1] if name == "vset" else kinds[0])  # the assembler's rule: of `vset` it has the sign of `a`
    if name in ("vadd", "vsub") or (name in ("vshl", "vshr") and kinds[0] == "u32" and s.has("sat")):  # its rule: these are cut before
        value = signed(value & _WORD, 32)
    value &= (1 << 64) - 1  # its rule: it computes in 64 bits of the sign of `c`
    if (kinds[1] if name == "vset" else kinds[0]) == "s32":
        value = signed(value, 64)
    if chosen[0] == "h1":  # its rule: it inserts the upper half of the result, and not the lower
        value >>= 16
    for word, combined in (("add", value + third), ("min", min(value, third)), ("max", max(value, third))):
        if s.has(word):
            return combined & _WORD
    return (_merged(value, bits, int(chosen[0][1]), c) if chosen[0] else value) & _WORD


@group_answers(_SCALAR + "vadd-vsub-vabsdiff-vmin-vmax", _SCALAR + "vshl-vshr", _SCALAR + "vset")
def scalar(case: Case, threads: Sequence[Sequence[int]]) -> list[list[int]]:
    chosen = selectors(case)
    return [[_scalar(case.spelling, chosen, *(*operands, 0)[:3])] for operands in threads]


def _mad(s: Spelling, chosen: Sequence[str], a: int, b: int, c: int) -> int:
    _, *kinds = _types(s)
    is_signed = "s32" in kinds
    x, y = (  # the assembler's rule: whole words are signed, whatever their type
        _piece(word, selector, kind if selector else "s32") for word, selector, kind in zip((a, b), chosen[1:3], kinds, strict=True)
    )
    value = x * y + signed(c, 32) + s.has("po")
    if not is_signed and (s.has("shr7") or s.has("shr15")):
        value &= (1 << 64) - 1
    value >>= 7 if s.has("shr7") else 15 if s.has("shr15") else 0
    return (_limited(value, 32, "s32" if is_signed else "u32") if s.has("sat") else value) & _WORD


@group_answers(_SCALAR + "vmad")
def vmad(case: Case, threads: Sequence[Sequence[int]]) -> list[list[int]]:
    chosen = selectors(case)
    return [[_mad(case.spelling, chosen, *operands)] for operands in threads]


def _simd(s: Spelling, chosen: Sequence[str], a: int, b: int, c: int) -> int:
    name, lanes = s.row.opcode[:-1], int(s.row.opcode[-1])
    bits, kinds = 32 // lanes, _types(s)
    if name == "vset":
        kinds = ["u32", *kinds]
    orders = [[int(digit) for digit in reversed(text[1:])] for text in chosen[:3]]
    mask = orders[0] or list(range(lanes))
    first, second = orders[1] or list(range(lanes)), orders[2] or list(range(lanes, 2 * lanes))
    both = b << 32 | a
    result = c
    for place in range(lanes):
        if place not in mask:
            continue
        x, y = (
            _piece(both >> bits * order[place] & ((1 << bits) - 1), "bh"[lanes == 2] + "0", kind)
            for order, kind in ((first, kinds[1]), (second, kinds[2]))
        )
        value = int(_RELATIONS[s.form.slots["cmp"]](x, y)) if name == "vset" else _OPERATIONS[name](x, y)
        if s.has("sat"):
            value = _limited(value, bits, kinds[0])
        result = result + value if s.has("add") else _merged(value, bits, place, result)
    return result & _WORD


@group_answers(*(f"{_SIMD}{name}{lanes}" for name in (*_OPERATIONS, "vset") for lanes in "24"))
def simd(case: Case, threads: Sequence[Sequence[int]]) -> list[list[int]]:
    chosen = selectors(case)
    return [[_simd(case.spelling, chosen, *operands)] for operands in threads]
