"""Read the extents of arrays in shared memory from a program's text, without a compiler, for programs that come from a record file.

    #define T 16
    template <int R> __global__ void f() { __shared__ float tile[T][T + 2 * R]; }       f<2>: tile has 16 rows of 20 floats

Macros, constants and template parameters in the text are resolved; an extent that needs anything else is unknown.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memlane.compile.longer_rows import declarations
from memlane.compile.tokens import Token, tokenize
from memlane.titles import kernel_label, plain_name

ELEMENT_BYTES = {
    **dict.fromkeys(("char", "int8_t", "uint8_t", "bool"), 1),
    **dict.fromkeys(("half", "__half", "__nv_bfloat16", "short", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("float", "int", "unsigned", "uint", "int32_t", "uint32_t", "half2", "__half2"), 4),
    **dict.fromkeys(("double", "int64_t", "uint64_t", "size_t", "float2", "int2", "uint2"), 8),
    **dict.fromkeys(("float4", "int4", "uint4", "double2"), 16),
}
"""Bytes of an element, by the name of its type."""
_DEFINE = re.compile(r"#\s*define\s+(\w+)\s+(.+)")
_CONSTANTS = ("const", "constexpr")
_DEEPEST = 16
"""Maximum depth of names that are defined by other names."""
_LONGEST_DECLARATION = 60
"""Maximum tokens of a declaration in front of a constant's value."""
_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@dataclass(frozen=True)
class Rows:
    """The rows of an array of two or more dimensions."""

    columns: int
    """Elements in a row."""
    element_bytes: int | None
    """Bytes of an element; None for a type that `ELEMENT_BYTES` does not list."""


def written_rows(text: str, kernel: str, name: str) -> Rows | None:
    """Return the rows of an array in shared memory, from the text of a program; None if the text does not determine them.

    `kernel` is the title of the kernel that uses the array, for example `void f<2>(float*)`, and `name` is the array's name.
    """
    tokens = tokenize(text)
    known = {**constants_in(tokens), **_template_arguments(tokens, kernel)}
    for groups in declarations(tokens, plain_name(kernel), name):
        columns = value_of(text[groups[-1][0].end : groups[-1][-1].start], known)
        if columns and columns > 0:
            return Rows(columns, _element_bytes(tokens, groups[0][0]))
    return None


def is_dynamic(text: str, name: str) -> bool:
    """Return whether a program declares an array in shared memory without a length, so that the launch determines its size."""
    tokens = [one.text for one in tokenize(text)]
    ends = [place for place, one in enumerate(tokens) if one == name and tokens[place + 1 : place + 3] == ["[", "]"]]
    return any("extern" in tokens[max(0, end - 8) : end] and "__shared__" in tokens[max(0, end - 8) : end] for end in ends)


def constants_in(tokens: Sequence[Token]) -> dict[str, str]:
    """Return the texts of macros without parameters, and of variables declared with `const` or `constexpr`, by name."""
    found: dict[str, str] = {}
    for place, token in enumerate(tokens):
        if token.kind == "directive" and (defined := _DEFINE.match(token.text)):
            found[defined[1]] = defined[2].partition("//")[0].strip()
        elif token.text == "=" and place and tokens[place - 1].kind == "word":
            first = max(place - _LONGEST_DECLARATION, 0)
            begun = next((at for at in range(place - 1, first - 1, -1) if tokens[at].text in ";{}"), first - 1)
            end = next((at for at in range(place, len(tokens)) if tokens[at].text in (";", ",")), place)
            if any(one.text in _CONSTANTS for one in tokens[begun + 1 : place]):
                found[tokens[place - 1].text] = " ".join(one.text for one in tokens[place + 1 : end])
    return found


def _template_arguments(tokens: Sequence[Token], kernel: str) -> dict[str, str]:
    """Return the kernel's template arguments, by the name of the template parameter."""
    label, name = kernel_label(kernel), plain_name(kernel)
    if "<" not in label:
        return {}
    given = _split(label[label.index("<") + 1 : label.rindex(">")])
    for place, token in enumerate(tokens):
        if token.text == "template" and place + 1 < len(tokens) and tokens[place + 1].text == "<":
            end = next((at for at in range(place, len(tokens)) if tokens[at].text == ">"), place)
            named = next((at for at in range(end, min(end + 40, len(tokens))) if tokens[at].text in (name, ";", "{")), end)
            if tokens[named].text == name:
                words = " ".join(one.text for one in tokens[place + 2 : end]).split(",")
                return dict(zip([one.partition("=")[0].split()[-1] for one in words if one.split()], given, strict=False))
    return {}


def _split(arguments: str) -> list[str]:
    """Split template arguments at commas, keeping nested template arguments whole."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [one.strip() for one in parts]


def value_of(text: str, known: Mapping[str, str], depth: int = 0) -> int | None:
    """Return the value of an expression; None if it contains anything but whole numbers and names of such."""
    if depth > _DEEPEST:
        return None
    try:
        tree = ast.parse(re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text.strip()), mode="eval").body
        return _folded(tree, known, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, KeyError, TypeError):
        return None


def _folded(tree: ast.expr, known: Mapping[str, str], depth: int) -> int | None:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return value_of(known[tree.id], known, depth + 1)
    if isinstance(tree, ast.BinOp):
        left, right = _folded(tree.left, known, depth), _folded(tree.right, known, depth)
        return None if left is None or right is None else _ARITHMETIC[type(tree.op)](left, right)
    return None


def _element_bytes(tokens: Sequence[Token], behind: Token) -> int | None:
    """Return the bytes of the element type in front of a declarator whose first bracket is `behind`; None for an unknown type."""
    place = next(at for at, one in enumerate(tokens) if one.start == behind.start)
    begun = next(at for at in range(place, -1, -1) if tokens[at].text == "__shared__")
    return next((ELEMENT_BYTES[one.text] for one in tokens[begun:place] if one.text in ELEMENT_BYTES), None)
