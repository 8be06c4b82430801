"""Read the definition of a rule's function from its file, unroll its loops and inline its helper functions.

Both kernels and the NumPy reference are made of the result. Code from a helper keeps its own position in the text if the helper is in the
same file as the rule; otherwise it has the position of the call.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import linecache
import operator
import os
from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from types import FunctionType
from typing import Any, NoReturn

from memlane.errors import StencilError
from memlane.source import Source, Span
from memlane.stencils.expression import FUNCTIONS

_ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_OF_CONSTANTS = {one.__name__: one for one in (range, len, enumerate, zip, reversed, abs, min, max)}
_MOST_STATEMENTS = 10_000
_DEEPEST = 32


def definition_of(function: Callable[..., Any]) -> tuple[Source, ast.FunctionDef]:
    """Return the file of a function and its definition, with loops unrolled and helper functions inlined.

    Raise StencilError if the text cannot be found, a loop cannot be unrolled, or a helper cannot be inlined.
    """
    source, node = _found(function)
    node = copy.deepcopy(node)
    expansion = _Expansion(source)
    own = {one.arg for one in (*node.args.posonlyargs, *node.args.args)} | (_assigned(node) - _loop_names(node))
    node.body = expansion.statements(node.body, _Scope(function, {}, {}, frozenset(own)))
    return source, node


def outside_value(function: Callable[..., Any], name: str) -> Any:
    """Return the value of a global or closure variable of a function, or None."""
    code = function.__code__
    if name in code.co_freevars and function.__closure__:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:
            return None
    return function.__globals__.get(name, getattr(builtins, name, None))


def constant_of(node: ast.expr, value_of: Callable[[str], Any]) -> Any:
    """Evaluate an expression of constants; return None if it is not constant. `value_of` returns the value of a name."""
    try:
        return _evaluated(node, value_of)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
        return None


def span_of(source: Source, node: ast.expr | ast.stmt) -> Span:
    """Return the span of a node in the text of its file."""
    start = _offset(source, node.lineno, node.col_offset)
    end = _offset(source, node.end_lineno or node.lineno, node.end_col_offset or 0)
    return Span(source, start, max(end, start + 1))


def name_span(source: Source, node: ast.FunctionDef) -> Span:
    """Return the span of a function's name."""
    at = source.text.find(node.name, _offset(source, node.lineno, node.col_offset))
    return Span(source, at, at + len(node.name))


def _offset(source: Source, line: int, column: int) -> int:
    """Convert the parser's line and byte column to an offset in the text."""
    start = sum(len(one) + 1 for one in source.text.split("\n")[: line - 1])
    return start + len(source.line(line).encode()[:column].decode(errors="ignore"))


def _found(function: Callable[..., Any]) -> tuple[Source, ast.FunctionDef]:
    code = getattr(function, "__code__", None)
    if code is None:
        raise StencilError(f"@ml.stencil is for a function of Python, not for a {type(function).__name__}")
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    name = os.path.relpath(code.co_filename) if os.path.exists(code.co_filename) else code.co_filename
    source = Source(min(name, code.co_filename, key=len), text)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= code.co_firstlineno <= node.lineno:
                return source, node
    raise StencilError(f"the text of {function.__name__} cannot be found: define the stencil in a file, or in a cell of a notebook")


def _evaluated(node: ast.expr, value_of: Callable[[str], Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        value = value_of(node.id)
        if value is None:
            raise ValueError(node.id)
        return value
    if isinstance(node, ast.Compare):
        values = [_evaluated(one, value_of) for one in (node.left, *node.comparators)]
        return all(_COMPARISONS[type(one)](*pair) for one, pair in zip(node.ops, pairwise(values), strict=True))
    if isinstance(node, ast.BoolOp):
        parts = [bool(_evaluated(one, value_of)) for one in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _evaluated(node.operand, value_of)
    if isinstance(node, ast.Slice):
        return slice(*(None if one is None else _evaluated(one, value_of) for one in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Attribute):
        return getattr(_evaluated(node.value, value_of), node.attr)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_evaluated(one, value_of) for one in node.elts)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_evaluated(node.operand, value_of))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_evaluated(node.left, value_of), _evaluated(node.right, value_of))
    if isinstance(node, ast.Subscript):
        return _evaluated(node.value, value_of)[_evaluated(node.slice, value_of)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OF_CONSTANTS:
        if value_of(node.func.id) is not _OF_CONSTANTS[node.func.id]:
            return None
        given = {one.arg: _evaluated(one.value, value_of) for one in node.keywords if one.arg is not None}
        return _OF_CONSTANTS[node.func.id](*(_evaluated(one, value_of) for one in node.args), **given)
    return None


class _Scope:
    """The meaning of names in one function: `known` are constants of loops and arguments, `renamed` what stands for its other names,
    `own` are its parameters and locals."""

    def __init__(
        self, function: Callable[..., Any], known: dict[str, Any], renamed: dict[str, ast.expr], own: frozenset[str], depth: int = 0
    ) -> None:
        self.function, self.known, self.renamed, self.own, self.depth = function, known, renamed, own, depth

    def value_of(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        if name in self.renamed or name in self.own:
            return None
        return outside_value(self.function, name)


class _Expansion:
    """Expansion of statements into ones without loops and without calls of helpers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.helpers = 0
        self.written = 0

    def refuse(self, node: ast.expr | ast.stmt, message: str) -> NoReturn:
        raise StencilError(message, span_of(self.source, node))

    def statements(self, body: Iterable[ast.stmt], scope: _Scope) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.For):
                found += self._unrolled(statement, scope)
                continue
            before: list[ast.stmt] = []
            changed = _Written(self, scope, before).visit(copy.deepcopy(statement))
            found += [*before, changed]
            self.written += 1 + len(before)
            if self.written > _MOST_STATEMENTS:
                self.refuse(statement, f"a rule has at most {_MOST_STATEMENTS:,} statements with its loops written out: use fewer turns")
        return found

    def _unrolled(self, loop: ast.For, scope: _Scope) -> list[ast.stmt]:
        """Repeat the body of a loop for each of its constant values."""
        if loop.orelse:
            self.refuse(loop.orelse[0], "a loop of a stencil has no else: write these lines behind it")
        names = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        taken = names & (scope.own | set(scope.renamed))
        if taken:
            self.refuse(loop.target, f"{min(taken)} is in use already: give the loop a name of its own")
        found: list[ast.stmt] = []
        for value in self._values(loop.iter, scope):
            self._bind(loop.target, value, scope)
            found += self.statements(loop.body, scope)
        return found

    def _values(self, node: ast.expr, scope: _Scope) -> list[Any]:
        values = constant_of(node, scope.value_of)
        if values is None or isinstance(values, str | bytes | int | float):
            self.refuse(node, f"{ast.unparse(node)} is not known before the run: loop over a range of constants or a tuple of numbers")
        turns = list(islice(values, _MOST_STATEMENTS + 1))
        if len(turns) > _MOST_STATEMENTS:
            self.refuse(node, f"a loop of a stencil is written out, with at most {_MOST_STATEMENTS:,} turns: use fewer")
        return turns

    def _bind(self, target: ast.expr, value: Any, scope: _Scope) -> None:
        if isinstance(target, ast.Name):
            if not _is_constant(value):
                self.refuse(target, f"{target.id} is {value!r} in a turn of the loop: loop over numbers, or tuples of numbers")
            scope.known[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, tuple | list) and len(value) == len(target.elts):
            for name, part in zip(target.elts, value, strict=True):
                self._bind(name, part, scope)
        else:
            self.refuse(target, f"{value!r} does not fit {ast.unparse(target)}")

    def called(self, node: ast.Call, function: FunctionType, scope: _Scope, before: list[ast.stmt]) -> ast.expr:
        """Inline a helper: append its statements to `before` and return the expression of its result."""
        if scope.depth >= _DEEPEST:
            self.refuse(node, f"{function.__name__} calls itself, or {_DEEPEST} functions call each other: a stencil has no recursion")
        try:
            source, definition = _found(function)
        except StencilError as error:
            self.refuse(node, str(error))
        definition = copy.deepcopy(definition)
        if source.text != self.source.text or source.name != self.source.name:
            for part in ast.walk(definition):
                ast.copy_location(part, node)
        *body, last = definition.body
        if not isinstance(last, ast.Return) or last.value is None:
            self.refuse(node, f"{function.__name__} does not end with return and a value, so a stencil cannot call it")
        inner = self._scope_of(node, function, definition, scope, before)
        is_text = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        before += self.statements(body[1:] if is_text else body, inner)
        value: ast.expr = _Written(self, inner, before).visit(last.value)
        return value

    def _scope_of(
        self, node: ast.Call, function: FunctionType, definition: ast.FunctionDef, scope: _Scope, before: list[ast.stmt]
    ) -> _Scope:
        try:
            if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
                raise TypeError("arguments with * are not known before the run")
            bound = inspect.signature(function).bind(*node.args, **{str(one.arg): one.value for one in node.keywords})
        except TypeError as error:
            self.refuse(node, f"{function.__name__} cannot be called so: {error}")
        bound.apply_defaults()
        self.helpers += 1
        prefix = f"{function.__name__}_{self.helpers}_"
        known: dict[str, Any] = {}
        renamed: dict[str, ast.expr] = {}
        for name, argument in bound.arguments.items():
            value = constant_of(argument, scope.value_of) if isinstance(argument, ast.expr) else argument
            if _is_constant(value):
                known[name] = value
            elif not isinstance(argument, ast.expr):
                self.refuse(node, f"the default of {name} in {function.__name__} is not a number: pass a value")
            else:
                given = _Written(self, scope, before).visit(copy.deepcopy(argument))
                renamed[name] = given if isinstance(given, ast.Name) else self._named(prefix + name, given, before)
        assigned = _assigned(definition)
        clash = assigned & (set(known) | set(renamed))
        if clash:
            self.refuse(node, f"{function.__name__} assigns to its parameter {min(clash)}: a helper gives new values new names")
        renamed |= {name: ast.Name(prefix + name, ast.Load()) for name in assigned - _loop_names(definition)}
        return _Scope(function, known, renamed, frozenset(), scope.depth + 1)

    def _named(self, name: str, value: ast.expr, before: list[ast.stmt]) -> ast.Name:
        target = ast.copy_location(ast.Name(name, ast.Store()), value)
        before.append(ast.copy_location(ast.Assign([target], value), value))
        return ast.copy_location(ast.Name(name, ast.Load()), value)


class _Written(ast.NodeTransformer):
    """Transformer that substitutes the names of one statement or expression, and inlines helpers."""

    def __init__(self, expansion: _Expansion, scope: _Scope, before: list[ast.stmt]) -> None:
        self.expansion, self.scope, self.before = expansion, scope, before

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name, scope = node.id, self.scope
        if name in scope.known:
            if isinstance(node.ctx, ast.Store):
                self.expansion.refuse(node, f"{name} is a constant of a loop or an argument: give the new value a name of its own")
            return self._constant(scope.known[name], node)
        if name in scope.renamed:
            stands = copy.deepcopy(scope.renamed[name])
            if isinstance(stands, ast.Name):
                stands = ast.Name(stands.id, node.ctx)
            return ast.copy_location(stands, node)
        if scope.depth and isinstance(node.ctx, ast.Load):  # a global name of a helper has a meaning only in the helper's module
            value = scope.value_of(name)
            if _is_constant(value):
                return self._constant(value, node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = constant_of(node, self.scope.value_of) if self.scope.depth else None
        return self._constant(value, node) if _is_constant(value) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        value = constant_of(node, self.scope.value_of)
        if _is_constant(value):
            return self._constant(value, node)
        node.value = self.visit(node.value)
        node.slice = self._index(node.slice)
        return node

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            node.elts = [self._index(one) for one in node.elts]
            return node
        value = constant_of(node, self.scope.value_of)
        if isinstance(value, int) and not isinstance(value, bool) and not isinstance(node, ast.Constant):
            return self._constant(value, node)
        return self.visit(node)  # type: ignore[no-any-return]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = constant_of(node.test, self.scope.value_of)
        if isinstance(test, bool):
            return self.visit(node.body if test else node.orelse)  # type: ignore[no-any-return]
        node.test, node.body, node.orelse = self.visit(node.test), self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "sum" and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            return self._sum(node.args[0])
        function = constant_of(node.func, self.scope.value_of)
        if isinstance(function, FunctionType) and name not in FUNCTIONS and name != "where":
            return self.expansion.called(node, function, self.scope, self.before)
        node.args = [self.visit(one) for one in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def _sum(self, node: ast.GeneratorExp) -> ast.expr:
        """Return the sum of a generator's values, from left to right."""
        terms: list[ast.expr] = []
        scope = _Scope(self.scope.function, dict(self.scope.known), self.scope.renamed, self.scope.own, self.scope.depth)

        def over(position: int) -> None:
            if position == len(node.generators):
                terms.append(_Written(self.expansion, scope, self.before).visit(copy.deepcopy(node.elt)))
                return
            loop = node.generators[position]
            for value in self.expansion._values(loop.iter, scope):
                self.expansion._bind(loop.target, value, scope)
                kept = [constant_of(one, scope.value_of) for one in loop.ifs]
                if None in kept:
                    self.expansion.refuse(loop.ifs[kept.index(None)], "this condition is not known before the run: use where in the sum")
                if all(kept):
                    over(position + 1)

        over(0)
        if not terms:
            self.expansion.refuse(node, "this sum has no terms")
        value, *more = terms
        for term in more:
            value = ast.copy_location(ast.BinOp(value, ast.Add(), term), term)
        return value

    def _constant(self, value: Any, at: ast.expr) -> ast.expr:
        found: ast.expr = ast.copy_location(ast.Constant(abs(value)), at)
        if value < 0 or str(value).startswith("-"):
            found = ast.copy_location(ast.UnaryOp(ast.USub(), found), at)
        return found


def _is_constant(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _assigned(definition: ast.FunctionDef) -> set[str]:
    return {one.id for one in ast.walk(definition) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _loop_names(definition: ast.FunctionDef) -> set[str]:
    loops = [one.target for one in ast.walk(definition) if isinstance(one, ast.For)]
    loops += [part.target for one in ast.walk(definition) if isinstance(one, ast.GeneratorExp) for part in one.generators]
    return {part.id for one in loops for part in ast.walk(one) if isinstance(part, ast.Name)}
