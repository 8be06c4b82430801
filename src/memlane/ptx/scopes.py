"""Flatten the inner blocks of a function.

    { .reg .b32 t; mov.b32 t, 1; }              .reg .b32 t;     mov.b32 t, 1;
    { .reg .b32 t; mov.b32 t, 2; }      ->      .reg .b32 t__1;  mov.b32 t__1, 2;

Call sequences and inline assembly come in braces, with local names that the next pair of braces uses again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from memlane.ptx.ir import Block, Directive, Function, Instruction, Label, RegisterDecl, Statement, Variable
from memlane.ptx.lexer import NAME
from memlane.ptx.operands import register_number
from memlane.ptx.registers import names_in, rename_instruction

_HIDDEN = "\0"
"""A prefix that no name in PTX has."""


def flatten_scopes(function: Function) -> Function:
    """Return the function with a body of one level, in which every name is declared once; the function itself if it has no inner blocks."""
    if function.body is None or not any(isinstance(statement, Block) for statement in function.body.statements):
        return function
    return replace(function, body=Block(tuple(_Flattener(function).flatten(function.body.statements, None))))


class _Scope:
    """The names declared in one block, each with its name after flattening."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, str] = {}
        self.ranges: list[tuple[str, int, str]] = []

    def declare(self, statement: Statement, renamed: Callable[[str, int | None], str]) -> None:
        """Add the declarations of a statement; `renamed` returns the new name, for a range (with its count) without the numbers."""
        if isinstance(statement, RegisterDecl) and statement.count is not None:
            self.ranges.append((statement.name, statement.count, renamed(statement.name, statement.count)))
        elif isinstance(statement, (RegisterDecl, Variable, Label)):
            self.names[statement.name] = renamed(statement.name, None)

    def rename(self, name: str) -> str:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            for prefix, count, renamed in scope.ranges:
                number = register_number(name, prefix, count)
                if number is not None:
                    return f"{renamed}{number}"
            scope = scope.outer
        return name


class _Flattener:
    def __init__(self, function: Function) -> None:
        assert function.body is not None
        self.last: dict[str, int] = {}
        """Number behind the last name derived from each name."""
        self.taken = _UsedNames()
        for variable in (*function.params, *function.results):
            self.taken.add(variable.name)
        for name in outer_names(function.body.statements):
            self.taken.add(name)
        for statement in function.body.statements:
            if isinstance(statement, RegisterDecl) and statement.count is not None:
                self.taken.add(statement.name, statement.count)

    def flatten(self, statements: tuple[Statement, ...], scope: _Scope | None) -> Iterator[Statement]:
        """Yield the statements of one block and of its inner blocks; `scope` is None for the body itself, where no name changes."""
        if scope is not None:
            self.declare([one for one in statements if isinstance(one, Label)], scope)
        for statement in statements:
            if scope is not None and not isinstance(statement, Label):  # before its declaration a name is that of a block around
                scope.declare(statement, self.fresh)
            if isinstance(statement, Block):
                yield from self.flatten(statement.statements, _Scope(scope))
            else:
                yield statement if scope is None else _renamed(statement, scope)

    def declare(self, statements: Iterable[Statement], scope: _Scope) -> None:
        for statement in statements:
            scope.declare(statement, self.fresh)

    def fresh(self, name: str, count: int | None) -> str:
        """Return `name`, or `name` with a number, so that it (and the `count` names of a range with this prefix) is unused; reserve it."""
        candidate, end = name, "" if count is None else "_"
        while self.taken.meets(candidate, count):
            self.last[name] = self.last.get(name, 0) + 1
            candidate = f"{name}__{self.last[name]}{end}"
        self.taken.add(candidate, count)
        return candidate


class _UsedNames:
    """Names and ranges of names in use; ranges are not expanded, as a range may be larger than memory.

    They are grouped by their part before trailing digits: only names of one group can be equal, or lie in each other's range.
    """

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = defaultdict(set)
        self.ranges: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def add(self, name: str, count: int | None = None) -> None:
        """Reserve a name, or a range of `count` names with that prefix."""
        if count is None:
            self.names[_stem(name)].add(name)
        else:
            self.ranges[_stem(name)].append((name, count))

    def meets(self, name: str, count: int | None) -> bool:
        """Return whether a name, or one of the `count` names with that prefix, is in use, or may be."""
        stem = _stem(name)
        if count is None:
            return name in self.names[stem] or any(register_number(name, *one) is not None for one in self.ranges[stem])
        return bool(self.ranges[stem]) or any(register_number(one, name, count) is not None for one in self.names[stem])


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def outer_names(statements: tuple[Statement, ...]) -> Iterator[str]:
    """Yield the names used or declared at the outer level; a name used in an inner block only if no block around declares it before.

    Ranges declared at the outer level are left out.
    """
    for statement in statements:
        if isinstance(statement, Block):
            yield from _free_names(statement.statements, None)
        elif isinstance(statement, (RegisterDecl, Variable, Label)):
            if not isinstance(statement, RegisterDecl) or statement.count is None:
                yield statement.name
        elif isinstance(statement, Instruction):
            yield from _names_of(statement)


def _free_names(statements: tuple[Statement, ...], outer: _Scope | None) -> Iterator[str]:
    """Yield the names used in a block that neither it nor one of the blocks around, given by `outer`, declares before."""
    scope = _Scope(outer)
    for statement in statements:
        if isinstance(statement, Label):
            scope.declare(statement, _hidden)
    for statement in statements:
        if isinstance(statement, Block):
            yield from _free_names(statement.statements, scope)
        elif isinstance(statement, Instruction):
            yield from (name for name in _names_of(statement) if not scope.rename(name).startswith(_HIDDEN))
        else:
            scope.declare(statement, _hidden)


def _hidden(name: str, count: int | None) -> str:
    return _HIDDEN


def _names_of(instruction: Instruction) -> Iterator[str]:
    for operand in instruction.operands:
        yield from names_in(operand)
    if instruction.guard is not None:
        yield instruction.guard.register


def _renamed(statement: Statement, scope: _Scope) -> Statement:
    if isinstance(statement, Instruction):
        return rename_instruction(statement, scope.rename)
    if isinstance(statement, Directive):
        renames = statement.text.startswith((".branchtargets", ".calltargets"))
        return Directive(NAME.sub(lambda match: scope.rename(match[0]), statement.text)) if renames else statement
    if isinstance(statement, RegisterDecl) and statement.count is not None:
        return replace(statement, name=scope.rename(f"{statement.name}0")[:-1]) if statement.count else statement
    if isinstance(statement, (RegisterDecl, Variable, Label)):
        return replace(statement, name=scope.rename(statement.name))
    return statement
