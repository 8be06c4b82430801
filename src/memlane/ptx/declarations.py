"""Parse declarations: `.reg`, variables of every state space, and formal parameters."""

from __future__ import annotations

from dataclasses import replace

from memlane.ptx.constants import immediate
from memlane.ptx.initializers import parse_initial
from memlane.ptx.ir import RegisterDecl, Variable
from memlane.ptx.lexer import DIRECTIVE, END, MARK, NUMBER, WORD, Cursor
from memlane.ptx.types import SCALAR_TYPES, VECTOR_LENGTHS
from memlane.source import shortened

LINKAGE = frozenset({".visible", ".extern", ".weak", ".common"})
SPACE_DIRECTIVES = frozenset({".reg", ".const", ".global", ".local", ".param", ".shared", ".sreg", ".tex"})

_OPAQUE = frozenset({"texref", "samplerref", "surfref"})


def parse_registers(cursor: Cursor) -> tuple[RegisterDecl, ...]:
    """Parse `.reg {.v4} .f32 %f<12>, q;`."""
    cursor.at += 1
    if cursor.accept(".align"):  # it has no meaning for a register
        parse_whole(cursor)
    start = cursor.starts[cursor.at]
    vector, scalar = _parse_type(cursor)
    if vector > 1 and (scalar == "pred" or scalar in _OPAQUE or SCALAR_TYPES[scalar].bits * vector > 128 or vector > 4):
        raise cursor.error("a vector register has 2 or 4 elements, at most 128 bits, and cannot be a predicate", cursor.span(start))
    if scalar in _OPAQUE:
        raise cursor.error(f"a register cannot have the type `.{scalar}`, which is only for variables", cursor.span(start))
    declared: list[RegisterDecl] = []
    if cursor.accept(";"):
        return ()
    while True:
        name = cursor.expect_kind(WORD, "the name of a register")
        count = None
        if cursor.accept("<"):
            count = parse_whole(cursor)
            cursor.expect(">", "after the number of registers")
        declared.append(RegisterDecl(scalar, name, count, vector))
        if cursor.accept(";"):
            return tuple(declared)
        cursor.expect(",", "or `;` after the name of a register")


def parse_linkage(cursor: Cursor) -> tuple[str, ...]:
    """Parse `.visible .weak`; the words are returned without their dots."""
    words = []
    while cursor.kind == DIRECTIVE and cursor.text in LINKAGE:
        words.append(cursor.next()[1:])
    return tuple(words)


def parse_variables(cursor: Cursor, linkage: tuple[str, ...]) -> tuple[Variable, ...]:
    """Parse `.global .align 8 .u64 a[2] = {1, 2}, b;` from the state space to the semicolon."""
    first = parse_variable(cursor, linkage)
    declared = [first]
    while cursor.accept(","):
        declared.append(_parse_declarator(cursor, first, cursor.at))
    cursor.expect(";", "after the declaration of a variable")
    return tuple(declared)


def parse_variable(cursor: Cursor, linkage: tuple[str, ...] = ()) -> Variable:
    """Parse one declaration from the state space up to its name, shape and initialiser."""
    first = cursor.at
    space = cursor.expect_kind(DIRECTIVE, "a state space such as `.global`")[1:]
    attributes: list[str] = []
    align = None
    while cursor.text in (".attribute", ".align"):
        if cursor.text == ".align":
            cursor.at += 1
            align = parse_whole(cursor)
        else:
            attributes.append(parse_attribute(cursor))
    vector, scalar = _parse_type(cursor)
    if cursor.text == ".ptr":
        start = cursor.at
        while cursor.kind in (DIRECTIVE, NUMBER):
            cursor.at += 1
        attributes.append(" ".join(cursor.slice(start).split()))
    model = Variable(space, scalar, "", None, align, vector, linkage, None, " ".join(attributes))
    return _parse_declarator(cursor, model, first)


def _parse_declarator(cursor: Cursor, model: Variable, first: int) -> Variable:
    """Parse name, shape and initialiser; the other properties are those of `model`."""
    name = cursor.expect_kind(WORD, "the name of a variable")
    shape: list[int] | None = None
    while cursor.accept("["):
        shape = [] if shape is None else shape
        shape.append(0 if cursor.text == "]" else parse_whole(cursor))
        cursor.expect("]", "after the length of an array")
    if shape is None and cursor.accept("<"):
        raise cursor.error("a range of names `<n>` is for registers only", cursor.span(cursor.starts[cursor.at - 1]))
    span = cursor.span(cursor.starts[first])
    variable = Variable(
        model.space,
        model.type,
        name,
        None if shape is None else tuple(shape),
        model.align,
        model.vector,
        model.linkage,
        None,
        model.attributes,
        span,
    )
    if not cursor.accept("="):
        return variable
    if model.type in _OPAQUE:
        return replace(variable, initial=_skip_initial(cursor))
    if model.space in ("shared", "local", "param"):
        message = f"`{name}` is in .{model.space} memory, which cannot have initial values: store them at the start of the kernel"
        raise cursor.error(message, cursor.span(cursor.starts[cursor.at - 1]))
    return parse_initial(cursor, variable)[0]


def _parse_type(cursor: Cursor) -> tuple[int, str]:
    vector = VECTOR_LENGTHS.get(cursor.text[1:], 1) if cursor.text.startswith(".") else 1
    if vector > 1:
        cursor.at += 1
    scalar = cursor.text[1:]
    if cursor.kind != DIRECTIVE or (scalar not in SCALAR_TYPES and scalar not in _OPAQUE):
        raise cursor.error(f"expected a type such as `.u32`, found {cursor.found()}")
    cursor.at += 1
    return vector, scalar


def parse_attribute(cursor: Cursor) -> str:
    """Parse `.attribute(.managed)` and similar; blanks are removed."""
    first = cursor.at
    cursor.at += 1
    cursor.expect("(", "behind `.attribute`")
    skip_balanced(cursor, ")")
    return "".join(cursor.spelled(first).split())


def _skip_initial(cursor: Cursor) -> str:
    """Skip the initialiser of a texture reference or similar, named fields in braces, and return its text."""
    first = cursor.at
    while cursor.text not in (",", ";"):
        if cursor.kind == END:
            raise cursor.error("the text ends inside an initialiser")
        opening = cursor.next()
        if opening in ("{", "("):
            skip_balanced(cursor, "}" if opening == "{" else ")")
    return cursor.slice(first)


def skip_balanced(cursor: Cursor, close: str) -> None:
    """Skip to behind the `close` that ends the bracket just opened."""
    opening = cursor.span(cursor.starts[cursor.at - 1])
    opener = {"}": "{", ")": "(", "]": "["}[close]
    depth = 1
    while depth:
        if cursor.at >= len(cursor.kinds) - 1:
            raise cursor.error(f"`{opener}` is never closed", opening)
        if cursor.kind == MARK:
            depth += (cursor.text == opener) - (cursor.text == close)
        cursor.at += 1


def parse_whole(cursor: Cursor, what: str = "a whole number") -> int:
    """Parse a whole number, such as a length, a count, an alignment or a line."""
    text = cursor.expect_kind(NUMBER, what)
    try:
        number = immediate(text)
    except ValueError:
        number = None
    if number is None or number.kind != "int":
        raise cursor.error(f"expected {what}, found `{shortened(text)}`", cursor.span(cursor.starts[cursor.at - 1]))
    return number.value
