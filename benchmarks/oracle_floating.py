"""Compute floating-point arithmetic in exact fractions, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from exact import DOUBLE, FORMATS, HALF, SINGLE, Binary, added, converted, divided, multiplied, multiplied_and_added, root
from instructions import Spelling
from oracle_table import NotKnownError, answers, word_of

_FLOATING = "floating-point-instructions-"
_HALF = "half-precision-floating-point-instructions-"
_MIXED = "mixed-precision-floating-point-instructions-"


def kind_of(s: Spelling) -> str:
    """Return the type of the result."""
    return s.form.types["d"]


OOB_NAN = 0x7FF7
"""What fills a box of a tensor outside its array, where the map asks for NaN (observed on H200)."""


def direction(s: Spelling) -> str:
    return word_of(s, "rz", "rm", "rp") or "rn"


def in_parts(s: Spelling, kind: str, operation: Callable[..., int], *operands: int) -> int:
    """Apply an operation on numbers; for packed types, to both halves."""
    if s.has("f32x2"):
        raise NotKnownError
    form = FORMATS[kind.removesuffix("x2")]
    if not kind.endswith("x2"):
        return operation(form, *operands)
    halves = [operation(form, *(operand >> shift & 0xFFFF for operand in operands)) for shift in (0, 16)]
    return halves[0] | halves[1] << 16


def flushes(s: Spelling, form: Binary) -> bool:
    return s.has("ftz") and form in (SINGLE, HALF)


def inputs(s: Spelling, form: Binary, values: Sequence[int]) -> list[int]:
    """Return the operands; with `.ftz` subnormal ones are zeros of their sign."""
    return [form.flushed(value) for value in values] if flushes(s, form) else list(values)


def finished(s: Spelling, form: Binary, result: int | None) -> int:
    """Apply the steps after rounding: `.ftz`, `.sat`, `.relu`, and the canonical NaN."""
    if result is None or form.is_nan(result):
        return 0 if s.has("sat") else form.nothing
    if flushes(s, form):
        result = form.flushed(result)
    if (s.has("sat") or s.has("relu")) and result & form.sign:
        return 0
    return min(result, form.one) if s.has("sat") else result


def _early(s: Spelling, form: Binary, exact: Callable[[str], int | None]) -> int | None:
    """Return a product or quotient, with `.ftz` applied before rounding: it is zero if the result rounded toward zero is subnormal.

    Observed on H200; the manual does not say whether `.ftz` applies before or after rounding.
    """
    result = exact(direction(s))
    if flushes(s, form) and result is not None:
        cut = exact("rz")
        return form.flushed(cut) if cut is not None and form.is_subnormal(cut) else result
    return result


@answers(_FLOATING + "add", _HALF + "add")
def add(s: Spelling, *values: int) -> int:
    def one(form: Binary, a: int, b: int) -> int:
        return finished(s, form, added(form, *inputs(s, form, (a, b)), direction(s)))

    return in_parts(s, kind_of(s), one, *values)


@answers(_FLOATING + "sub", _HALF + "sub")
def sub(s: Spelling, *values: int) -> int:
    def one(form: Binary, a: int, b: int) -> int:
        a, b = inputs(s, form, (a, b))
        return finished(s, form, None if form.is_nan(b) else added(form, a, b ^ form.sign, direction(s)))

    return in_parts(s, kind_of(s), one, *values)


@answers(_FLOATING + "mul", _HALF + "mul")
def mul(s: Spelling, *values: int) -> int:
    def one(form: Binary, a: int, b: int) -> int:
        a, b = inputs(s, form, (a, b))
        return finished(s, form, _early(s, form, lambda way: multiplied(form, a, b, way)))

    return in_parts(s, kind_of(s), one, *values)


@answers(_FLOATING + "fma", _FLOATING + "mad", _HALF + "fma")
def fma(s: Spelling, *values: int) -> int:
    """Compute `fma`. Its `.ftz` applies to the rounded result (observed on H200)."""

    def one(form: Binary, a: int, b: int, c: int) -> int:
        if s.has("oob") and OOB_NAN in (a & 0x7FFF, b & 0x7FFF):
            return 0
        return finished(s, form, multiplied_and_added(form, *inputs(s, form, (a, b, c)), direction(s)))

    return in_parts(s, kind_of(s), one, *values)


@answers(_FLOATING + "div")
def div(s: Spelling, a: int, b: int) -> int:
    form = FORMATS[kind_of(s)]
    x, y = inputs(s, form, (a, b))
    if s.has("approx") or s.has("full"):
        return _approximate_quotient(s, form, x, y)
    return finished(s, form, _early(s, form, lambda way: divided(form, x, y, way)))


def _approximate_quotient(s: Spelling, form: Binary, a: int, b: int) -> int:
    """Return the nearest quotient. By the manual, `.approx` gives 0 for divisors above 2^126, or NaN if the dividend is infinite."""
    if s.has("approx") and not form.is_nan(b) and not form.is_infinite(b) and abs(form.value(b)) > Fraction(2) ** 126:
        if form.is_nan(a) or form.is_infinite(a):
            return form.nothing
        return (a ^ b) & form.sign
    return finished(s, form, divided(form, a, b, "rn"))


@answers(_FLOATING + "rcp")
def rcp(s: Spelling, a: int) -> int:
    form = FORMATS[kind_of(s)]
    (x,) = inputs(s, form, (a,))
    return finished(s, form, _early(s, form, lambda way: divided(form, form.one, x, way)))


@answers(_FLOATING + "sqrt")
def sqrt(s: Spelling, a: int) -> int:
    form = FORMATS[kind_of(s)]
    return finished(s, form, root(form, inputs(s, form, (a,))[0], direction(s)))


def _inverse_root(form: Binary, a: int, bits: int) -> int | None:
    """Return 1 / sqrt(a), by an integer root with more bits than needed."""
    if form.is_nan(a) or (a & form.sign and a != form.sign):
        return None
    if a & ~form.sign in (0, form.infinity):
        return form.infinity | a & form.sign if a & ~form.sign == 0 else 0
    scaled = Fraction(1) / form.value(a) * 4 ** (form.bias + bits)
    return form.round(Fraction(math.isqrt(int(scaled)), 2 ** (form.bias + bits)), "rn")


@answers(_FLOATING + "rsqrt")
def rsqrt(s: Spelling, a: int) -> int:
    form = FORMATS[kind_of(s)]
    return finished(s, form, _inverse_root(form, inputs(s, form, (a,))[0], 80))


@answers(_FLOATING + "rcp-approx-ftz-f64", _FLOATING + "rsqrt-approx-ftz-f64")
def upper_words(s: Spelling, a: int) -> int:
    """Return `rcp` or `rsqrt` of an f64 whose lower word is ignored, without the result's lower word. Subnormal numbers are zeros."""
    a = DOUBLE.flushed(a & 0xFFFFFFFF << 32)
    found = _inverse_root(DOUBLE, a, 80) if s.row.opcode == "rsqrt" else divided(DOUBLE, DOUBLE.one, a, "rn")
    return DOUBLE.nothing if found is None else DOUBLE.flushed(found & 0xFFFFFFFF << 32)


def _true(function: Callable[[float], float], form: Binary, a: int) -> int | None:
    """Apply a function of the C library in double precision, then round: far more precise than any promised bound."""
    x = math.copysign(math.inf, -1 if a & form.sign else 1) if form.is_infinite(a) else float(form.value(a))
    try:
        found = function(-0.0 if a == form.sign else x)
    except OverflowError:
        return form.infinity
    except ValueError:
        return None
    if math.isnan(found):
        return None
    if math.isinf(found):
        return form.infinity | (form.sign if found < 0 else 0)
    sign = form.sign if math.copysign(1.0, found) < 0 else 0
    return form.round(Fraction(found), "rn") if found else sign


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.log2(x)


_FUNCTIONS: dict[str, Callable[[float], float]] = {"sin": math.sin, "cos": math.cos, "lg2": _log2, "ex2": math.exp2, "tanh": math.tanh}


@answers(*(_FLOATING + name for name in _FUNCTIONS), _HALF + "tanh", _HALF + "ex2")
def transcendental(s: Spelling, *values: int) -> int:
    def one(form: Binary, a: int) -> int:
        (x,) = inputs(s, form, (a,))
        return finished(s, form, None if form.is_nan(x) else _true(_FUNCTIONS[s.row.opcode], form, x))

    return in_parts(s, kind_of(s), one, *values)


# -- signs and selection -------------------------------------------------------------------------------------------------------------


@answers(_FLOATING + "abs", _HALF + "abs")
def abs_(s: Spelling, a: int) -> int:
    return in_parts(s, kind_of(s), lambda form, x: inputs(s, form, (x,))[0] & ~form.sign, a)


@answers(_FLOATING + "neg", _HALF + "neg")
def neg(s: Spelling, a: int) -> int:
    return in_parts(s, kind_of(s), lambda form, x: inputs(s, form, (x,))[0] ^ form.sign, a)


@answers(_FLOATING + "copysign")
def copysign(s: Spelling, a: int, b: int) -> int:
    form = FORMATS[kind_of(s)]
    return a & form.sign | b & ~form.sign


@answers(_FLOATING + "min", _HALF + "min", _FLOATING + "max", _HALF + "max")
def min_max(s: Spelling, *values: int) -> int:
    """Compute `min` or `max`. A number wins over a NaN except with `.NaN`; -0 is below +0."""

    def one(form: Binary, *given: int) -> int:
        xs = inputs(s, form, given)
        sign = 0
        for x in xs:
            sign ^= x & form.sign
        numbers = [x & ~form.sign if s.has("abs") else x for x in xs if not form.is_nan(x)]
        if not numbers or (s.has("NaN") and len(numbers) < len(xs)):
            return form.nothing
        # Bits are ordered as the numbers are, the negative ones the other way round.
        found = (min if s.row.opcode == "min" else max)(numbers, key=lambda x: -(x & ~form.sign) - 1 if x & form.sign else x)
        return found & ~form.sign | sign if s.has("xorsign") else found

    return in_parts(s, kind_of(s), one, *values)


@answers(_FLOATING + "testp")
def testp(s: Spelling, a: int) -> int:
    """Compute `testp`. Zeros are normal (observed on H200)."""
    form = FORMATS[s.form.slots["type"]]
    infinite, nothing, subnormal = form.is_infinite(a), form.is_nan(a), form.is_subnormal(a)
    holds = {
        "finite": not infinite and not nothing,
        "infinite": infinite,
        "number": not nothing,
        "notanumber": nothing,
        "normal": not (infinite or nothing or subnormal),
        "subnormal": subnormal,
    }
    return int(holds[s.form.slots["class"]])


# -- mixed with f32 ------------------------------------------------------------------------------------------------------------------


def _widened(kind: str, bits: int) -> int:
    found = converted(SINGLE, FORMATS[kind], bits, "rn")
    return SINGLE.nothing if found is None else found


@answers(_MIXED + "add")
def mixed_add(s: Spelling, a: int, b: int) -> int:
    return finished(s, SINGLE, added(SINGLE, _widened(s.form.slots["atype"], a), b, direction(s)))


@answers(_MIXED + "sub")
def mixed_sub(s: Spelling, a: int, b: int) -> int:
    return finished(s, SINGLE, added(SINGLE, _widened(s.form.slots["atype"], a), b ^ SINGLE.sign, direction(s)))


@answers(_MIXED + "fma")
def mixed_fma(s: Spelling, a: int, b: int, c: int) -> int:
    x, y = (_widened(s.form.slots["abtype"], value) for value in (a, b))
    return finished(s, SINGLE, multiplied_and_added(SINGLE, x, y, c, direction(s)))
