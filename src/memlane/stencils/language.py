"""Parse the text of a Python function into a rule, without executing it. `definition` has unrolled loops and inlined helpers before.

Every error names file, line and column, quotes the line and has carets under the expression.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from memlane.errors import StencilError
from memlane.source import Span
from memlane.stencils.definition import constant_of, definition_of, name_span, outside_value, span_of
from memlane.stencils.expression import FUNCTIONS, Assignment, Expression, Local, Number, Operation, Read, Scalar, parts
from memlane.stencils.rule import Rule

_BINARY: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_SPELLED = {
    "minimum": "min", "maximum": "max", "fabs": "abs", "absolute": "abs", "power": "pow",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
}  # fmt: skip
"""Keys of `FUNCTIONS` for functions that have another name in NumPy or Python's math."""
_HIGHEST_POWER = 16


def read_rule(function: Callable[..., Any], coefficients: Sequence[str] = ()) -> Rule:
    """Return the rule that a Python function states. Raise StencilError, which points at the unsupported code.

    `coefficients` names parameters that are arrays of coefficients; that is needed only for rules of one dimension, where `a[0]` could be
    the field's own cell.
    """
    return _Reader(function, tuple(coefficients)).rule()


class _Reader:
    def __init__(self, function: Callable[..., Any], coefficients: tuple[str, ...]) -> None:
        self.function = function
        self.source, self.node = definition_of(function)
        arguments = self.node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
            self.refuse(self.node, "a stencil takes plain parameters only: name each field and scalar")
        self.parameters = tuple(one.arg for one in (*arguments.posonlyargs, *arguments.args))
        for name in coefficients:
            if name not in self.parameters:
                self.refuse(self.node, f"coefficients names {name!r}, which is not a parameter of {self.node.name}")
        self.coefficients = coefficients
        self.locals: set[str] = set()
        self.body: list[Assignment] = []
        self.dimensions = self._dimensions()
        self.written = {one.value.id for one in self._targets() if isinstance(one.value, ast.Name)}

    # -- the function --------------------------------------------------------------------------------------------------------------

    def rule(self) -> Rule:
        for position, statement in enumerate(self.node.body):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not (position == 0 and is_text):
                self._statement(statement)
        if not any(one.is_field or one.reduces for one in self.body):
            self.refuse(self.node, f"{self.node.name} assigns to no field: write field[{', '.join(['0'] * self.dimensions)}] = ...")
        used = {part.name for one in self.body for part in parts(one.value) if isinstance(part, Read | Scalar)}
        for name in self.parameters:
            if name not in used and name not in self.written and name not in {one.name for one in self.body if one.reduces}:
                self.refuse(self.node, f"parameter {name!r} of {self.node.name} is not used: remove it")
        return Rule(self.node.name, self.dimensions, self.parameters, tuple(self.body), self.source, self.function)

    def _targets(self) -> list[ast.Subscript]:
        found = []
        for node in ast.walk(self.node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
            found += [one for one in targets if isinstance(one, ast.Subscript)]
        return found

    def _dimensions(self) -> int:
        """Return the number of axes: that of the fields that are written, or else of what is read with most indices."""
        written = [len(_indices(one)) for one in self._targets()]
        read = [len(_indices(one)) for one in ast.walk(self.node) if isinstance(one, ast.Subscript)]
        count = written[0] if written else max(read, default=0)
        if not 1 <= count <= 3:
            self.refuse(self.node, f"{self.node.name} has fields of {count} dimensions; a stencil has one to three")
        return count

    # -- statements ----------------------------------------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node.targets[0], node.value, node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value, node)
        elif not isinstance(node, ast.Pass):
            self.refuse(
                node, "a stencil has assignments and for loops; write a condition as where(condition, a, b) or a if condition else b"
            )

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> None:
        if isinstance(target, ast.Subscript):
            name = self._field_name(target)
            if any(self._offsets(target)):
                self.refuse(target, f"a rule writes its own cell only: write {name}[{', '.join(['0'] * self.dimensions)}] = ...")
            if any(one.is_field and one.name == name for one in self.body):
                self.refuse(target, f"{name} is written twice: use a local name for the first value")
            self.body.append(Assignment(name, self._value(value), node.lineno, is_field=True))
            return
        if not isinstance(target, ast.Name):
            self.refuse(target, "a stencil assigns to a field or to one name")
        if target.id in self.parameters:
            self._reduction(target, value, node)
            return
        self.body.append(Assignment(target.id, self._value(value), node.lineno))
        self.locals.add(target.id)

    def _augmented(self, node: ast.AugAssign) -> None:
        operator = _BINARY.get(type(node.op))
        target = node.target
        if isinstance(target, ast.Subscript):
            self.refuse(target, f"{ast.unparse(target)} would be read by the rule that writes it: write it once, from other fields")
        if not isinstance(target, ast.Name) or operator is None:
            self.refuse(node, "a stencil has +=, -=, *= and /= on names only")
        if target.id in self.parameters:
            if operator != "+":
                self.refuse(node, f"{target.id} is a reduction over all cells, which has += only (or = min(...) and = max(...))")
            self._add_reduction(target, "sum", node.value, node)
            return
        value = Operation(operator, (self._name(target), self._value(node.value)), self.span(node))
        self.body.append(Assignment(target.id, value, node.lineno))

    def _reduction(self, target: ast.Name, value: ast.expr, node: ast.stmt) -> None:
        """Read `peak = max(peak, value)`."""
        if isinstance(value, ast.Call) and len(value.args) == 2:
            name = self._function(value)
            first, second = value.args
            if name in ("min", "max") and isinstance(first, ast.Name) and first.id == target.id:
                self._add_reduction(target, name, second, node)
                return
        self.refuse(target, f"{target.id} is a parameter: write {target.id}[...] = for a field, += or = max({target.id}, ...) to reduce")

    def _add_reduction(self, target: ast.Name, kind: str, value: ast.expr, node: ast.stmt) -> None:
        if target.id in self.written:
            self.refuse(target, f"{target.id} is a field: a reduction needs a parameter of its own")
        if any(one.reduces and one.name == target.id for one in self.body):
            self.refuse(target, f"{target.id} is reduced twice: add the two values first")
        self.body.append(Assignment(target.id, self._value(value), node.lineno, reduces=kind))

    # -- expressions ---------------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return Number(node.value, self.span(node))
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._constant(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.BoolOp):
            name = "and" if isinstance(node.op, ast.And) else "or"
            values = [self._value(one) for one in node.values]
            for value in values[1:]:
                values[0] = Operation(name, (values[0], value), self.span(node))
            return values[0]
        if isinstance(node, ast.IfExp):
            return Operation("where", (self._value(node.test), self._value(node.body), self._value(node.orelse)), self.span(node))
        if isinstance(node, ast.Call):
            return self._call(node)
        self.refuse(node, f"{type(node).__name__} has no meaning in a stencil")

    def _name(self, node: ast.Name) -> Expression:
        name = node.id
        if name in self.locals:
            return Local(name, self.span(node))
        if name in self.parameters:
            if name in self.written:
                self.refuse(node, f"{name} is a field: write {name}[{', '.join(['0'] * self.dimensions)}]")
            return Scalar(name, None, self.span(node))
        return self._constant(node)

    def _constant(self, node: ast.Name | ast.Attribute) -> Number:
        """Return the number that a global or closure name refers to."""
        value = self._outside(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(node, f"{ast.unparse(node)} is not declared: make it a parameter, a local name, or a number outside the function")
        return Number(value, self.span(node))

    def _outside(self, node: ast.expr) -> Any:
        """Evaluate an expression of global or closure names; return None if it has no value."""
        inside = (*self.parameters, *self.locals)
        return constant_of(node, lambda name: None if name in inside else outside_value(self.function, name))

    def _subscript(self, node: ast.Subscript) -> Expression:
        if not isinstance(node.value, ast.Name) or node.value.id not in self.parameters:
            self.refuse(node.value, f"{ast.unparse(node.value)} is not a field of this stencil: add it to the parameters")
        name = node.value.id
        if name in self.written:
            self.refuse(
                node, f"{name} is read by the rule that writes it, so its value would depend on the order of cells: read another field"
            )
        if name in self.coefficients or (self.dimensions > 1 and len(_indices(node)) == 1):
            index = self._integer(_indices(node)[0])
            if index is None or index < 0:
                self.refuse(node, f"an element of the coefficients {name} has a constant index of 0 or more")
            return Scalar(name, index, self.span(node))
        return Read(name, self._offsets(node), self.span(node))

    def _binary(self, node: ast.BinOp) -> Expression:
        if isinstance(node.op, ast.Pow):
            return self._power(node)
        name = _BINARY.get(type(node.op))
        if name is None:
            self.refuse(node, "a stencil has the operators +, -, *, / and **")
        left, right = self._value(node.left), self._value(node.right)
        if isinstance(left, Number) and isinstance(right, Number):
            return self._folded(name, left, right, node)
        return Operation(name, (left, right), self.span(node))

    def _folded(self, name: str, left: Number, right: Number, node: ast.expr) -> Number:
        try:
            value = {"+": left.value + right.value, "-": left.value - right.value, "*": left.value * right.value}.get(name)
            return Number(left.value / right.value if value is None else value, self.span(node))
        except (ZeroDivisionError, OverflowError) as error:
            self.refuse(node, f"this constant cannot be computed: {error}")

    def _power(self, node: ast.BinOp) -> Expression:
        exponent = self._integer(node.right)
        base = self._value(node.left)
        if isinstance(base, Number) and isinstance(power := self._value(node.right), Number):
            return self._power_of_constants(base, power, node)
        if exponent is None or not 1 <= exponent <= _HIGHEST_POWER:
            return Operation("pow", (base, self._value(node.right)), self.span(node))
        value = base
        for _ in range(exponent - 1):
            value = Operation("*", (value, base), self.span(node))
        return value

    def _power_of_constants(self, base: Number, power: Number, node: ast.expr) -> Number:
        try:
            value = base.value**power.value
        except (ZeroDivisionError, OverflowError) as error:
            self.refuse(node, f"this constant cannot be computed: {error}")
        if isinstance(value, complex):
            self.refuse(node, f"this constant is not real: {ast.unparse(node)}")
        return Number(value, self.span(node))

    def _unary(self, node: ast.UnaryOp) -> Expression:
        value = self._value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Not):
            return Operation("not", (value,), self.span(node))
        if not isinstance(node.op, ast.USub):
            self.refuse(node, "a stencil has the operators -x, +x and not x")
        return Number(-value.value, self.span(node)) if isinstance(value, Number) else Operation("neg", (value,), self.span(node))

    def _compare(self, node: ast.Compare) -> Expression:
        values = [self._value(one) for one in (node.left, *node.comparators)]
        found: Expression | None = None
        for position, operator in enumerate(node.ops):
            name = _COMPARE.get(type(operator))
            if name is None:
                self.refuse(node, "a stencil compares with <, <=, >, >=, == and !=")
            one = Operation(name, (values[position], values[position + 1]), self.span(node))
            found = one if found is None else Operation("and", (found, one), self.span(node))
        assert found is not None
        return found

    def _function(self, node: ast.Call) -> str:
        """Return the key in `FUNCTIONS` of the called function."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        return _SPELLED.get(name, name)

    def _call(self, node: ast.Call) -> Expression:
        name = self._function(node)
        operands = tuple(self._value(one) for one in node.args)
        wanted = 3 if name == "where" else FUNCTIONS.get(name)
        if wanted is None:
            known = ", ".join(sorted([*FUNCTIONS, "where"]))
            self.refuse(node.func, f"{ast.unparse(node.func)} is not a function that a stencil may call: it has {known}")
        if name in ("min", "max") and len(operands) > 2:
            value = operands[0]
            for operand in operands[1:]:
                value = Operation(name, (value, operand), self.span(node))
            return value
        if node.keywords or len(operands) != wanted:
            self.refuse(node, f"{name} takes {wanted} argument{'s' if wanted > 1 else ''}, not {len(operands) + len(node.keywords)}")
        numbers = [one.value for one in operands if isinstance(one, Number)]
        if name != "where" and len(numbers) == len(operands):
            return Number(self._computed(name, numbers, node), self.span(node))
        return Operation(name, operands, self.span(node))

    def _computed(self, name: str, numbers: list[int | float], node: ast.Call) -> float:
        plain: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max}
        function: Callable[..., Any] = plain[name] if name in plain else getattr(math, name)
        try:
            return float(function(*numbers))
        except (ValueError, OverflowError) as error:
            self.refuse(node, f"this constant cannot be computed: {error}")

    # -- indices -------------------------------------------------------------------------------------------------------------------

    def _field_name(self, node: ast.Subscript) -> str:
        if not isinstance(node.value, ast.Name) or node.value.id not in self.parameters:
            self.refuse(node.value, f"{ast.unparse(node.value)} is not a field of this stencil: add it to the parameters")
        return node.value.id

    def _offsets(self, node: ast.Subscript) -> tuple[int, ...]:
        indices = _indices(node)
        if len(indices) != self.dimensions:
            self.refuse(node, f"{ast.unparse(node.value)} has {len(indices)} indices here, and the rule has {self.dimensions} dimensions")
        found = []
        for one in indices:
            offset = self._integer(one)
            if offset is None:
                self.refuse(one, f"the offset {ast.unparse(one)} is not a constant whole number, so the footprint cannot be known")
            found.append(offset)
        return tuple(found)

    def _integer(self, node: ast.expr) -> int | None:
        """Return the integer constant that an expression is, or None."""
        value = self._outside(node)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    # -- places --------------------------------------------------------------------------------------------------------------------

    def span(self, node: ast.expr | ast.stmt) -> Span:
        return span_of(self.source, node)

    def refuse(self, node: ast.expr | ast.stmt, message: str) -> NoReturn:
        raise StencilError(message, name_span(self.source, self.node) if node is self.node else self.span(node))


def _indices(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def is_number(value: object) -> bool:
    """Return whether a value is a finite number, as a boundary or a scalar may be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
