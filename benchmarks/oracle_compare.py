"""Compute comparisons and selections."""

from __future__ import annotations

from exact import FORMATS, Binary
from instructions import Spelling
from oracle_floating import inputs
from oracle_table import answers, number

from memlane.ptx import SCALAR_TYPES

_COMPARISON = "comparison-and-selection-instructions-"
_HALF = "half-precision-comparison-instructions-"


def _order(form: Binary, a: int, b: int) -> str:
    """Return `<`, `=` or `>`; empty if one operand is a NaN."""
    if form.is_nan(a) or form.is_nan(b):
        return ""
    x, y = (-(value & ~form.sign) if value & form.sign else value for value in (a, b))
    return "<" if x < y else ">" if x > y else "="


_MEANINGS = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
    "num": "<=>",
}


def holds(s: Spelling, kind: str, a: int, b: int) -> bool:
    """Return whether the comparison holds between two numbers of a type."""
    relation = s.form.slots["cmp"]
    if SCALAR_TYPES[kind].kind != "f":
        x, y = (value if relation in ("lo", "ls", "hi", "hs") else number(value, kind) for value in (a, b))
        return ("<" if x < y else ">" if x > y else "=") in _MEANINGS[relation]
    form = FORMATS[kind]
    found = _order(form, *inputs(s, form, (a, b)))
    if relation == "nan":
        return not found
    if relation.endswith("u") and relation != "num":
        return not found or found in _MEANINGS[relation[:-1]]
    return bool(found) and found in _MEANINGS[relation]


def _compared(s: Spelling, kind: str, a: int, b: int) -> list[bool]:
    if not kind.endswith("x2"):
        return [holds(s, kind, a, b)]
    return [holds(s, kind[:-2], a >> shift & 0xFFFF, b >> shift & 0xFFFF) for shift in (0, 16)]


def _combined(s: Spelling, found: bool, c: int | None) -> int:
    word = s.form.slots.get("bool")
    if word is None or c is None:
        return int(found)
    return {"and": int(found) & c, "or": int(found) | c, "xor": int(found) ^ c}[word]


@answers(_COMPARISON + "setp", _HALF + "setp")
def setp(s: Spelling, a: int, b: int, c: int | None = None) -> list[int]:
    """Return p and q. q is the opposite of p before the predicate c is applied; for packed numbers, p is the lower comparison and q the
    upper one."""
    found = _compared(s, s.form.slots["type"], a, b)
    second = found[1] if len(found) > 1 else not found[0]
    return [_combined(s, found[0], c), _combined(s, second, c)]


_ONES = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}


@answers(_COMPARISON + "set", _HALF + "set")
def set_(s: Spelling, a: int, b: int, c: int | None = None) -> int:
    """Return all ones or 1.0 if the comparison holds; for packed numbers, in each half."""
    target = s.form.slots["dtype"]
    found = [_combined(s, one, c) for one in _compared(s, s.form.slots["stype"], a, b)]
    width = SCALAR_TYPES[target].bits // len(found)
    one = _ONES.get(target, (1 << width) - 1)
    return sum(one << (width * place) for place, holds_there in enumerate(found) if holds_there)


@answers(_COMPARISON + "selp")
def selp(s: Spelling, a: int, b: int, c: int) -> int:
    return a if c else b


@answers(_COMPARISON + "slct")
def slct(s: Spelling, a: int, b: int, c: int) -> int:
    """Return a if c >= 0, which includes -0 and excludes a NaN, else b."""
    if s.form.types["c"] == "s32":
        return b if c >> 31 else a
    form = FORMATS["f32"]
    (x,) = inputs(s, form, (c,))
    return b if form.is_nan(x) or (x & form.sign and x != form.sign) else a
