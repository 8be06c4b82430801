"""Generate the update of one cell as a function of CUDA C++, from the values that it reads to those that it writes and reduces.

Operations are emitted in the order of the rule, each in the type that NumPy would give it. The compiler must not contract products and
sums; fused multiply-adds, where requested, are emitted explicitly. So every kernel of a rule rounds alike, however it is unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlane.errors import StencilError
from memlane.source import Span
from memlane.stencils.expression import COMPARISONS, LOGIC, Expression, Local, Number, Operation, Read, Scalar
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule

REGISTER = {"f2": "float", "f4": "float", "f8": "double", "u1": "unsigned char"}
"""C++ type in which a kernel computes with the values of a field. f2 values are rounded to half after each operation."""
STORED = {"f2": "unsigned short", "f4": "float", "f8": "double", "u1": "unsigned char"}
"""C++ type of the elements of a field in memory."""
_ORDER = {"u1": 0, "f2": 1, "f4": 2, "f8": 3}


@dataclass(frozen=True)
class _Value:
    """A C++ expression and its type: `f2`, `f4`, `f8`, `u1`, `bool`, or `number` for a constant that has none yet."""

    text: str
    type: str
    number: int | float = 0
    factors: tuple[str, str] | None = None
    """The two factors of a product, which a sum may fuse into a multiply-add."""


def plain(name: str) -> str:
    """Convert a Python name to a valid C++ prefix, to be followed by an underscore and a suffix."""
    return "".join(one if one.isascii() else f"u{ord(one):x}" for one in name)


def scalar_name(name: str, index: int | None) -> str:
    """Return the C++ name of a scalar or of an element of an array of coefficients."""
    return f"{plain(name)}_" if index is None else f"{plain(name)}_{index}"


def value_name(name: str, offsets: tuple[int, ...]) -> str:
    """Return the C++ name of the value of a field at some offsets, such as `u_m1_0_p2`."""
    return "_".join([plain(name), *(f"{'m' if one < 0 else 'p' if one else ''}{abs(one)}" for one in offsets)])


def line_directive(rule: Rule, line: int) -> str:
    """Return the `#line` directive that attributes the following code to a line of the rule."""
    name = rule.source.name.replace("\\", "/").replace('"', "'")
    return f'#line {line} "{name}"'


def ascribed(rule: Rule, line: int, statements: list[str]) -> list[str]:
    """Return statements with directives that attribute each of them to a line of the rule."""
    directive = line_directive(rule, line)
    return [part for one in statements for part in ((one,) if one.startswith("#") else (directive, one))]


GENERATED = "#line @"
"""Placeholder of the directive that returns to the generated text; its line is known only when the text is complete."""


class CellFunction:
    """Generator of the function of a rule: `text` is its definition, `call` returns a call of it."""

    def __init__(self, problem: Problem, rule: Rule, fmad: bool, reduces: bool) -> None:
        self.problem, self.rule, self.fmad = problem, rule, fmad
        self.reductions = rule.reductions if reduces else {}
        self.locals: dict[str, _Value] = {}
        self.versions: dict[str, int] = {}
        self.lines: list[str] = []
        for assignment in rule.body:
            if assignment.reduces and not reduces:
                continue
            self._assign(assignment.name, assignment.value, assignment.line, assignment.is_field, bool(assignment.reduces))
        self.text = self._definition()

    def arguments(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the values that the function reads, in the order of its parameters."""
        return [(name, offsets) for name, several in self.rule.reads.items() for offsets in several]

    def results(self) -> list[tuple[str, str]]:
        """Return the names and C++ types of what the function returns by reference."""
        fields = [(name, REGISTER[self.problem.dtype(name)]) for name in self.rule.writes]
        return fields + [(name, "double") for name in self.reductions]

    def _definition(self) -> str:
        dtype = self.problem.dtype
        parameters = [f"const {REGISTER[dtype(name)]} {value_name(name, at)}" for name, at in self.arguments()]
        parameters += [f"const {REGISTER[self.problem.grid.dtype]} {one}" for one in scalar_names(self.rule)]
        parameters += [f"{kind}& {plain(name)}_value" for name, kind in self.results()]
        head = f"__device__ __forceinline__ void {plain(self.rule.name)}_cell("
        listed = ",\n        ".join(", ".join(parameters[start : start + 6]) for start in range(0, len(parameters), 6))
        return "\n".join([f"{head}\n        {listed}) {{", *self.lines, GENERATED, "}"])

    # -- assignments -------------------------------------------------------------------------------------------------------------

    def _assign(self, name: str, expression: Expression, line: int, is_field: bool, is_reduced: bool) -> None:
        value = self._expression(expression)
        self.lines.append(line_directive(self.rule, line))
        if is_field:
            to = self.problem.dtype(name)
            self.lines.append(f"    {plain(name)}_value = {self._converted(value, to, expression.span)};")
            return
        if is_reduced:
            text = value.text if value.type != "number" else repr(float(value.number))
            self.lines.append(f"    {plain(name)}_value = (double)({text});")
            return
        if value.type == "number":
            self.locals[name] = value
            return
        version = self.versions.get(name, 0)
        self.versions[name] = version + 1
        variable = f"{plain(name)}_{version}_" if version else f"{plain(name)}_"
        self.lines.append(f"    const {'bool' if value.type == 'bool' else REGISTER[value.type]} {variable} = {value.text};")
        self.locals[name] = _Value(variable, value.type)

    def _converted(self, value: _Value, to: str, span: Span | None) -> str:
        if value.type == "number":
            return literal(value.number, to)
        if value.type == "bool":
            return f"({value.text} ? {literal(1, to)} : {literal(0, to)})"
        if value.type == to:
            return value.text
        if to == "u1":
            raise StencilError("a mask of type u1 is read only by conditions, and cannot be computed", span)
        if to == "f2":
            return f"round_half({value.text})"
        return f"({REGISTER[to]})({value.text})"

    def _rounded(self, text: str, kind: str) -> str:
        return f"round_half({text})" if kind == "f2" else text

    # -- expressions -------------------------------------------------------------------------------------------------------------

    def _expression(self, one: Expression) -> _Value:
        if isinstance(one, Number):
            return _Value("", "number", one.value)
        if isinstance(one, Read):
            return _Value(value_name(one.name, one.offsets), self.problem.dtype(one.name))
        if isinstance(one, Scalar):
            return _Value(scalar_name(one.name, one.index), self.problem.grid.dtype)
        if isinstance(one, Local):
            return self.locals[one.name]
        values = [self._expression(operand) for operand in one.operands]
        if one.name in LOGIC:
            return self._logic(one.name, values)
        if one.name in COMPARISONS:
            return self._comparison(one, values)
        if one.name == "where":
            kind = self._common(one, values[1:], self.problem.grid.dtype)
            chosen = [self._converted(value, kind, one.span) for value in values[1:]]
            return _Value(f"({_truth(values[0])} ? {chosen[0]} : {chosen[1]})", kind)
        return self._arithmetic(one, values)

    def _logic(self, name: str, values: list[_Value]) -> _Value:
        if name == "not":
            return _Value(f"!{_truth(values[0])}", "bool")
        return _Value(f"({_truth(values[0])} {'&&' if name == 'and' else '||'} {_truth(values[1])})", "bool")

    def _comparison(self, one: Operation, values: list[_Value]) -> _Value:
        if {value.type for value in values} <= {"u1", "number"}:
            texts = [str(value.number) if value.type == "number" else f"(int){value.text}" for value in values]
        else:
            kind = self._common(one, values)
            texts = [self._converted(value, kind, one.span) for value in values]
        return _Value(f"({texts[0]} {one.name} {texts[1]})", "bool")

    def _common(self, one: Operation, values: list[_Value], otherwise: str = "") -> str:
        """Return the type of an operation: the widest of its operands' types."""
        kinds = [value.type for value in values if value.type in _ORDER]
        kind = max(kinds, key=_ORDER.__getitem__, default=otherwise)
        if not kind or kind == "u1" or (otherwise == "" and all(value.type in ("bool", "number") for value in values)):
            raise StencilError("numbers come from conditions by where(condition, 1.0, 0.0): arithmetic on conditions has no type", one.span)
        return kind

    def _arithmetic(self, one: Operation, values: list[_Value]) -> _Value:
        kind = self._common(one, values)
        texts = [self._converted(value, kind, one.span) for value in values]
        if one.name == "neg":
            return _Value(f"(-{texts[0]})", kind)
        if one.name in ("+", "-"):
            return _Value(self._rounded(self._sum(one.name, values, texts, kind), kind), kind)
        if one.name in ("*", "/"):
            factors = (texts[0], texts[1]) if one.name == "*" else None
            return _Value(self._rounded(f"({texts[0]} {one.name} {texts[1]})", kind), kind, factors=factors)
        if one.name in ("min", "max"):
            return _Value(f"{one.name}imum({', '.join(texts)})", kind)
        name = {"abs": "fabs"}.get(one.name, one.name) + ("" if kind == "f8" else "f")
        return _Value(self._rounded(f"{name}({', '.join(texts)})", kind), kind)

    def _sum(self, operator: str, values: list[_Value], texts: list[str], kind: str) -> str:
        """Return a sum or difference; a product of the same type in it becomes part of a fused multiply-add."""
        name = "fma" if kind == "f8" else "fmaf"
        if self.fmad and kind != "f2":
            left, right = values
            if right.factors and right.type == kind:
                first = right.factors[0] if operator == "+" else f"-{right.factors[0]}"
                return f"{name}({first}, {right.factors[1]}, {texts[0]})"
            if left.factors and left.type == kind:
                return f"{name}({left.factors[0]}, {left.factors[1]}, {texts[1] if operator == '+' else '-' + texts[1]})"
        return f"({texts[0]} {operator} {texts[1]})"


def _truth(value: _Value) -> str:
    if value.type == "number":
        return "true" if value.number else "false"
    return value.text if value.type == "bool" else f"({value.text} != 0)"


def literal(value: int | float, kind: str) -> str:
    """Return a C++ literal of a type, with exactly the value to which NumPy rounds the number."""
    if kind == "u1":
        return str(int(value))
    exact = np.dtype(kind).type(value)
    if not np.isfinite(exact):
        bits = np.float64(exact).view(np.uint64)
        return f"(({REGISTER[kind]})__longlong_as_double(0x{int(bits):x}ULL))"
    shortest = repr(float(exact)) if kind == "f8" else str(np.float32(exact))
    shortest = shortest if any(one in shortest for one in ".e") else shortest + ".0"
    text = shortest if kind == "f8" else shortest + "f"
    return f"({text})" if text.startswith("-") else text


def scalar_names(rule: Rule) -> list[str]:
    """Return the C++ names of the scalars and coefficients of a rule, in order."""
    found = []
    for name, length in rule.scalars.items():
        found += [scalar_name(name, None)] if length is None else [scalar_name(name, index) for index in range(length)]
    return found


HELPERS = """\
__device__ __forceinline__ float minimum(float a, float b) { return (a < b || a != a) ? a : b; }
__device__ __forceinline__ float maximum(float a, float b) { return (a > b || a != a) ? a : b; }
__device__ __forceinline__ double minimum(double a, double b) { return (a < b || a != a) ? a : b; }
__device__ __forceinline__ double maximum(double a, double b) { return (a > b || a != a) ? a : b; }
__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ double widened(double value) { return value; }
__device__ __forceinline__ unsigned char widened(unsigned char value) { return value; }
__device__ __forceinline__ void narrow(float& to, float value) { to = value; }
__device__ __forceinline__ void narrow(double& to, double value) { to = value; }
"""

HALF_HELPERS = """\
__device__ __forceinline__ float widened(unsigned short value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
}
__device__ __forceinline__ void narrow(unsigned short& to, float value) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to) : "f"(value)); }
__device__ __forceinline__ float round_half(float value) {
    unsigned short half;
    narrow(half, value);
    return widened(half);
}
__device__ __forceinline__ float round_half(double value) {  // once, as by float it would be twice
    unsigned short half;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half) : "d"(value));
    return widened(half);
}
"""
