"""Parse initialisers of variables into values.

    .global .u32 a[2][2] = {{1, 2}, {3 + 4, ~0}};
    .global .u64 b[2] = {a + 8, generic(c)};
    .global .u8 d[2] = {0xFF(a), 0xFF00(a)};

Braces are as deep as the variable has dimensions, a vector counting as one. Rows that are too short take only the space of their values,
and the rest of the variable is zero: this is the layout of ptxas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memlane.number_format import plural
from memlane.ptx.constants import parse_constant, parse_integer, parse_literal
from memlane.ptx.ir import Immediate, Variable
from memlane.ptx.lexer import END, NUMBER, WORD, Cursor
from memlane.ptx.types import SCALAR_TYPES
from memlane.source import Source

_OWN = "<initialiser>"
_MASKS = {0xFF << 8 * byte: byte for byte in range(8)}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an initialiser."""

    literal: Immediate | None
    """A constant; None for an address."""
    name: str = ""
    """Variable or function whose address it is."""
    offset: int = 0
    byte: int | None = None
    """Number of the byte of the value or address; None for all of it."""


def parse_initial(cursor: Cursor, variable: Variable) -> tuple[Variable, tuple[Value, ...]]:
    """Parse the initialiser at the cursor. Return the variable with it (and with its length if that was left out), and the values."""
    first = cursor.at
    reader = _Reader(cursor, variable)
    values = tuple(reader.values())
    if cursor.kind == END and cursor.source.name != _OWN:
        raise cursor.error("the text ends inside an initialiser")
    text = cursor.slice(first)
    if "//" in text or "/*" in text:
        text = cursor.spelled(first)
    return replace(variable, initial=text, shape=reader.shape), values


def initial_values(variable: Variable) -> tuple[Value, ...]:
    """Return the values of a variable that has an initialiser, in the order of its elements."""
    if variable.initial is None or variable.type not in SCALAR_TYPES:
        return ()
    return parse_initial(Cursor(Source(_OWN, variable.initial)), variable)[1]


class _Reader:
    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        self._cursor, self._variable = cursor, variable
        self.shape = variable.shape
        vector = (variable.vector,) if variable.vector > 1 else ()
        self._extents = (*(variable.shape or ()), *vector)
        self._scalar = SCALAR_TYPES[variable.type]

    def values(self) -> Iterator[Value]:
        """Yield the values; `shape` is complete after the last."""
        if not self._extents:
            if self._cursor.text == "{":
                raise self._cursor.error(f"`{self._variable.name}` is not an array: its initialiser has no braces")
            yield self._value()
            return
        yield from self._row(0)

    def _row(self, depth: int) -> Iterator[Value]:
        cursor, extent = self._cursor, self._extents[depth]
        opening = cursor.span()
        if not cursor.accept("{"):
            what = f"the initialiser of `{self._variable.name}` nests braces {len(self._extents)} deep"
            raise cursor.error(f"expected `{{`, for {what}, found {cursor.found()}")
        count = 0
        while not (count == 0 and cursor.accept("}")):
            count += 1
            if depth + 1 < len(self._extents):
                yield from self._row(depth + 1)
            else:
                yield self._value()
            if cursor.accept("}"):
                break
            if cursor.kind == END:
                raise cursor.error("`{` is never closed", opening)
            cursor.expect(",", "or `}` in an initialiser")
        if depth == 0 and self.shape and self.shape[0] == 0:
            if not count:
                raise cursor.error(f"`{self._variable.name}` has neither a length nor a value", opening)
            self.shape = (count, *self.shape[1:])
        elif count > extent:
            what = f"{plural(count, 'value')} in a row of {extent}"
            raise cursor.error(f"the initialiser of `{self._variable.name}` has {what}", cursor.span(opening.start))

    def _value(self) -> Value:
        cursor = self._cursor
        if cursor.kind == NUMBER:
            if cursor.texts[cursor.at + 1] in (",", "}", ";"):
                return self._constant(cursor.at, parse_literal(cursor))
            if cursor.texts[cursor.at + 1] == "(":
                return self._masked()
        if cursor.kind == WORD and cursor.text != "WARP_SZ":
            return self._address()
        if cursor.kind == END:
            raise cursor.error("the text ends inside an initialiser")
        first = cursor.at
        return self._constant(first, parse_constant(cursor))

    def _constant(self, first: int, literal: Immediate) -> Value:
        scalar = self._scalar
        is_float = literal.kind != "int"
        fits = is_float == (scalar.kind == "f") or (is_float and scalar.name in ("b32", "b64"))
        if not fits:
            needed = "a floating-point number" if scalar.kind == "f" else "an integer"
            span = self._cursor.span(self._cursor.starts[first])
            raise self._cursor.error(f"`{self._variable.name}` needs {needed} there: its type is `.{scalar.name}`", span)
        return Value(literal)

    def _address(self) -> Value:
        cursor = self._cursor
        first = cursor.at
        name = cursor.next()
        if name == "generic" and cursor.accept("("):
            name = cursor.expect_kind(WORD, "the name of a variable")
            cursor.expect(")", "after the variable of `generic`")
        offset = parse_integer(cursor) if cursor.accept("+") else 0
        if self._scalar.bits < 32 or self._scalar.kind == "f":
            remedy = f"declare `{self._variable.name}` as `.u64`, or select its bytes with `0xFF(...)`"
            raise cursor.error(f"an address does not fit `.{self._scalar.name}`: {remedy}", cursor.span(cursor.starts[first]))
        return Value(None, name, offset)

    def _masked(self) -> Value:
        """Parse `0xFF00(name+4)`: one byte of an address, or of a number."""
        cursor = self._cursor
        first = cursor.at
        mask = parse_literal(cursor)
        byte = _MASKS.get(mask.value)
        if byte is None or mask.kind != "int":
            raise cursor.error("a mask has the eight bits of one byte, such as `0xFF00`", cursor.span(cursor.starts[first]))
        cursor.expect("(", "after a mask")
        if cursor.kind != WORD or cursor.text == "WARP_SZ":
            value = Value(Immediate(parse_integer(cursor)), byte=byte)
        else:
            name = cursor.next()
            if name == "generic" and cursor.accept("("):
                name = cursor.expect_kind(WORD, "the name of a variable")
                cursor.expect(")", "after the variable of `generic`")
            value = Value(None, name, parse_integer(cursor) if cursor.accept("+") else 0, byte)
        cursor.expect(")", "after the operand of a mask")
        return value
