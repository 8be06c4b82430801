"""Evaluate constant expressions: tokens to a literal.

    5    0x1F    -7/2    (1 << 4) | 3    WARP_SZ - 1    1.5 * 2.0    (.u64)-1 >> 1

Integers have 64 bits and are signed until an operand is unsigned, as in C; `~`, `&`, `|`, `^` and `%` give unsigned numbers and comparisons
signed ones. Floating-point numbers are doubles and do not mix with integers. Where the manual is silent the values are those of ptxas,
which takes a shift amount modulo 64.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass

from memlane.ptx.ir import Immediate
from memlane.ptx.lexer import MARK, NUMBER, WORD, Cursor
from memlane.ptx.types import ScalarType
from memlane.source import shortened

_BITS = (1 << 64) - 1
_WARP_SIZE = 32

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""Binary operators, from the lowest to the highest precedence."""
_TWO_MARKS = frozenset({"||", "&&", "==", "!=", "<=", ">=", "<<", ">>"})
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True, slots=True)
class _Value:
    """An intermediate value: `kind` is `s` or `u` for 64-bit integers, `f` for doubles."""

    kind: str
    number: float
    literal: Immediate | None = None
    """The literal as written, if the value is a single literal."""


def begins_expression(cursor: Cursor) -> bool:
    """Return whether a constant expression, and not a name, stands at the cursor."""
    return cursor.kind == NUMBER or cursor.text in ("-", "+", "~", "(", "!") or cursor.text == "WARP_SZ"


def parse_constant(cursor: Cursor) -> Immediate:
    """Parse the constant expression at the cursor. A single literal keeps its spelling."""
    value = _ternary(cursor)
    if value.literal is not None:
        return value.literal
    if value.kind == "f":
        return Immediate(int.from_bytes(struct.pack("<d", value.number), "little"), "f64")
    return Immediate(int(value.number))


def parse_integer(cursor: Cursor) -> int:
    """Parse a constant expression that is an integer."""
    first = cursor.starts[cursor.at]
    found = parse_constant(cursor)
    if found.kind != "int":
        raise cursor.error("expected an integer", cursor.span(first))
    return found.value


def parse_literal(cursor: Cursor) -> Immediate:
    """Parse one literal with an optional sign; an operator behind it is not consumed."""
    sign = "-" if cursor.accept("-") else ""
    return _literal(cursor, sign + cursor.expect_kind(NUMBER, "a number"))


def bits_of(literal: Immediate, scalar: ScalarType) -> int:
    """Return the bits of a literal as a value of a type.

    A double becomes the nearest f32, f16 or bf16. The bits of `0f...` are not converted: as a 64-bit value the upper bits are zero.
    """
    if literal.kind != "f64" or scalar.bits == 64:
        return literal.value & ((1 << scalar.bits) - 1)
    number = struct.unpack("<d", literal.value.to_bytes(8, "little"))[0]
    if scalar.name == "f16":
        return _packed("<e", number)
    single = _packed("<f", number)
    if scalar.bits == 16:  # bf16: the upper half of an f32, rounded to even
        return single >> 16 if math.isnan(number) else (single + 0x7FFF + (single >> 16 & 1)) >> 16
    return single & ((1 << scalar.bits) - 1)


def _packed(layout: str, number: float) -> int:
    try:
        return int.from_bytes(struct.pack(layout, number), "little")
    except OverflowError:  # larger than the largest number: infinity, as ptxas rounds
        return int.from_bytes(struct.pack(layout, math.copysign(math.inf, number)), "little")


# -- the grammar -------------------------------------------------------------------------------------------------------------------


def _ternary(cursor: Cursor) -> _Value:
    condition = _binary(cursor, 0)
    if not cursor.accept("?"):
        return condition
    chosen = bool(_integer(cursor, condition).number)
    first = _integer(cursor, _ternary(cursor))
    cursor.expect(":", "after the second part of `? :`")
    second = _integer(cursor, _ternary(cursor))
    return _Value((first if chosen else second).kind, (first if chosen else second).number)


def _binary(cursor: Cursor, level: int) -> _Value:
    if level == len(_LEVELS):
        return _unary(cursor)
    left = _binary(cursor, level + 1)
    while (symbol := _operator(cursor)) in _LEVELS[level]:
        start = cursor.starts[cursor.at]
        cursor.at += len(symbol)
        left = _apply(cursor, symbol, left, _binary(cursor, level + 1), start)
    return left


def _operator(cursor: Cursor) -> str:
    """Return the binary operator at the cursor, of one or two adjacent marks; some other text if there is none."""
    text = cursor.text
    if cursor.kind == MARK:
        both = text + cursor.texts[cursor.at + 1]
        if both in _TWO_MARKS and cursor.starts[cursor.at + 1] == cursor.starts[cursor.at] + 1:
            return both
    return text


def _unary(cursor: Cursor) -> _Value:
    if cursor.kind == NUMBER:
        literal = _literal(cursor, cursor.next())
        return _literal_value(literal)
    if cursor.kind == WORD and cursor.accept("WARP_SZ"):
        return _Value("s", _WARP_SIZE)
    symbol = cursor.text
    if symbol not in ("-", "+", "~", "!", "("):
        raise cursor.error(f"expected a number, found {cursor.found()}")
    cursor.at += 1
    if symbol == "(":
        return _parenthesis(cursor)
    if symbol == "-" and cursor.kind == NUMBER:
        return _literal_value(_literal(cursor, "-" + cursor.next()))
    start = cursor.starts[cursor.at - 1]
    value = _unary(cursor)
    if symbol in "+-":
        _reject_bit_literal(cursor, value, start)
        return value if symbol == "+" else _wrap(value.kind, -value.number)
    number = int(_integer(cursor, value).number)
    return _wrap("u", ~number) if symbol == "~" else _Value("s", int(not number))


def _parenthesis(cursor: Cursor) -> _Value:
    """Parse what stands behind `(`: an expression and `)`, or a cast such as `.u64)` and its operand."""
    cast = cursor.text
    if cast in (".u64", ".s64"):
        cursor.at += 1
        cursor.expect(")", "after the type of a cast")
        return _wrap(cast[1], _integer(cursor, _unary(cursor)).number)
    value = _ternary(cursor)
    cursor.expect(")", "at the end of a constant expression")
    return value


# -- arithmetic --------------------------------------------------------------------------------------------------------------------


def _apply(cursor: Cursor, symbol: str, a: _Value, b: _Value, start: int) -> _Value:
    """Return the value of `a symbol b`; errors point to the text from the operator on."""
    for one in (a, b):
        _reject_bit_literal(cursor, one, start)
    if (a.kind == "f") != (b.kind == "f"):
        raise cursor.error(f"`{symbol}` takes two integers or two floating-point numbers, not one of each", cursor.span(start))
    if symbol == "/" and b.number == 0:
        raise cursor.error("division by zero in a constant expression", cursor.span(start))
    if a.kind == "f" and symbol in _ARITHMETIC:
        try:
            return _Value("f", _ARITHMETIC[symbol](a.number, b.number))
        except OverflowError:
            raise cursor.error("a constant expression is too large for a double", cursor.span(start)) from None
    if a.kind == "f" and symbol not in _COMPARISONS:
        raise cursor.error(f"`{symbol}` takes integers", cursor.span(start))
    unsigned = "u" in (a.kind, b.kind)
    if symbol in _COMPARISONS:
        x, y = (value.number if not unsigned else int(value.number) & _BITS for value in (a, b))
        return _Value("s", int(_COMPARISONS[symbol](x, y)))
    if symbol in ("&&", "||"):
        return _Value("s", int(bool(a.number) and bool(b.number) if symbol == "&&" else bool(a.number) or bool(b.number)))
    return _apply_to_integers(cursor, symbol, a, b, start)


def _apply_to_integers(cursor: Cursor, symbol: str, a: _Value, b: _Value, start: int) -> _Value:
    x, y = int(a.number), int(b.number)
    if symbol in ("<<", ">>"):
        return _wrap(a.kind, x << (y & 63) if symbol == "<<" else x >> (y & 63))
    kind = "u" if "u" in (a.kind, b.kind) or symbol in "&|^%" else "s"
    if kind == "u":
        x, y = x & _BITS, y & _BITS
    match symbol:
        case "+" | "-" | "*":
            return _wrap(kind, int(_ARITHMETIC[symbol](x, y)))
        case "&" | "|" | "^":
            return _wrap(kind, {"&": x & y, "|": x | y, "^": x ^ y}[symbol])
        case "/":
            return _wrap(kind, abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))
    if y == 0:
        raise cursor.error("division by zero in a constant expression", cursor.span(start))
    return _wrap(kind, x % y)


def _wrap(kind: str, number: float) -> _Value:
    """Return the number wrapped to 64 bits."""
    if kind == "f":
        return _Value(kind, number)
    low = int(number) & _BITS
    return _Value(kind, low if kind == "u" or low < 1 << 63 else low - (1 << 64))


def _integer(cursor: Cursor, value: _Value) -> _Value:
    if value.kind == "f":
        raise cursor.error("expected an integer in a constant expression", cursor.span(cursor.starts[cursor.at - 1]))
    return value


def _reject_bit_literal(cursor: Cursor, value: _Value, start: int) -> None:
    """Reject arithmetic with `0f...` and `0d...`, which ptxas treats as bits and not as numbers."""
    if value.literal is not None and value.literal.text.lstrip("-")[:2].lower() in ("0f", "0d"):
        raise cursor.error(
            "a bit literal such as `0f3F800000` cannot be part of an expression: write a decimal fraction", cursor.span(start)
        )


# -- literals ----------------------------------------------------------------------------------------------------------------------


def _literal_value(literal: Immediate) -> _Value:
    if literal.kind == "int":
        digits = literal.text.removeprefix("-").removesuffix("U")
        unsigned = literal.text.endswith("U") or int(immediate(digits).value) >= 1 << 63
        value = _wrap("u" if unsigned else "s", literal.value)
        return _Value(value.kind, value.number, literal)
    if literal.kind == "f64":
        return _Value("f", struct.unpack("<d", literal.value.to_bytes(8, "little"))[0], literal)
    return _Value("f", struct.unpack("<f", literal.value.to_bytes(4, "little"))[0], literal)


_immediates: dict[str, Immediate] = {}


def _literal(cursor: Cursor, text: str) -> Immediate:
    found = _immediates.get(text)
    if found is None:
        try:
            found = immediate(text)
        except ValueError as error:
            raise cursor.error(str(error), cursor.span(cursor.starts[cursor.at - 1])) from None
        if len(_immediates) < 1 << 16:
            _immediates[text] = found
    return found


def immediate(text: str) -> Immediate:
    """Return the literal `text`: decimal, hexadecimal, octal or binary integer, `0f` or `0d` bits, or a decimal fraction (a double).

    Raises `ValueError` with a message if it is not a literal, or too large for 64 bits.
    """
    negative, digits = text.startswith("-"), text.removeprefix("-")
    prefix = digits[:2].lower()
    if prefix in ("0f", "0d"):
        bits = int(digits[2:], 16)
        width = 32 if prefix == "0f" else 64
        return Immediate(bits ^ (1 << (width - 1)) if negative else bits, f"f{width}", text)
    if prefix != "0x" and any(mark in digits for mark in ".eE"):
        value = float(digits)
        if math.isinf(value):
            raise ValueError(f"`{shortened(text)}` is too large for a double")
        return Immediate(int(struct.unpack("<Q", struct.pack("<d", -value if negative else value))[0]), "f64", text)
    digits = digits.removesuffix("U")
    base = {"0x": 16, "0b": 2}.get(prefix, 8 if digits.startswith("0") and len(digits) > 1 else 10)
    try:
        number = int(digits, base)
    except ValueError:
        raise ValueError(f"`{shortened(text)}` is not a number") from None
    if number >= 1 << 64:
        raise ValueError(f"`{shortened(text)}` does not fit into 64 bits")
    number = -number if negative else number
    return Immediate(number if number >= -(1 << 63) else number + (1 << 64), "int", text)
