"""Parse formulas typed by users into expressions. Nothing is executed: only integers, given names and arithmetic are accepted."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, number

_OPERATORS: Mapping[type[ast.operator], Callable[[Expression, Expression], Expression]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b,
}
_LONGEST = 500
_ALLOWED = "integers, + - * // % & | ^ << >>, min, max and parentheses"


def read_formulas(text: str, names: Mapping[str, Expression]) -> tuple[Expression, ...]:
    """Return the comma-separated formulas of `text` over `names`. Raises LayoutError, quoting the offending part."""
    if len(text) > _LONGEST:
        raise LayoutError(f"the formula has {len(text)} characters; at most {_LONGEST} are allowed")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as cause:
        raise LayoutError(f"{text!r} is not a formula; a formula may contain {', '.join(names)}, {_ALLOWED}") from cause
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return tuple(_Reader(text, names).read(part) for part in parts)


class _Reader:
    def __init__(self, text: str, names: Mapping[str, Expression]) -> None:
        self._text = text
        self._names = names

    def read(self, node: ast.expr) -> Expression:
        try:
            return self._read(node)
        except LayoutError as cause:
            raise LayoutError(f"formula {self._text!r}: {cause}") from None

    def _read(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() as value):
                return number(value)
            case ast.Name(id=word):
                if word not in self._names:
                    raise LayoutError(f"unknown name {word!r}; choose from {', '.join(self._names)}")
                return self._names[word]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return number(0) - self._read(operand)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return number(-1) - self._read(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._read(left), self._read(right))
            case ast.Call(func=ast.Name(id="min" | "max" as word), args=[first, second], keywords=[]):
                a, b = self._read(first), self._read(second)
                return a.minimum(b) if word == "min" else a.maximum(b)
        quoted = ast.get_source_segment(self._text.strip(), node) or self._text
        raise LayoutError(f"{quoted!r} is not allowed; a formula may contain {_ALLOWED}")
