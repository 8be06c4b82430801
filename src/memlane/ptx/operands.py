"""Operands: tokens to the operand classes of `memlane.ptx.ir`."""

from __future__ import annotations

import struct

from memlane.ptx.ir import (
    Address,
    Arguments,
    Immediate,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    TextureAddress,
    Vector,
)
from memlane.ptx.lexer import NUMBER, WORD, Cursor
from memlane.ptx.special import SPECIAL_REGISTERS

_FOLLOWED_BY_NOTHING = frozenset(",;]})")

Name = Register | Special | Symbol | Sink


class Names:
    """What a bare name means where the parser stands: a register, a special register, or a symbol.

    Names with a `%` are registers unless declared otherwise; for any other name the declarations of the enclosing scopes decide.
    """

    def __init__(self) -> None:
        self._scopes: list[dict[str, Name]] = [{}]
        self._ranges: list[list[tuple[str, int]]] = [[]]

    def enter(self) -> None:
        self._scopes.append({})
        self._ranges.append([])

    def leave(self) -> None:
        self._scopes.pop()
        self._ranges.pop()

    def declare_register(self, name: str, count: int | None) -> None:
        if count is None:
            self._scopes[-1][name] = Register(name)
        else:
            self._ranges[-1].append((name, count))

    def declare_symbol(self, name: str) -> None:
        self._scopes[-1][name] = Symbol(name)

    def lookup(self, name: str) -> Name:
        """The operand that `name` stands for."""
        innermost = self._scopes[-1]
        found = innermost.get(name)
        if found is None:
            found = innermost[name] = self._resolve(name)
        return found

    def _resolve(self, name: str) -> Name:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name in SPECIAL_REGISTERS:
            return Special(name)
        if name == "_":
            return Sink()
        if name.startswith("%") or self._in_range(name):
            return Register(name)
        base, dot, _ = name.rpartition(".")
        if dot and isinstance(self._resolve(base), Register):
            return Register(name)
        return Symbol(name)

    def _in_range(self, name: str) -> bool:
        return any(register_number(name, prefix, count) is not None for ranges in self._ranges for prefix, count in ranges)


def register_number(name: str, prefix: str, count: int | None) -> int | None:
    """Which of the registers of `.reg .b32 prefix<count>;` bears `name`; None if none does.

    >>> register_number("%r11", "%r", 12)
    11
    """
    digits = name[len(prefix) :]
    if count is None or not name.startswith(prefix) or not digits.isdecimal() or int(digits) >= count:
        return None
    return int(digits)


def parse_operand(cursor: Cursor, names: Names) -> Operand:
    """The operand that starts here."""
    text = cursor.texts[cursor.at]
    if cursor.kinds[cursor.at] == WORD:
        cursor.at += 1
        name = names.lookup(text)
        return name if cursor.texts[cursor.at] in _FOLLOWED_BY_NOTHING else _continue_name(cursor, names, name)
    if text == "[":
        return _parse_address(cursor, names)
    if text == "{":
        cursor.at += 1
        return Vector(_parse_list(cursor, names, "}"))
    if text == "(":
        cursor.at += 1
        return Arguments(_parse_list(cursor, names, ")"))
    if text == "!":
        cursor.at += 1
        register = names.lookup(cursor.expect_kind(WORD, "a predicate behind `!`"))
        if not isinstance(register, Register):
            raise cursor.error("expected a predicate behind `!`")
        return Register(register.name, negated=True)
    if cursor.kinds[cursor.at] == NUMBER or text == "-":
        return parse_immediate(cursor)
    raise cursor.error(f"expected an operand, found {cursor.found()}")


def _continue_name(cursor: Cursor, names: Names, name: Name) -> Operand:
    if cursor.accept("|"):
        return Pair(name, parse_operand(cursor, names))
    if isinstance(name, Symbol) and cursor.text in "+-" and cursor.text:
        return Symbol(name.name, parse_offset(cursor))
    return name


def _parse_list(cursor: Cursor, names: Names, close: str) -> tuple[Operand, ...]:
    items: list[Operand] = []
    if cursor.accept(close):
        return ()
    while True:
        items.append(parse_operand(cursor, names))
        if cursor.accept(close):
            return tuple(items)
        cursor.expect(",", f"or `{close}` in a list of operands")


def _parse_address(cursor: Cursor, names: Names) -> Address | TextureAddress:
    cursor.at += 1
    if cursor.kind == WORD:
        base = names.lookup(cursor.next())
        if not isinstance(base, (Register, Symbol)):
            raise cursor.error("an address starts with a register, a variable or a number")
    elif cursor.kind == NUMBER:
        number = parse_immediate(cursor)
        if cursor.accept("]"):
            return Address(number)
        raise cursor.error(f"expected `]` behind an absolute address, found {cursor.found()}")
    else:
        raise cursor.error(f"an address starts with a register, a variable or a number, found {cursor.found()}")
    if cursor.accept("]"):
        return Address(base)
    if cursor.accept(","):
        return TextureAddress((base, *_parse_list(cursor, names, "]")))
    offset = parse_offset(cursor)
    cursor.expect("]", "at the end of an address")
    return Address(base, offset)


def parse_offset(cursor: Cursor) -> int:
    """`+4`, `-4` or `+-4`."""
    sign = 1
    if cursor.text not in ("+", "-"):
        raise cursor.error(f"expected `+` or `-` and an offset, found {cursor.found()}")
    while cursor.text in ("+", "-"):
        sign = -sign if cursor.next() == "-" else sign
    return sign * _parse_integer(cursor)


def _parse_integer(cursor: Cursor) -> int:
    number = parse_immediate(cursor)
    if number.kind != "int":
        raise cursor.error("expected an integer", cursor.span(cursor.starts[cursor.at - 1]))
    return number.value


_immediates: dict[str, Immediate] = {}


def parse_immediate(cursor: Cursor) -> Immediate:
    """A literal with an optional sign."""
    sign = "-" if cursor.accept("-") else ""
    text = sign + cursor.expect_kind(NUMBER, "a number")
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
    """The literal `text`: decimal, hexadecimal, octal or binary integer, `0f` or `0d` bits, or a decimal fraction (a double).

    Raises `ValueError` with a sentence if it is none, or too large for 64 bits.
    """
    negative, digits = text.startswith("-"), text.removeprefix("-")
    prefix = digits[:2].lower()
    if prefix in ("0f", "0d"):
        bits = int(digits[2:], 16)
        width = 32 if prefix == "0f" else 64
        return Immediate(bits ^ (1 << (width - 1)) if negative else bits, f"f{width}", text)
    if prefix != "0x" and any(mark in digits for mark in ".eE"):
        value = float(digits)
        return Immediate(int(struct.unpack("<Q", struct.pack("<d", -value if negative else value))[0]), "f64", text)
    digits = digits.removesuffix("U")
    base = {"0x": 16, "0b": 2}.get(prefix, 8 if digits.startswith("0") and len(digits) > 1 else 10)
    try:
        number = int(digits, base)
    except ValueError:
        raise ValueError(f"`{text}` is no number") from None
    number = -number if negative else number
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"`{text}` does not fit into 64 bits")
    return Immediate(number, "int", text)
