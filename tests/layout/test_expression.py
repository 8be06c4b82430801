"""Expressions against Python's own arithmetic: what the simplifications leave is the same number, inside the range that is told."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, name, number, table
from memlane.layout.formula import read_formulas
from memlane.layout.program import Program

COUNTS = {"x": 37, "y": 8, "one": 1}
OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip

trees = st.recursive(
    st.sampled_from(sorted(COUNTS)) | st.integers(-3, 40),
    lambda inner: st.tuples(st.sampled_from([*OPERATORS, "min", "max"]), inner, inner),
    max_leaves=7,
)
Tree = str | int | tuple[str, "Tree", "Tree"]


def text(tree: Tree) -> str:
    if not isinstance(tree, tuple):
        return str(tree)
    op, left, right = tree
    return f"{op}({text(left)}, {text(right)})" if op in ("min", "max") else f"({text(left)} {op} {text(right)})"


def built(source: str) -> Expression | None:
    """None where a divisor may be 0 or a value does not fit."""
    try:
        (found,) = read_formulas(source, {word: name(word, count) for word, count in COUNTS.items()})
    except LayoutError:
        return None
    return found


@settings(max_examples=150, deadline=None)
@given(tree=trees, x=st.integers(0, 36), y=st.integers(0, 7))
def test_formulas_have_the_value_that_python_gives_them(tree: Tree, x: int, y: int) -> None:
    source = text(tree)
    found = built(source)
    if found is None:
        return
    expected = eval(source, {"x": x, "y": y, "one": 0})
    program = Program(found)
    assert program.evaluate({"x": x, "y": y, "one": 0}) == expected
    assert found.low <= expected <= found.high
    arrays = {"x": np.full((2, 1), x), "y": np.full((1, 3), y), "one": np.zeros((1, 1), np.int64)}
    assert (np.asarray(program.evaluate(arrays)) == expected).all()
    try:
        source = program.python("f", ("x", "y", "one"))
    except ValueError:
        return  # a division that C rounds otherwise
    scope: dict[str, Callable[[int, int, int], int]] = {}
    exec(source, scope)
    assert scope["f"](x, y, 0) == expected


def test_what_changes_nothing_is_left_out() -> None:
    i, j = name("i", 32), name("j", 32)
    for expression, operations in (
        (i % 32, 0), (i // 32, 0), (i & 31, 0), (i & 15, 1), ((i ^ j) & 31, 1), ((i + j) & 31, 2), (i * 1 + 0, 0), (i * 0, 0),
        (i * 8 // 8, 2), ((i | 32) ^ 0, 1), (i.minimum(31), 0), (i.maximum(0), 0), (i.minimum(30), 1), (table([5, 5, 5], i), 0),
        (i * 33 + i * 33, 2), (number(3) * 4 - 2, 0), (name("k", 1) + i, 0),
    ):  # fmt: skip
        assert Program(expression).cost.operations == operations


def test_division_of_what_may_be_negative_is_not_written_as_code() -> None:
    with pytest.raises(ValueError, match="// of a value that can be negative"):
        Program((name("i", 4) - 2) // 3).cuda("f", ("i",))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("__import__('os')", "is not allowed; a formula may contain integers"),
        ("t.real", "'t.real' is not allowed"),
        ("t ** 9", "'t ** 9' is not allowed"),
        ("(lambda: t)()", "is not allowed"),
        ("[t for t in x]", "is not allowed"),
        ("t if t else 1", "is not allowed"),
        ("1.5 * t", "'1.5' is not allowed"),
        ("True + t", "'True' is not allowed"),
        ("t / 2", "'t / 2' is not allowed"),
        ("min(t)", "'min(t)' is not allowed"),
        ("lane + 1", "unknown name 'lane'; choose from t"),
        ("t // 0", "a divisor that can be 0"),
        ("4 % t", "a divisor that can be 0"),
        ("1 << 63", "a shift by 63 to 63 bits; it can be 0 to 62"),
        ("t << (t - 1)", "a shift by -1 to 30 bits"),
        ("t * 9223372036854775807 * 2", "do not fit into 64 bits"),
        ("t +", "is not a formula; a formula may contain"),
        ("t" + "+t" * 300, "the formula has 601 characters; at most 500 are allowed"),
        ("-" * 499 + "t", None),
    ],
)
def test_a_formula_is_arithmetic_and_nothing_else(formula: str, message: str | None) -> None:
    if message is None:
        assert built(formula.replace("t", "x")) is not None
        return
    with pytest.raises(LayoutError) as raised:
        read_formulas(formula, {"t": name("t", 32)})
    assert message in str(raised.value)
