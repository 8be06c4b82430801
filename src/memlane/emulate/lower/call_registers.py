"""Rewrites instructions that pass parameters, or change the stack, so that the rest of the emulator sees the registers that they read and
write.

    alloca.u64 d, size;      ->      alloca.u64 d, size, STACK;          (reads and writes STACK)

A called function gives back at its end what it has allocated on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from memlane.emulate.lower.body import Step
from memlane.emulate.lower.calls import STACK, Call
from memlane.ptx import Block, Function, Instruction, Register, RegisterDecl, Statement, Vector, instruction


def with_registers(one: Instruction, writes: Iterable[str], reads: Iterable[str]) -> Instruction:
    """Return an instruction that, for data flow, writes and reads exactly these registers."""
    operands = tuple(Vector(tuple(Register(name) for name in dict.fromkeys(names))) for names in (writes, reads))
    positions = {"d": 0, "a": 1}
    form = replace(one.form, operands=positions, writes=frozenset("d"), updates=frozenset(), types={}, addresses={})
    return replace(one, operands=operands, form=form)


def without_callee_registers(step: Step) -> Step:
    """Return a call without the registers of the called function, which in a recursive call belong to another activation."""
    link = step.link
    if not isinstance(link, Call):
        return step
    pointer = [link.pointer.name] if isinstance(link.pointer, Register) else []
    if step.resumes:
        results = [register for target in link.targets for register, _ in target.results]
        return replace(step, instruction=with_registers(step.instruction, results, pointer))
    passed = [operand for target in link.targets for _, operand in target.arguments]
    passed += [operand for argument in link.arguments for operand in argument]
    reads = [operand.name for operand in passed if isinstance(operand, Register)] + pointer
    return replace(step, instruction=with_registers(step.instruction, link.results, reads))


def with_call_registers(step: Step, link: Call) -> Step:
    """Return a call, or its second half, with the registers that it writes and reads, both its own and those of the functions that it
    calls."""
    pointer = [link.pointer.name] if isinstance(link.pointer, Register) else []
    stack = [STACK] if link.saved or any(target.frame_bytes for target in link.targets) else []
    if step.resumes:
        writes = [*(register for target in link.targets for register, _ in target.results), *link.saved, *stack]
        reads = [*(register for target in link.targets for _, register in target.results), *pointer, *stack]
        return replace(step, instruction=with_registers(replace(step.instruction, guard=None), writes, reads), link=link)
    moves = [pair for target in link.targets for pair in target.arguments]
    passed = [operand for _, operand in moves] + [operand for argument in link.arguments for operand in argument]
    writes = [register for register, _ in moves] + [target.return_register for target in link.targets]
    writes += [target.frame for target in link.targets if target.frame] + [*link.results, *stack]
    reads = [operand.name for operand in passed if isinstance(operand, Register)] + [*pointer, *link.saved, *stack]
    return replace(step, instruction=with_registers(step.instruction, writes, reads), link=link)


# -- allocation on the stack ---------------------------------------------------------------------------------------------------------

_STACK_OPCODES = ("alloca", "stacksave", "stackrestore")
_AT_ENTRY = "%stack_at_entry"
"""The register of a function that holds where the stack ended when it was called."""


def allocates(function: Function) -> bool:
    """Return whether a function changes the stack, or reads where it ends."""
    return any(one.opcode in _STACK_OPCODES for one in function.instructions())


def with_stack_register(one: Instruction) -> Instruction:
    """Return an instruction of the stack with `STACK` as another operand, named `stack`; any other unchanged."""
    if one.opcode not in _STACK_OPCODES:
        return one
    form = replace(
        one.form,
        operands={**one.form.operands, "stack": len(one.operands)},
        types={**one.form.types, "stack": "u64"},
        writes=one.form.writes | ({"stack"} if one.opcode != "stacksave" else set()),
        updates=one.form.updates | ({"stack"} if one.opcode == "alloca" else set()),
    )
    return replace(one, operands=(*one.operands, Register(STACK)), form=form)


def _with_stack_given_back(function: Function) -> Function:
    """Return a called function that restores the stack before it returns; the function itself if it allocates nothing."""
    if function.body is None or not allocates(function):
        return function
    save = RegisterDecl("u64", _AT_ENTRY), instruction(f"stacksave.u64 {_AT_ENTRY};")
    return replace(function, body=Block((*save, *_restoring(function.body.statements))))


def _restoring(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    for one in statements:
        if isinstance(one, Block):
            yield Block(tuple(_restoring(one.statements)))
            continue
        if isinstance(one, Instruction) and one.form.effect == "return":
            yield instruction(f"stackrestore.u64 {_AT_ENTRY};", one.guard, one.location)
        yield one


def completed(function: Function) -> Function:
    """Return a called function with all that its end means written down."""
    return _with_stack_given_back(_with_return(function))


def _with_return(function: Function) -> Function:
    """Return a function that ends with an explicit `ret`, which running off its end means."""
    assert function.body is not None
    statements = function.body.statements
    last = statements[-1] if statements else None
    if isinstance(last, Instruction) and last.guard is None and last.form.effect in ("return", "exit", "trap", "branch"):
        return function
    return replace(function, body=Block((*statements, instruction("ret;"))))
