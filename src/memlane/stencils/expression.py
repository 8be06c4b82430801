"""Define the expression tree of the update of one cell; each node keeps its span in the text of the rule.

Sums are not reordered and nothing is simplified except operations on two constants, because the order of roundings is part of the
meaning. Libraries of symbolic algebra are not used for this reason: they normalise sums and products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from memlane.source import Span

FUNCTIONS = {
    "sqrt": 1, "cbrt": 1, "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sin": 1, "cos": 1, "tan": 1,
    "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1, "floor": 1, "ceil": 1, "abs": 1,
    "min": 2, "max": 2, "pow": 2, "atan2": 2, "hypot": 2,
}  # fmt: skip
"""Functions that a rule may call, with the number of arguments of each."""


@dataclass(frozen=True)
class Number:
    """A constant. Like a Python number combined with an array, it takes the type of the other operand."""

    value: int | float
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Scalar:
    """A value that is equal for all cells of a step: a parameter, or an element of an array of coefficients."""

    name: str
    index: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Read:
    """The value of a field at a constant offset from the cell, one offset per axis."""

    name: str
    offsets: tuple[int, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Local:
    """A local variable of the rule."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Operation:
    """An operation on the values of `operands`: `+ - * /`, `neg`, `< <= > >= == !=`, `and or not`, `where`, or one of `FUNCTIONS`."""

    name: str
    operands: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Expression = Number | Scalar | Read | Local | Operation

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
LOGIC = ("and", "or", "not")


@dataclass(frozen=True)
class Assignment:
    """`name = value` for a local, `name[0, 0] = value` for a field (`is_field`), or a reduction (`reduces`: `sum`, `min` or `max`)."""

    name: str
    value: Expression
    line: int
    is_field: bool = False
    reduces: str = ""


def parts(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything inside it, outermost first."""
    yield expression
    if isinstance(expression, Operation):
        for operand in expression.operands:
            yield from parts(operand)
