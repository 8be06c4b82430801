"""Execute the function of a rule on shifted NumPy views, as the reference result.

The function's own text is compiled again with four changes, because Python's operators work on one number: `a if c else b`, `and`, `or`,
`not`, and chains of comparisons act on each cell, and a power with a constant exponent is a product. Everything else (types, the order of
roundings) is left to NumPy.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.stencils.definition import definition_of
from memlane.stencils.expression import FUNCTIONS
from memlane.stencils.grid import Grid
from memlane.stencils.rule import Rule

Array = npt.NDArray[Any]


def apply_rule(rule: Rule, grid: Grid, values: Mapping[str, Any], previous: Mapping[str, str]) -> dict[str, Any]:
    """Apply a rule once; return the written fields as new arrays, and the reductions as float64.

    `values` has all names of the rule; a field that is written needs no value if `previous` names the field whose values its fixed cells
    take. Other fixed cells keep what `values` has for the written field. Reductions cover the cells that the rule updates.
    """
    low, high = rule.footprint.low, rule.footprint.high
    updated = grid.updated(rule)
    arguments: dict[str, Any] = {}
    reductions: dict[str, _Reduction] = {}
    written: dict[str, _Written] = {}
    for name in rule.parameters:
        if name in rule.writes:
            arguments[name] = written[name] = _Written()
        elif name in rule.reads:
            arguments[name] = _Shifted(grid.outside(np.asarray(values[name]), low, high), low, grid.shape)
        elif name in rule.reductions:
            arguments[name] = reductions[name] = _Reduction(updated)
        else:
            scalar = np.asarray(values[name], grid.dtype)
            arguments[name] = scalar[()] if scalar.ndim == 0 else list(scalar)
    with np.errstate(all="ignore"):
        results = _executable(rule, grid.dtype)(**arguments)
    found: dict[str, Any] = {}
    for name, one in written.items():
        base = values[previous[name]] if name in previous else values[name]
        whole = np.array(base, dtype=np.asarray(values.get(name, base)).dtype)
        whole[updated] = np.broadcast_to(one.value, grid.shape)[updated]
        found[name] = whole
    for name in reductions:
        found[name] = results[name].total(rule.reductions[name])
    return found


class _Shifted:
    """Field that is read: indexing with offsets returns a view of all cells at that distance."""

    def __init__(self, padded: Array, low: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.padded, self.low, self.shape = padded, low, shape

    def __getitem__(self, offsets: int | tuple[int, ...]) -> Array:
        given = offsets if isinstance(offsets, tuple) else (offsets,)
        starts = [first + offset for first, offset in zip(self.low, given, strict=True)]
        return self.padded[tuple(slice(start, start + extent) for start, extent in zip(starts, self.shape, strict=True))]


class _Written:
    """Field that is written."""

    value: Any = None

    def __setitem__(self, offsets: object, value: Any) -> None:
        self.value = value


class _Reduction:
    """Reduced parameter: collects the operands of `+=`, `min` and `max`, to be reduced in float64 over the updated cells."""

    def __init__(self, updated: tuple[slice, ...], value: Any = None) -> None:
        self.updated, self.value = updated, value

    def __add__(self, value: Any) -> _Reduction:
        return _Reduction(self.updated, value)

    def total(self, kind: str) -> float:
        extents = tuple(one.stop for one in self.updated)
        cells = np.broadcast_to(self.value, np.maximum(extents, np.shape(self.value) or extents))[self.updated].astype(np.float64)
        if kind == "sum":
            return float(cells.sum())
        empty = np.inf if kind == "min" else -np.inf
        return float((np.min if kind == "min" else np.max)(cells, initial=empty))


def _least(first: Any, second: Any, *more: Any) -> Any:
    if isinstance(first, _Reduction):
        return _Reduction(first.updated, second)
    return _least(np.minimum(first, second), *more) if more else np.minimum(first, second)


def _greatest(first: Any, second: Any, *more: Any) -> Any:
    if isinstance(first, _Reduction):
        return _Reduction(first.updated, second)
    return _greatest(np.maximum(first, second), *more) if more else np.maximum(first, second)


def _power(base: Any, exponent: Any) -> Any:
    if all(type(one) in (int, float) for one in (base, exponent)):
        return base**exponent
    if not isinstance(exponent, int) or not 1 <= exponent <= 16:
        return np.power(base, exponent)
    value = base
    for _ in range(exponent - 1):
        value = value * base
    return value


def _of_numbers_too(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a NumPy function to return a plain number for plain numbers, so that constants stay untyped."""

    def called(*arguments: Any) -> Any:
        value = function(*arguments)
        return value.item() if all(type(one) in (int, float) for one in arguments) and hasattr(value, "item") else value

    return called


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in FUNCTIONS if hasattr(np, name)}, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "arctan2": np.arctan2, "fabs": np.abs,
    "absolute": np.abs, "min": _least, "max": _greatest, "minimum": _least, "maximum": _greatest, "pow": _power, "power": _power,
}  # fmt: skip


def _where(dtype: str) -> Callable[..., Any]:
    """Select between two values by cell; two constants get the type of the grid."""

    def chosen(condition: Any, first: Any, second: Any) -> Any:
        if type(first) in (int, float) and type(second) in (int, float):
            first, second = np.dtype(dtype).type(first), np.dtype(dtype).type(second)
        return np.where(condition, first, second)

    return chosen


class _ForArrays(ast.NodeTransformer):
    """Transformer from Python operators on one number to NumPy operations on arrays."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _call("where", [self.visit(node.test), self.visit(node.body), self.visit(node.orelse)], node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "_and" if isinstance(node.op, ast.And) else "_or"
        first, *more = [self.visit(one) for one in node.values]
        value: ast.expr = first
        for one in more:
            value = _call(name, [value, one], node)
        return value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _call("_not", [operand], node)
        changed: ast.expr = ast.copy_location(ast.UnaryOp(node.op, operand), node)
        return changed

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        values = [self.visit(one) for one in (node.left, *node.comparators)]
        pairs = zip(node.ops, values[:-1], values[1:], strict=True)
        found, *more = [ast.copy_location(ast.Compare(left, [op], [right]), node) for op, left, right in pairs]
        value: ast.expr = found
        for one in more:
            value = _call("_and", [value, one], node)
        return value

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Pow):
            return _call("pow", [left, right], node)
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return _call(name, [self.visit(one) for one in node.args], node)


def _call(name: str, arguments: list[ast.expr], at: ast.expr) -> ast.expr:
    made = ast.Call(ast.Name(name, ast.Load()), arguments, [])
    made.lineno, made.col_offset, made.end_lineno, made.end_col_offset = at.lineno, at.col_offset, at.end_lineno, at.end_col_offset
    return made


def _executable(rule: Rule, dtype: str) -> Any:
    """Return the function of a rule for arrays; its result holds the operands of its reductions."""
    source, definition = definition_of(rule.function)
    body = [_ForArrays().visit(one) for one in definition.body]
    body.append(
        ast.Return(ast.Dict([ast.Constant(one) for one in rule.reductions], [ast.Name(one, ast.Load()) for one in rule.reductions]))
    )
    function = copy.copy(definition)  # with whatever else this version of Python keeps there
    function.body, function.decorator_list, function.returns = body, [], None
    module = ast.fix_missing_locations(ast.Module([function], []))
    outside = {"math": math, **rule.function.__globals__, **_closure(rule)}
    functions = {name: _of_numbers_too(function) for name, function in _FUNCTIONS.items()}
    namespace = {**outside, **functions, "where": _where(dtype), "_and": np.logical_and, "_or": np.logical_or, "_not": np.logical_not}
    exec(compile(module, source.name, "exec"), namespace)
    return namespace[definition.name]


def _closure(rule: Rule) -> dict[str, Any]:
    names, cells = rule.function.__code__.co_freevars, rule.function.__closure__ or ()
    found = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found
