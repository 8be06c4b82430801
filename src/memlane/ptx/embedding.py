"""Inline the bodies of functions at chosen calls of one function; `inlining` chooses the calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from memlane.ptx.build import instruction
from memlane.ptx.ir import (
    Block,
    Directive,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    Operand,
    Register,
    RegisterDecl,
    Statement,
    Symbol,
    Variable,
    with_instructions,
)
from memlane.ptx.location import Location
from memlane.ptx.parameter_registers import ParameterRegisters, access_moves, load_moves, store_moves
from memlane.ptx.parameters import Unit, cut, items_of, parameter_accesses
from memlane.ptx.registers import Scope


@dataclass(frozen=True, slots=True)
class Origin:
    """The original place of an instruction of a kernel, before functions were inlined."""

    function: str
    """PTX name of the function that contains it."""
    instruction: int
    """Index among the instructions of that function."""
    calls: tuple[tuple[str, int], ...] = ()
    """Calls that lead to it, the kernel's own first: each by caller and index of the call instruction."""

    def called_at(self, function: str, call: int) -> Origin:
        """Return the origin after its function was inlined at a call of `function`."""
        return replace(self, calls=((function, call), *self.calls))


Line = tuple[Statement, tuple[Origin, ...]]
"""A statement, and the origin of each instruction in it."""


@dataclass(frozen=True)
class Body:
    """A function whose only inner blocks are inlined bodies."""

    function: Function
    lines: tuple[Line, ...]

    @cached_property
    def size(self) -> int:
        """Number of instructions."""
        return sum(len(origins) for _, origins in self.lines)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        return tuple(statement for statement, _ in self.lines)


def accesses_of(body: Body) -> Mapping[str, set[Unit]]:
    """Return the parts that a function accesses of each parameter, result or variable in `.param` space."""
    found: dict[str, set[Unit]] = {}
    for statement in body.statements:
        for name, offset, nbytes, count in parameter_accesses(statement) if isinstance(statement, Instruction) else ():
            found.setdefault(name, set()).update((offset + nbytes * number, nbytes) for number in range(count))
    return found


def passed_by(call: Instruction, function: Function) -> Iterator[tuple[Variable, Operand]]:
    """Yield each result and parameter of a function with the operand that the call passes for it."""
    yield from zip(function.results, items_of(call, "result"), strict=True)
    yield from zip(function.params, items_of(call, "arguments"), strict=True)


@dataclass
class Names:
    """Generator of names that no function of the module uses."""

    stem: str
    given: int = 0
    strings: dict[str, str] = field(default_factory=dict)
    """Labels of function names among the strings of the line table, by function."""

    def fresh(self) -> str:
        self.given += 1
        return f"{self.stem}{self.given - 1}"

    def string(self, function: str) -> str:
        return self.strings.setdefault(function, f"$L__{self.stem}_name{len(self.strings)}")


class Embedding:
    """A function while other bodies are inlined into it."""

    def __init__(self, body: Body, chosen: Mapping[int, Body], names: Names) -> None:
        """Prepare the function; `chosen` maps places among its lines to the body inlined there."""
        self._body, self._chosen, self._names = body, chosen, names
        self._scope = Scope.of((*body.function.params, *body.function.results, *body.statements))
        self._variable_registers = self._registers()

    def embedded(self) -> Body:
        """Return the function with the bodies inlined."""
        lines: list[Line] = []
        place: Directive | None = None
        for number, (statement, origins) in enumerate(self._body.lines):
            if number in self._chosen:
                assert isinstance(statement, Instruction)
                lines += self._in_place_of(statement, origins[0], self._chosen[number], place)
            elif isinstance(statement, Variable) and statement.name in self._variable_registers:
                lines += [(one, ()) for one in self._variable_registers[statement.name].declarations()]
            elif isinstance(statement, Instruction) and (registers := self._accessed(statement, self._variable_registers)):
                lines += _all_from(access_moves(statement, registers, self._scope.type_of), origins[0])
            else:
                place = statement if isinstance(statement, Directive) and statement.text.startswith(".loc") else place
                lines.append((statement, origins))
        return Body(self._body.function, tuple(lines))

    def _registers(self) -> dict[str, ParameterRegisters]:
        """Return the registers that replace each variable passed to a chosen call."""
        own, found = accesses_of(self._body), dict[str, set[Unit]]()
        for number, callee in self._chosen.items():
            call, theirs = self._body.lines[number][0], accesses_of(callee)
            assert isinstance(call, Instruction)
            for formal, actual in passed_by(call, callee.function):
                if isinstance(actual, Symbol):
                    parts = found.setdefault(actual.name, set(own.get(actual.name, ())))
                    parts |= {(0, formal.nbytes)} if formal.space == "reg" else theirs.get(formal.name, set())
        return {name: ParameterRegisters(f"%{self._names.fresh()}", cut(parts)) for name, parts in found.items()}

    @staticmethod
    def _accessed(one: Instruction, registers: Mapping[str, ParameterRegisters]) -> ParameterRegisters | None:
        return next((registers[name] for name, *_ in parameter_accesses(one) if name in registers), None)

    # -- one call ------------------------------------------------------------------------------------------------------------------

    def _in_place_of(self, call: Instruction, origin: Origin, callee: Body, place: Directive | None) -> Iterator[Line]:
        """Yield the lines that replace a call. `place`: the line information in effect there."""
        name, at, theirs = self._names.fresh(), call.location, accesses_of(callee)
        registers: dict[str, ParameterRegisters] = {}
        before: list[Statement] = []
        behind: list[Statement] = []
        for number, (formal, actual) in enumerate(passed_by(call, callee.function)):
            if isinstance(actual, Symbol):
                registers[formal.name] = self._variable_registers[actual.name]
                continue
            one = ParameterRegisters(f"%{name}_{number}", cut({(0, formal.nbytes), *theirs.get(formal.name, ())}))
            registers[formal.name] = one
            yield from ((declared, ()) for declared in one.declarations())
            if isinstance(actual, Register | Immediate) and formal in callee.function.params:
                before += store_moves(actual, formal.type, 0, one, self._scope.type_of)
            elif isinstance(actual, Register):
                behind += load_moves(actual, formal.type, 0, one, self._scope.type_of)
        skip = f"${name}_not"
        if call.guard is not None:
            yield instruction(f"bra {skip};", Guard(call.guard.register, not call.guard.negated), at), (origin,)
        yield from _all_from(_placed(before, at), origin)
        yield self._copy(callee, registers, f"${name}_back", origin, at, place)
        yield from _all_from(_placed(behind, at), origin)
        if call.guard is not None:
            yield Label(skip), ()
        if place is not None and any(map(_has_places, callee.statements)):
            yield place, ()

    def _copy(
        self,
        callee: Body,
        registers: Mapping[str, ParameterRegisters],
        end: str,
        call: Origin,
        at: Location | None,
        place: Directive | None,
    ) -> Line:
        """Return the body of a function with registers for its parameters, in which a return jumps to the label `end`."""
        scope = Scope.of((*callee.function.params, *callee.function.results, *callee.statements))
        string = self._names.string(callee.function.name) if at is not None else ""
        lines: list[Line] = list(self._formal_registers(callee, registers, call))
        last = len(callee.lines) - 1
        for number, (statement, inner) in enumerate(callee.lines):
            origins = tuple(one.called_at(call.function, call.instruction) for one in inner)
            statement = within(statement, at, string)
            if not isinstance(statement, Instruction):
                lines.append((statement, origins))
                place = None if _is_place(statement) else place
                if place is not None and _has_places(statement):
                    lines.append((place, ()))
            elif statement.form.effect == "return":
                leaves = replace(instruction(f"bra{'.uni' if statement.has('uni') else ''} {end};"), guard=statement.guard)
                if number != last or statement.guard is not None:
                    lines.append((replace(leaves, location=statement.location, span=statement.span), origins))
            elif one := self._accessed(statement, registers):
                lines += _all_from(access_moves(statement, one, scope.type_of), origins[0])
            else:
                lines.append((statement, origins))
        lines.append((Label(end), ()))
        results = [one for one in callee.function.results if one.space == "reg"]
        for formal in results:
            lines += _all_from(_placed(store_moves(Register(formal.name), formal.type, 0, registers[formal.name], scope.type_of), at), call)
        return Block(tuple(statement for statement, _ in lines)), tuple(one for _, origins in lines for one in origins)

    @staticmethod
    def _formal_registers(callee: Body, registers: Mapping[str, ParameterRegisters], call: Origin) -> Iterator[Line]:
        """Yield declarations of parameters that are registers themselves, and moves of the passed values into them."""
        for formal in (*callee.function.results, *callee.function.params):
            if formal.space == "reg":
                yield RegisterDecl(formal.type, formal.name), ()
        for formal in callee.function.params:
            if formal.space == "reg":
                kind = Scope.of(callee.function.params).type_of
                yield from _all_from(load_moves(Register(formal.name), formal.type, 0, registers[formal.name], kind), call)


def _all_from(statements: Sequence[Statement] | Iterator[Statement], origin: Origin) -> Iterator[Line]:
    for one in statements:
        yield one, (origin,) * (len(list(one.instructions())) if isinstance(one, Block) else isinstance(one, Instruction))


def _placed(statements: Sequence[Statement], at: Location | None) -> list[Statement]:
    return [with_instructions(one, lambda inner: replace(inner, location=at)) for one in statements]


# -- line information --------------------------------------------------------------------------------------------------------------


def _is_place(one: Statement) -> bool:
    return isinstance(one, Directive) and one.text.startswith(".loc")


def _has_places(one: Statement) -> bool:
    return any(map(_has_places, one.statements)) if isinstance(one, Block) else _is_place(one)


def within(one: Statement, at: Location | None, string: str) -> Statement:
    """Return a statement of an inlined function with its call site added to its line information.

    `string`: the label of the function's name.
    """
    if at is None:
        return one
    if isinstance(one, Instruction):
        return replace(one, location=_inlined(one.location, at))
    if isinstance(one, Block):
        # Code inlined at a call without a line has no call site yet; all other code inside does.
        return Block(tuple(within(inner, at, string) for inner in one.statements))
    if isinstance(one, Directive) and _is_place(one) and string and not re.search(r"\binlined_at\b", one.text):
        return Directive(f"{one.text}, function_name {string}, inlined_at {at.file} {at.line} {at.column}")
    return one


def _inlined(location: Location | None, at: Location) -> Location:
    """Return the location of an inlined instruction; code before the first line of its function has the line of the call."""
    places = []
    while location is not None:
        places.append(location)
        location = location.inlined_into
    for place in reversed(places):
        at = replace(place, inlined_into=at)
    return at
