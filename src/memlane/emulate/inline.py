"""Calls of device functions, written out: the emulator has no stack.

    call.uni (result), f, (argument);      ->      the body of f, its formal parameters replaced by `result` and `argument`,
                                                   its registers, labels and variables renamed, `ret` a jump behind it

Parameters of calls live in a piece of each thread's local memory. A call through a pointer, a recursive one, and one of a function
without a body are refused; a failed assertion (`__assertfail`) is a trap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from memlane.errors import UnsupportedPtx
from memlane.ptx import (
    Arguments,
    Function,
    Instruction,
    Label,
    Module,
    Operand,
    RegisterDecl,
    Statement,
    Symbol,
    Variable,
    flatten_scopes,
    instruction,
    registers_in,
    rename_instruction,
)

_ASSERTION = "__assertfail"


@dataclass(frozen=True)
class Written:
    """A statement of a function with its calls written out. `index` counts the instructions of the function itself: what comes from a
    called one bears the index of the call."""

    statement: Statement
    index: int


def write_out(module: Module, function: Function) -> list[Written]:
    """The statements of a kernel, flat, with the called functions in place of their calls."""
    return list(_Expansion(module).statements(function, {}, "", None, (function.name,)))


def called_functions(module: Module, function: Function) -> list[Function]:
    """The function and those that it calls, directly or not, each once."""
    found = {function.name: function}
    waiting = [function]
    while waiting:
        body = waiting.pop().body
        for call in body.instructions() if body is not None else ():
            callee = module.functions.get(_name(call.operand("function"))) if call.form.effect == "call" else None
            if callee is not None and callee.name not in found:
                found[callee.name] = callee
                waiting.append(callee)
    return list(found.values())


def _name(operand: Operand | None) -> str:
    return operand.name if isinstance(operand, Symbol) else ""


class _Expansion:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._calls = 0

    def statements(
        self, function: Function, names: dict[str, str], prefix: str, index: int | None, callers: tuple[str, ...]
    ) -> Iterator[Written]:
        """The statements of one function, with `names` for its formal parameters, and `prefix` before its own names. `index` is that of
        the call, None for the kernel itself."""
        flat = flatten_scopes(function)
        assert flat.body is not None
        own = dict(names)
        if prefix:
            own.update(_declared(flat.body.statements, prefix))

        def rename(name: str) -> str:
            return own.get(name, name)

        number = 0
        for statement in flat.body.statements:
            if not isinstance(statement, Instruction):
                yield Written(_renamed(statement, rename(getattr(statement, "name", "")), prefix), index if index is not None else number)
                continue
            at = index if index is not None else number
            number += 1
            moved = rename_instruction(statement, rename) if prefix else statement
            if moved.form.effect == "call":
                yield from self._call(moved, at, callers)
            elif moved.form.effect == "return" and prefix:
                jump = instruction(f"bra {prefix}end;", moved.guard, moved.location)
                yield Written(replace(jump, span=moved.span), at)
            else:
                yield Written(moved, at)

    def _call(self, call: Instruction, index: int, callers: tuple[str, ...]) -> Iterator[Written]:
        name = _name(call.operand("function"))
        if name == _ASSERTION:
            yield Written(replace(instruction("trap;", call.guard, call.location), span=call.span), index)
            return
        callee = self._module.functions.get(name)
        if callee is None or call.guard is not None:
            raise UnsupportedPtx(f"the emulator does not model this call of {name or 'a pointer'}", call.span)
        if name in callers:
            raise UnsupportedPtx(f"the emulator does not model recursion: {' -> '.join((*callers, name))}", call.span)
        formals, actuals = (*callee.results, *callee.params), (*_items(call, "result"), *_items(call, "arguments"))
        if len(formals) != len(actuals) or any(formal.space != "param" for formal in formals):
            raise UnsupportedPtx(f"the emulator does not model how {name} takes its arguments", call.span)
        self._calls += 1
        prefix = f"__call{self._calls}_"
        names = {formal.name: _name(actual) for formal, actual in zip(formals, actuals, strict=True)}
        yield from self.statements(callee, names, prefix, index, (*callers, name))
        yield Written(Label(f"{prefix}end"), index)


def _items(call: Instruction, letter: str) -> tuple[Operand, ...]:
    operand = call.operand(letter)
    return operand.items if isinstance(operand, Arguments) else () if operand is None else (operand,)


def _declared(statements: tuple[Statement, ...], prefix: str) -> dict[str, str]:
    """What a function declares, with the names it has at this call. Registers are named one by one, as they are used."""
    found: dict[str, str] = {}
    ranges: list[RegisterDecl] = []
    for statement in statements:
        if isinstance(statement, RegisterDecl) and statement.count is not None:
            ranges.append(statement)
        elif isinstance(statement, (RegisterDecl, Variable, Label)):
            found[statement.name] = prefix + statement.name
    for statement in statements:
        if isinstance(statement, Instruction):
            used = [name for operand in statement.operands for name in registers_in(operand)]
            used.extend([statement.guard.register] if statement.guard is not None else [])
            for name in used:
                if any(name.startswith(declared.name) and name[len(declared.name) :].isdecimal() for declared in ranges):
                    found[name] = prefix + name
    return found


def _renamed(statement: Statement, name: str, prefix: str) -> Statement:
    if not prefix:
        return statement
    if isinstance(statement, RegisterDecl) and statement.count is not None:
        return replace(statement, name=prefix + statement.name)
    if isinstance(statement, (RegisterDecl, Variable, Label)):
        return replace(statement, name=name)
    return statement
