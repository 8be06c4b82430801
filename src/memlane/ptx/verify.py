"""Verify a module: every name is declared, every operand fits its instruction.

Each rule is one short function that yields the errors of an instruction; `RULES` lists them. The rules are as lenient as ptxas: a module
that it accepts passes here too. (Except for vectors of eight bytes or halves, which the manual does not mention: ptxas accepts some and
crashes on others.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from memlane.errors import PtxTypeError
from memlane.number_format import plural
from memlane.ptx.ir import (
    Address,
    Arguments,
    Block,
    Directive,
    Function,
    Instruction,
    Label,
    Module,
    Operand,
    Pair,
    Register,
    RegisterDecl,
    Sink,
    Special,
    Statement,
    Symbol,
    TextureAddress,
    Variable,
    Vector,
    elements,
)
from memlane.ptx.once import once_for_each
from memlane.ptx.operand_types import Complaint, NameScope, operand_fits
from memlane.ptx.printer import operand_text
from memlane.ptx.registers import names_in
from memlane.ptx.special_registers import SPECIAL_REGISTERS
from memlane.ptx.types import SCALAR_TYPES, VECTOR_LENGTHS
from memlane.source import Span

_ALIAS = re.compile(r"\.alias\s+([\w$%]+)")
_MAY_BE_REPEATED = frozenset({"extern", "common", "weak"})
_LENGTHS = {**VECTOR_LENGTHS, "x1": 1, "x2": 2, "x4": 4}


@once_for_each
def verify(module: Module) -> None:
    """Check a module, once, as it is immutable. Raises `PtxTypeError`, which points at the first error."""
    scope = NameScope(target=module.target[0] if module.target else "")
    defined: set[str] = set()
    for item in module.items:
        if isinstance(item, Function):
            if scope.symbols.get(item.name, "function") != "function":
                raise PtxTypeError(f"`{item.name}` is declared twice", item.span)
            scope.symbols[item.name] = "function"
        elif isinstance(item, Variable):
            if scope.symbols.get(item.name, "variable") != "variable" or (item.name in defined and "extern" not in item.linkage):
                raise PtxTypeError(f"`{item.name}` is declared twice", item.span)
            scope.symbols[item.name] = "variable"
            if _MAY_BE_REPEATED.isdisjoint(item.linkage):
                defined.add(item.name)
        elif (alias := _ALIAS.match(item.text)) is not None:
            scope.symbols[alias[1]] = "function"
    seen: set[str] = set()
    for item in module.items:
        if isinstance(item, Function) and item.body is not None:
            if item.name in seen:
                raise PtxTypeError(f"the function `{item.name}` is defined twice", item.span)
            seen.add(item.name)
            _verify_function(item, item.body, scope)


def _verify_function(function: Function, body: Block, outer: NameScope) -> None:
    scope = NameScope(outer)
    for parameter in (*function.results, *function.params):
        if scope.declares(parameter.name):
            raise PtxTypeError(f"the parameter `{parameter.name}` of `{function.name}` is declared twice", parameter.span)
        if parameter.space == "reg":
            scope.registers[parameter.name] = (parameter.type, parameter.vector)
        else:
            scope.symbols[parameter.name] = "variable"
    _verify_statements(body.statements, scope, function)


def _verify_statements(statements: tuple[Statement, ...], scope: NameScope, function: Function) -> None:
    _declare_labels(statements, scope, function)
    for statement in statements:
        if isinstance(statement, (RegisterDecl, Variable)):  # before it the name is that of a block around
            _declare(statement, scope, function)
        elif isinstance(statement, Block):
            _verify_statements(statement.statements, NameScope(scope), function)
        elif isinstance(statement, Instruction):
            for rule in RULES:
                for message, piece in rule(scope, statement):
                    raise PtxTypeError(message, _narrow(statement.span, piece))


def _declare_labels(statements: tuple[Statement, ...], scope: NameScope, function: Function) -> None:
    for index, statement in enumerate(statements):
        if isinstance(statement, Label):
            _require_new(statement, scope, function)
            following = statements[index + 1] if index + 1 < len(statements) else None
            is_table = isinstance(following, Directive) and following.text.startswith((".branchtargets", ".call"))
            scope.symbols[statement.name] = "table" if is_table else "label"


def _declare(statement: RegisterDecl | Variable, scope: NameScope, function: Function) -> None:
    _require_new(statement, scope, function)
    if isinstance(statement, Variable):
        scope.symbols[statement.name] = "variable"
    elif statement.count is None:
        scope.registers[statement.name] = (statement.type, statement.vector)
    else:
        scope.ranges.append(statement)


def _require_new(statement: RegisterDecl | Variable | Label, scope: NameScope, function: Function) -> None:
    is_range = isinstance(statement, RegisterDecl) and statement.count is not None
    if scope.declares_range(statement.name) if is_range else scope.declares(statement.name):
        span = None if isinstance(statement, RegisterDecl) else statement.span
        raise PtxTypeError(f"`{statement.name}` is declared twice in `{function.name}`", span or function.span)


def _narrow(span: Span | None, piece: str) -> Span | None:
    """Return the span of the first occurrence of `piece` in an instruction, as a whole word; that of the instruction if there is none."""
    if span is None or not piece:
        return span
    found = re.search(rf"(?<![\w$%]){re.escape(piece)}(?![\w$])", span.text)
    return span if found is None else Span(span.source, span.start + found.start(), span.start + found.end())


# -- rules ---------------------------------------------------------------------------------------------------------------------


def guard_is_a_predicate(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    if instruction.guard is not None:
        name = instruction.guard.register
        found = scope.register(name)
        if found is None:
            yield f"the register `{name}` is not declared", name
        elif found[0] != "pred":
            yield f"the guard `{name}` must be a predicate, but it is declared as `.{found[0]}`", name


def names_are_declared(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    for operand in instruction.operands:
        if isinstance(operand, Register):  # most operands are registers, and most of the time is spent here
            name = operand.name.partition(".")[0]
            if scope.register(name) is None:
                yield f"the register `{name}` is not declared", name
            continue
        registers = {register.name.partition(".")[0] for register in _registers(operand)}
        for name in names_in(operand):
            if name in registers:
                if scope.register(name) is None:
                    yield f"the register `{name}` is not declared", name
            elif scope.symbol(name) is None:
                yield f"the name `{name}` is not declared", name


def _registers(operand: Operand) -> Iterator[Register]:
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, Address):
        yield from _registers(operand.base)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)
    elif isinstance(operand, (Vector, TextureAddress, Arguments)):
        for item in operand.items:
            yield from _registers(item)


def branches_lead_to_labels(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    if instruction.form.effect == "branch":
        wanted = "table" if instruction.opcode == "brx" else "label"
        operand = instruction.operands[-1]
        if not isinstance(operand, Symbol) or operand.offset or scope.symbol(operand.name) != wanted:
            words = "a list of branch targets" if wanted == "table" else "a label"
            yield f"`{operand_text(operand)}` is not {words}", operand_text(operand)


def destinations_are_registers(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    form = instruction.form
    for letter in form.writes:
        operand = instruction.operands[form.operands[letter]]
        if isinstance(operand, Arguments):  # arguments of a call may be parameters
            continue
        for part in (operand.first, operand.second) if isinstance(operand, Pair) else elements(operand):
            text = operand_text(part)
            if isinstance(part, Register) and part.negated:
                yield f"`{instruction.name}` writes `{text}`: leave out the `!`", part.name
            elif not isinstance(part, (Register, Sink)):
                yield f"`{instruction.name}` writes `{text}`, which is not a register: put a register there", text


def addresses_are_integers(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Register):
            found = scope.register(operand.base.name)
            if found is not None and (SCALAR_TYPES[found[0]].kind not in "usb" or SCALAR_TYPES[found[0]].bits not in (32, 64)):
                yield f"`{operand.base.name}` holds an address, but it is declared as `.{found[0]}`", operand.base.name


def vectors_have_the_length(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    word = instruction.form.slots.get("vec") or instruction.form.slots.get("num")
    if word is None:
        return
    wanted = _LENGTHS[word]
    operand = instruction.operand("d") or instruction.operand("b") or instruction.operand("v")
    if instruction.opcode == "mov":
        yield from _has_length(scope, instruction, instruction.operand("a"), wanted)
    yield from _has_length(scope, instruction, operand, wanted)


def _has_length(scope: NameScope, instruction: Instruction, operand: Operand | None, wanted: int) -> Iterator[Complaint]:
    found = len(operand.items) if isinstance(operand, Vector) else 1
    if isinstance(operand, Register):
        found = (scope.register(operand.name) or ("", 1))[1]
    if isinstance(operand, Special) and f"{operand.name}.x" in SPECIAL_REGISTERS:
        found = 4
    if operand is not None and found != wanted:
        yield f"`{instruction.name}` needs a vector of {wanted}, but `{operand_text(operand)}` has {found}", operand_text(operand)


def vectors_fit_a_memory_access(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    """Check vector lengths of `ld`, `ldu` and `st`: at most 128 bits, or 256 in global memory by 32 or 64 bits on sm_100 and later."""
    name, word = instruction.name, instruction.form.slots.get("vec")
    if word is None or instruction.opcode not in ("ld", "ldu", "st"):
        return
    kind = instruction.form.slots["type"]
    bits, count = SCALAR_TYPES[kind].bits, _LENGTHS[word]
    piece = f"{word}.{kind}"
    if count == 8 and bits != 32:
        yield f"`{name}`: a vector of 8 has elements of 32 bits, not `.{kind}`", piece
    elif bits * count > 256 or bits == 128:
        yield (
            f"`{name}` moves {plural(bits * count, 'bit')}: an access moves at most 128, or 256 as `.v8.b32` or `.v4.b64` on sm_100",
            piece,
        )
    elif bits * count == 256 and instruction.opcode != "ldu":
        if not scope.has_wide_accesses():
            yield f"`{name}` moves 256 bits, which needs `.target sm_100` or later", piece
        elif "global" not in instruction.form.addresses.values():
            yield f"`{name}` moves 256 bits, which only `.global` memory allows", piece


def operands_fit_their_types(scope: NameScope, instruction: Instruction) -> Iterator[Complaint]:
    form = instruction.form
    for letter, index in form.operands.items():
        operand = instruction.operands[index]
        wanted = form.types.get(letter)
        if wanted is None:
            continue
        if isinstance(operand, Pair):
            yield from operand_fits(scope, operand.first, wanted, False, instruction)
            yield from operand_fits(scope, operand.second, "pred", False, instruction)
        else:
            yield from operand_fits(scope, operand, wanted, letter in form.wider, instruction)


RULES: tuple[Callable[[NameScope, Instruction], Iterator[Complaint]], ...] = (
    guard_is_a_predicate,
    names_are_declared,
    branches_lead_to_labels,
    destinations_are_registers,
    addresses_are_integers,
    vectors_have_the_length,
    vectors_fit_a_memory_access,
    operands_fit_their_types,
)
"""Every rule, in the order in which they are checked."""
