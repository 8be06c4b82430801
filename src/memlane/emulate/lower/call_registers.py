"""Rewrites instructions that pass parameters so that the rest of the emulator sees the registers that they read and write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memlane.emulate.lower.body import Step
from memlane.emulate.lower.calls import STACK, Call
from memlane.ptx import Instruction, Register, Vector


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
