"""Editing the body of a function: statements in front of, behind and in place of its instructions; all else stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from memlane.instrument.registers import Scope
from memlane.ptx import Block, Function, Guard, Instruction, Label, Location, Statement, instruction, rename_instruction, statements

T = TypeVar("T")
Rewrite = Callable[[int, Instruction, Scope], Sequence[Statement]]
"""Index among the instructions of the function, instruction, registers visible there: the statements in its place."""

EXITS = frozenset({"return", "exit"})


def rewrite_body(function: Function, prologue: str, rewrite: Rewrite, epilogue: str = "") -> Function:
    """The function with `prologue` in front, every instruction replaced, and `epilogue` behind where control can reach the end."""
    body = rewritten_parts(function, rewrite, Block)
    return replace(function, body=Block((*statements(prologue), *body, *behind(function, epilogue))))


def rewritten_parts(
    function: Function,
    rewrite: Callable[[int, Instruction, Scope], Sequence[T | Statement]],
    braces: Callable[[tuple[T | Statement, ...]], T],
) -> tuple[T | Statement, ...]:
    """What stands in the body of a function when `rewrite` has replaced its instructions.

    `braces` makes one part of those of an inner block.
    """
    assert function.body is not None
    outermost = Scope.of((*function.params, *function.results))
    counter = iter(range(1 << 62))

    def parts(old: Block, outer: Scope) -> tuple[T | Statement, ...]:
        scope = Scope.of(old.statements, outer)
        new: list[T | Statement] = []
        for statement in old.statements:
            if isinstance(statement, Instruction):
                new.extend(rewrite(next(counter), statement, scope))
            elif isinstance(statement, Block):
                new.append(braces(parts(statement, scope)))
            else:
                new.append(statement)
        return tuple(new)

    return parts(function.body, outermost)


def behind(function: Function, epilogue: str) -> tuple[Statement, ...]:
    """The statements written in `epilogue`, at the last place in the source, if control can reach the end of the function."""
    assert function.body is not None
    return placed(epilogue, _last_location(function.body)) if epilogue and _falls_off(function.body) else ()


def placed(text: str, location: Location | None) -> tuple[Statement, ...]:
    """The statements written in `text`, each instruction with the place in the source of the one that they serve, and with the kernel's own
    registers in the place of their aliases."""
    return _relocated(statements(text), location, _ALIAS in text)


def _relocated(found: Sequence[Statement], location: Location | None, aliased: bool) -> tuple[Statement, ...]:
    def relocated(one: Statement) -> Statement:
        if isinstance(one, Block):
            return Block(_relocated(one.statements, location, aliased))
        if isinstance(one, Instruction):
            return replace(rename_instruction(one, _from_alias) if aliased else one, location=location)
        return one

    return tuple(map(relocated, found))


_ALIAS = "%$"


def alias(register: str) -> str:
    """How a register of the kernel is written in text for `placed`.

    Without a `%`, as registers of inline assembly are, only its declaration tells that a name is a register, and that stands elsewhere.
    """
    return register if register.startswith("%") and not register.startswith(_ALIAS) else _ALIAS + register


def _from_alias(name: str) -> str:
    return name.removeprefix(_ALIAS)


def under_guard(guard: Guard | None, label: str, inner: Sequence[Statement], location: Location | None) -> tuple[Statement, ...]:
    """`inner` for the lanes that `guard` lets through; the others branch to `label` behind it."""
    if guard is None:
        return tuple(inner)
    around = instruction(f"bra {label};", Guard(guard.register, not guard.negated), location)
    return (around, *inner, Label(label))


def positions_of(function: Function, marked: Sequence[Instruction]) -> list[int]:
    """Indices among the instructions of `function` of these very nodes, in the order of the text."""
    wanted = {id(one) for one in marked}
    return [index for index, one in enumerate(function.instructions()) if id(one) in wanted]


def _falls_off(body: Block) -> bool:
    """Whether control may run off the end: what stands last is neither an exit nor an unconditional jump."""
    for statement in reversed(body.statements):
        if isinstance(statement, Instruction):
            return statement.guard is not None or statement.form.effect not in EXITS | {"branch", "trap"}
        if isinstance(statement, Block):
            return _falls_off(statement)
        if isinstance(statement, Label):
            return True
    return True


def _last_location(body: Block) -> Location | None:
    location = None
    for one in body.instructions():
        location = one.location
    return location
