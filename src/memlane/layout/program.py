"""Compile an expression into steps computed once each: evaluate them over integers and arrays, and print them as CUDA C++ and Python.

Equal subexpressions are one step (common subexpression elimination); steps used more than once become variables. The number of steps is the
cost of the expression in a kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from keyword import iskeyword
from typing import Any, Literal, NamedTuple

import numpy as np

from memlane.errors import LayoutError
from memlane.layout.expression import OPERATORS, Expression
from memlane.number_format import plural

_ARRAY_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {**OPERATORS, "min": np.minimum, "max": np.maximum}
_LEAVES = ("number", "name")

Table = np.ndarray[Any, np.dtype[np.int64]]
Placement = Literal["global", "constant", "argument"]
"""Place of the lookup tables of a CUDA C++ function: global memory, constant memory (device-only), or pointers passed as its last
arguments, which may point to shared memory."""


class Cost(NamedTuple):
    """Cost of an index computation in a kernel; compares lexicographically, so a lookup outweighs any arithmetic."""

    lookups: int
    """Table reads from memory."""
    operations: int
    """Additions, shifts, logical operations and the like, each at most one instruction unless it divides by an odd number."""

    def __str__(self) -> str:
        looked = f", {plural(self.lookups, 'look-up')}" if self.lookups else ""
        return f"{plural(self.operations, 'operation')}{looked}"


@dataclass(frozen=True)
class Step:
    """One operation on the results of earlier steps, given by their numbers in `operands`."""

    part: Expression
    operands: tuple[int, ...]


class Program:
    """The steps of one expression; the last step is its value."""

    def __init__(self, expression: Expression) -> None:
        self.steps: list[Step] = []
        self._numbers: dict[object, int] = {}
        self._seen: dict[int, int] = {}
        self._add(expression)

    def _add(self, part: Expression) -> int:
        if id(part) not in self._seen:
            operands = tuple(self._add(operand) for operand in part.operands)
            key = (part.op, part.value, operands)
            if key not in self._numbers:
                self._numbers[key] = len(self.steps)
                self.steps.append(Step(part, operands))
            self._seen[id(part)] = self._numbers[key]
        return self._seen[id(part)]

    @cached_property
    def cost(self) -> Cost:
        counted = Counter("lookups" if step.part.op == "table" else "operations" for step in self.steps if step.part.op not in _LEAVES)
        return Cost(counted["lookups"], counted["operations"])

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the value for integers, or for int64 arrays that broadcast against each other."""
        arrays = any(isinstance(value, np.ndarray) for value in values.values())
        operators = _ARRAY_OPERATORS if arrays else OPERATORS
        results: list[Any] = []
        for number, step in enumerate(self.steps):
            part, operands = step.part, [results[one] for one in step.operands]
            if part.op == "name":
                results.append(values[str(part.value)])
            elif part.op == "number":
                results.append(part.value)
            elif isinstance(part.value, tuple):
                table = self._tables[number] if arrays else part.value
                results.append(table[operands[0]])
            else:
                results.append(operators[part.op](*operands))
        return results[-1]

    @cached_property
    def _tables(self) -> dict[int, Table]:
        """Step number -> lookup table."""
        return {number: np.array(step.part.value, np.int64) for number, step in enumerate(self.steps) if step.part.op == "table"}

    @property
    def tables(self) -> tuple[Table, ...]:
        """The lookup tables, in the order of their numbers."""
        return tuple(self._tables.values())

    # -- as text -----------------------------------------------------------------------------------------------------------------

    def cuda(self, function: str, parameters: tuple[str, ...], placement: Placement = "global") -> str:
        """Return a CUDA C++ function that computes in `int` if that holds every intermediate value, else in `long long`."""
        _check_name(function)
        self._check_rounding()
        kind = "int" if all(step.part.low >= -(1 << 31) and step.part.high < 1 << 31 for step in self.steps) else "long long"
        name = f"{function}_table{{}}" if placement == "constant" else "table{}"
        arrays = [
            f"{kind} {name.format(number)}[{len(values)}] = {{{', '.join(map(str, values))}}};"
            for number, values in enumerate(self.tables)
        ]  # fmt: skip
        given = [f"const {kind}* {name.format(number)}" for number in range(len(arrays)) if placement == "argument"]
        before = [f"__constant__ {array}" for array in arrays if placement == "constant"]
        where = "__device__" if before else "__host__ __device__"
        texts, variables = self._texts(_in_c, name)
        return "\n".join(
            [
                *before,
                f"{where} inline {kind} {function}({', '.join([*(f'{kind} {one}' for one in parameters), *given])})",
                "{",
                *(f"    static const {array}" for array in arrays if placement == "global"),
                *(f"    const {kind} {variable} = {text};" for variable, text in variables),
                f"    return {texts[-1]};",
                "}",
                "",
            ]
        )

    def python(self, function: str, parameters: tuple[str, ...]) -> str:
        """Return a Python function that Numba can compile; `named_tables` returns its global arrays."""
        _check_name(function)
        self._check_rounding()
        texts, variables = self._texts(_in_python, f"{function}_table{{}}")
        lines = [f"def {function}({', '.join(parameters)}):", *(f"    {variable} = {text}" for variable, text in variables)]
        return "\n".join([*lines, f"    return {texts[-1]}", ""])

    def triton(self, function: str, parameters: tuple[str, ...]) -> str:
        """Return a Triton function over blocks of integers. Raises LayoutError if it would need a lookup table."""
        _check_name(function)
        self._check_rounding()
        if self.tables:
            raise LayoutError(f"{function} looks up a table, which a Triton kernel has to load itself: use CUDA C++ or Numba")
        texts, variables = self._texts(_in_triton, "")
        wide = any(step.part.low < -(1 << 31) or step.part.high >= 1 << 31 for step in self.steps)
        used = [str(step.part.value) for step in self.steps if step.part.op == "name"] if wide else []
        widened = [f"    {word} = {word}.to(tl.int64)" for word in parameters if word in used]
        lines = ["@triton.jit", f"def {function}({', '.join(parameters)}):", *widened]
        return "\n".join([*lines, *(f"    {variable} = {text}" for variable, text in variables), f"    return {texts[-1]}", ""])

    def named_tables(self, function: str) -> dict[str, Table]:
        """Return the global arrays of the function that `python` writes."""
        return {f"{function}_table{number}": values for number, values in enumerate(self.tables)}

    def _texts(self, operation: Callable[[str, list[str]], str], table: str) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the text of each step, and the variables to define first, in order."""
        uses = Counter(operand for step in self.steps for operand in step.operands)
        texts: list[str] = []
        variables: list[tuple[str, str]] = []
        tables = count()
        for number, step in enumerate(self.steps):
            part, operands = step.part, [texts[one] for one in step.operands]
            if part.op in _LEAVES:
                texts.append(str(part.value) if part.low >= 0 else f"({part.value})")
                continue
            text = (
                f"{table.format(next(tables))}[{_without_parentheses(operands[0])}]"
                if part.op == "table"
                else f"({operation(part.op, operands)})"
            )
            if uses[number] > 1:
                variables.append((f"t{len(variables)}", _without_parentheses(text)))
                text = variables[-1][0]
            texts.append(text)
        return [*texts[:-1], _without_parentheses(texts[-1])], variables

    def _check_rounding(self) -> None:
        """Raise ValueError if a division or shift may get negative values: C rounds towards zero and Python down."""
        for step in self.steps:
            if step.part.op in ("//", "%", ">>") and any(operand.low < 0 for operand in step.part.operands):
                raise ValueError(f"{step.part.op} of a value that can be negative differs between C and Python")


def _in_c(op: str, operands: list[str]) -> str:
    left, right = operands
    if op in ("min", "max"):
        return f"{left} {'<' if op == 'min' else '>'} {right} ? {left} : {right}"
    return f"{left} {'/' if op == '//' else op} {right}"


def _in_python(op: str, operands: list[str]) -> str:
    return f"{op}({', '.join(operands)})" if op in ("min", "max") else f" {op} ".join(operands)


def _in_triton(op: str, operands: list[str]) -> str:
    return f"tl.{op}imum({', '.join(operands)})" if op in ("min", "max") else f" {op} ".join(operands)


def _without_parentheses(text: str) -> str:
    """Remove the outer parentheses if they match each other."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _check_name(function: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*", function, re.ASCII) or iskeyword(function):
        raise LayoutError(f"{function!r} is not a name for a function; write letters, digits and underscores")
