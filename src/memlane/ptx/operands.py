"""Parse operands: tokens to the operand classes of `memlane.ptx.ir`."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.ptx.constants import begins_expression, parse_constant, parse_integer, parse_literal
from memlane.ptx.ir import (
    Address,
    Arguments,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    TextureAddress,
    Variable,
    Vector,
)
from memlane.ptx.lexer import NUMBER, WORD, Cursor
from memlane.ptx.special_registers import COLOURS, SPECIAL_REGISTERS
from memlane.ptx.types import SCALAR_TYPES

_FOLLOWED_BY_NOTHING = frozenset(",;]})")

Name = Register | Special | Symbol | Sink
Declared = tuple[str, int]
"""Type and vector length of a register."""


@dataclass(frozen=True, slots=True)
class Sum:
    """`%r1+4` as an operand: a register plus a constant. The parser emits an addition in front of the instruction for it."""

    base: Register | Special
    offset: int
    type: str
    """Declared type of the register."""


class Names:
    """Symbol table of the parser: whether a bare name is a register, a special register, or a symbol.

    Names with a `%` are registers unless declared otherwise; for any other name the declarations of the enclosing scopes decide.
    """

    def __init__(self) -> None:
        self._scopes: list[dict[str, Name]] = [{}]
        self._ranges: list[list[tuple[str, int, Declared]]] = [[]]
        self._types: list[dict[str, Declared]] = [{}]
        self._variables: list[dict[str, Variable]] = [{}]
        self.has_vectors = False
        """Whether a vector register has been declared anywhere so far."""

    def enter(self) -> None:
        self._scopes.append({})
        self._ranges.append([])
        self._types.append({})
        self._variables.append({})

    def leave(self) -> None:
        self._scopes.pop()
        self._ranges.pop()
        self._types.pop()
        self._variables.pop()

    def declare_register(self, name: str, count: int | None, type_name: str, vector: int = 1) -> None:
        self.has_vectors = self.has_vectors or vector > 1
        if count is None:
            self._scopes[-1][name] = Register(name)
            self._types[-1][name] = type_name, vector
        else:
            self._ranges[-1].append((name, count, (type_name, vector)))

    def declare_variable(self, variable: Variable) -> None:
        self._scopes[-1][variable.name] = Symbol(variable.name)
        self._variables[-1][variable.name] = variable

    def declared(self, name: str) -> Declared | None:
        """Return type and vector length of a register; None if the text does not declare it."""
        for types, ranges in zip(reversed(self._types), reversed(self._ranges), strict=True):
            if name in types:
                return types[name]
            for prefix, count, declared in ranges:
                if register_number(name, prefix, count) is not None:
                    return declared
        return None

    def spread(self, register: Register) -> Operand:
        """Return a vector register as its elements, `{v.x, v.y}` for `v`; any other register unchanged.

        So passes need not handle vectors.
        """
        if "." in register.name:
            return register
        _, length = self.declared(register.name) or ("", 1)
        return register if length == 1 else Vector(tuple(Register(f"{register.name}.{element}") for element in "xyzw"[:length]))

    def variable(self, name: str) -> Variable | None:
        """Return the variable or parameter with a name; None if there is none."""
        return next((variables[name] for variables in reversed(self._variables) if name in variables), None)

    def lookup(self, name: str) -> Name:
        """Return the operand that `name` stands for."""
        innermost = self._scopes[-1]
        found = innermost.get(name)
        if found is None:
            found = innermost[name] = self._resolve(name)
        return found

    def _resolve(self, name: str) -> Name:
        # Innermost first: a register of a block hides a variable around it, also if a range declares the register.
        for scope, ranges in zip(reversed(self._scopes), reversed(self._ranges), strict=True):
            if name in scope:
                return scope[name]
            if any(register_number(name, prefix, count) is not None for prefix, count, _ in ranges):
                return Register(name)
        if name in SPECIAL_REGISTERS:
            return Special(name)
        if (axis := COLOURS.get(name[-1:])) and f"{name[:-1]}{axis}" in SPECIAL_REGISTERS and name[-2:-1] == ".":
            return Special(f"{name[:-1]}{axis}")
        if name == "_":
            return Sink()
        if name.startswith("%"):
            return Register(name)
        base, dot, _ = name.rpartition(".")
        if dot and isinstance(self._resolve(base), Register):
            return Register(name)
        return Symbol(name)

    def meet(self, variable: Variable) -> bool:
        """Return whether the innermost scope declares a register of that name."""
        ranges = self._ranges[-1]
        return variable.name in self._types[-1] or any(
            register_number(variable.name, prefix, count) is not None for prefix, count, _ in ranges
        )


def register_number(name: str, prefix: str, count: int | None) -> int | None:
    """Return the number of the register `name` among those of `.reg .b32 prefix<count>;`; None if it is not one of them.

    >>> register_number("%r11", "%r", 12)
    11
    """
    digits = name[len(prefix) :]
    if count is None or not name.startswith(prefix) or not digits.isdecimal() or int(digits) >= count:
        return None
    return int(digits)


def parse_operand(cursor: Cursor, names: Names, opcode: str = "") -> Operand | Sum:
    """Parse the operand at the cursor. In a call, a parenthesis begins a list of arguments and not a constant expression."""
    text = cursor.texts[cursor.at]
    kind = cursor.kinds[cursor.at]
    if kind == WORD and text != "WARP_SZ":
        cursor.at += 1
        name = names.lookup(text)
        if text[0] == "%" and opcode.partition(".")[0] == "bra" and isinstance(name, Register) and names.declared(text) is None:
            name = Symbol(text)
        return name if cursor.texts[cursor.at] in _FOLLOWED_BY_NOTHING else _continue_name(cursor, names, name, opcode)
    if kind == NUMBER and cursor.texts[cursor.at + 1] in _FOLLOWED_BY_NOTHING:
        return parse_literal(cursor)
    if text == "[":
        return _parse_address(cursor, names)
    if text == "{":
        cursor.at += 1
        return Vector(_parse_list(cursor, names, "}"))
    if text == "(" and opcode.startswith("call"):
        cursor.at += 1
        return Arguments(_parse_list(cursor, names, ")"))
    sign = "-" if opcode.partition(".")[0] == "vmad" else "!"
    if text == sign and cursor.kinds[cursor.at + 1] == WORD and cursor.texts[cursor.at + 1] != "WARP_SZ":
        cursor.at += 1
        register = names.lookup(cursor.next())
        if not isinstance(register, Register):
            raise cursor.error(f"expected a {'register' if sign == '-' else 'predicate'} after `{sign}`")
        return Register(register.name, negated=True)
    if text == "WARP_SZ" and cursor.texts[cursor.at + 1] in _FOLLOWED_BY_NOTHING:
        cursor.at += 1
        return Special(text)
    if text == "-" and cursor.kinds[cursor.at + 1] == WORD and cursor.texts[cursor.at + 1] != "WARP_SZ":
        raise cursor.error("only `vmad` takes a minus sign before a register: negate the register first")
    if begins_expression(cursor):
        return parse_constant(cursor)
    raise cursor.error(f"expected an operand, found {cursor.found()}")


def _continue_name(cursor: Cursor, names: Names, name: Name, opcode: str) -> Operand | Sum:
    if cursor.accept("|"):
        return Pair(name, _simple(cursor, names))
    if isinstance(name, Symbol) and cursor.text == "[":
        element = _parse_element(cursor, names, name)
        return Address(Symbol(element.name), element.offset) if opcode.startswith(("ld", "st")) else element
    if cursor.text not in ("+", "-"):
        return name
    start = cursor.starts[cursor.at - 1]
    if isinstance(name, Symbol):
        return Symbol(name.name, parse_offset(cursor))
    if not isinstance(name, Register | Special):
        return name
    declared = names.declared(name.name.partition(".")[0])
    kind = SPECIAL_REGISTERS[name.name] if isinstance(name, Special) else declared[0] if declared is not None else ""
    offset = parse_offset(cursor)
    scalar = SCALAR_TYPES.get(kind)
    if scalar is None or scalar.kind not in "usb" or scalar.bits not in (16, 32, 64):
        what = f"but `{name.name}` is declared as `.{kind}`" if kind else f"but `{name.name}` is not declared"
        raise cursor.error(f"a constant can be added only to integer registers of 16, 32 or 64 bits, {what}", cursor.span(start))
    return Sum(name, offset, f"s{scalar.bits}")


def _parse_element(cursor: Cursor, names: Names, name: Symbol) -> Symbol:
    """Parse the index in `table[3]` and return the element's address; elements are scalars, however many dimensions the array has."""
    variable = names.variable(name.name)
    opening = cursor.span()
    cursor.at += 1
    if variable is None or variable.shape is None:
        raise cursor.error(f"`{name.name}` is not an array: an index needs one", opening)
    if cursor.kind == WORD and isinstance(names.lookup(cursor.text), Register):
        raise cursor.error(f"an index in a register is not supported: compute the address of `{name.name}` and write `[register]`")
    offset = parse_integer(cursor) * (variable.element_bytes // variable.vector)
    cursor.expect("]", "after the index of an array")
    return Symbol(name.name, offset)


def _simple(cursor: Cursor, names: Names) -> Operand:
    """Parse an operand inside another one, where sums are not allowed."""
    start = cursor.starts[cursor.at]
    found = parse_operand(cursor, names)
    if isinstance(found, Sum):
        raise cursor.error("a register plus a constant cannot be part of another operand", cursor.span(start))
    return found


def _parse_list(cursor: Cursor, names: Names, close: str) -> tuple[Operand, ...]:
    items: list[Operand] = []
    if cursor.accept(close):
        return ()
    while True:
        items.append(_simple(cursor, names))
        if cursor.accept(close):
            return tuple(items)
        cursor.expect(",", f"or `{close}` in a list of operands")


def _parse_address(cursor: Cursor, names: Names) -> Address | TextureAddress:
    cursor.at += 1
    if cursor.kind == WORD:
        base = names.lookup(cursor.next())
        if not isinstance(base, (Register, Symbol)):
            raise cursor.error("an address starts with a register, a variable or a number")
    elif begins_expression(cursor):
        number = parse_constant(cursor)
        if number.kind == "int" and cursor.accept("]"):
            return Address(number)
        raise cursor.error(f"expected `]` after an absolute address, found {cursor.found()}")
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
    """Parse `+4`, `-4`, `+-4` or `+(2*2)`."""
    if cursor.text not in ("+", "-"):
        raise cursor.error(f"expected `+` or `-` and an offset, found {cursor.found()}")
    cursor.accept("+")
    return parse_integer(cursor)
