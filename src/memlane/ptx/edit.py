"""Edit a module: insert statements before, behind or in place of instructions of a function, and variables in front of all items.

Passes write the code that they insert as PTX (`memlane.ptx.build`): `placed` parses it into statements, and `free_prefix` returns unused
names. Everything else stays unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from memlane.ptx.build import instruction, statements
from memlane.ptx.ir import Block, Function, Guard, Instruction, Label, Module, RegisterDecl, Statement, Variable
from memlane.ptx.location import Location
from memlane.ptx.registers import Scope, rename_instruction

T = TypeVar("T")
Rewrite = Callable[[int, Instruction, Scope], Sequence[Statement]]
"""A rewrite: (index among the instructions of the function, instruction, registers visible there) to the statements in its place."""

EXITS = frozenset({"return", "exit"})
"""Effects of instructions that leave a kernel."""


def rewrite_body(function: Function, prologue: str, rewrite: Rewrite, epilogue: str = "") -> Function:
    """Return the function with `prologue` in front, every instruction replaced, and `epilogue` behind where control can reach the end."""
    body = rewritten_parts(function, rewrite, Block)
    return replace(function, body=Block((*statements(prologue), *body, *behind(function, epilogue))))


def rewritten_parts(
    function: Function,
    rewrite: Callable[[int, Instruction, Scope], Sequence[T | Statement]],
    braces: Callable[[tuple[T | Statement, ...]], T],
) -> tuple[T | Statement, ...]:
    """Return the body of a function after `rewrite` has replaced its instructions.

    `braces` combines the parts of an inner block into one.
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
    """Return the statements of `epilogue`, at the last location in the source, if control can reach the end of the function; else none."""
    assert function.body is not None
    return placed(epilogue, _last_location(function.body)) if epilogue and _falls_off(function.body) else ()


def placed(text: str, location: Location | None) -> tuple[Statement, ...]:
    """Return the statements written in `text`, each instruction at `location`, with aliases replaced by the kernel's own registers."""
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
    """Return how a register of the kernel is written in text for `placed`.

    Names without a `%`, such as registers of inline assembly, are recognised as registers only by their declaration, which is not in the
    text.
    """
    return register if register.startswith("%") and not register.startswith(_ALIAS) else _ALIAS + register


def _from_alias(name: str) -> str:
    return name.removeprefix(_ALIAS)


def under_guard(guard: Guard | None, label: str, inner: Sequence[Statement], location: Location | None) -> tuple[Statement, ...]:
    """Return `inner` for the lanes whose `guard` holds; the others branch to `label` behind it."""
    if guard is None:
        return tuple(inner)
    around = instruction(f"bra {label};", Guard(guard.register, not guard.negated), location)
    return (around, *inner, Label(label))


def positions_of(function: Function, marked: Sequence[Instruction]) -> list[int]:
    """Return the indices of these very nodes (by identity) among the instructions of `function`, in the order of the text."""
    wanted = {id(one) for one in marked}
    return [index for index, one in enumerate(function.instructions()) if id(one) in wanted]


def free_prefix(function: Function, stem: str) -> str:
    """Return `<stem>_`, `<stem>2_`, ...: the first with which no name of the function begins, its `%` or `$` ignored."""
    declared = (one.name for one in function.walk() if isinstance(one, RegisterDecl | Variable | Label))
    names = (*declared, *(one.name for one in (*function.params, *function.results)))
    taken = {name.lstrip("%$") for name in names}
    number = 1
    while True:
        prefix = f"{stem}{number if number > 1 else ''}_"
        if not any(name.startswith(prefix) for name in taken):
            return prefix
        number += 1


def with_items(module: Module, functions: Mapping[str, Function], variables: Sequence[Variable] = ()) -> Module:
    """Return the module with functions replaced, by name, and variables declared in front of the first variable or function."""
    items = [functions.get(one.name, one) if isinstance(one, Function) and one.body is not None else one for one in module.items]
    first = next((at for at, item in enumerate(items) if isinstance(item, Variable | Function)), len(items))
    return replace(module, items=(*items[:first], *variables, *items[first:]))


def _falls_off(body: Block) -> bool:
    """Return whether control may run off the end: the last statement is neither an exit nor an unconditional jump."""
    for statement in reversed(body.statements):
        if isinstance(statement, Instruction):
            return statement.guard is not None or statement.form.effect not in EXITS | {"branch", "trap"}
        if isinstance(statement, Block):
            return _falls_off(statement)
        if isinstance(statement, Label):
            return True
    return True


def first_location(function: Function) -> Location | None:
    """Return the source location of the first instruction that has one."""
    return next((one.location for one in function.instructions() if one.location is not None), None)


def _last_location(body: Block) -> Location | None:
    location = None
    for one in body.instructions():
        location = one.location
    return location
