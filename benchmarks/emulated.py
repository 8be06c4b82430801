"""Find the instructions of a kernel for which the emulator has semantics, without compiling it to machine code."""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import Chip, load
from memlane.emulate.code.build import I32, INTEGERS, POINTER, Emit, constant, vector
from memlane.emulate.layers import layers_for
from memlane.emulate.lower.body import LiveOut
from memlane.emulate.lower.flow import Flow
from memlane.emulate.lower.linking import link
from memlane.emulate.lower.lowering import Lowering, assign_registers
from memlane.emulate.lower.variables import place_variables
from memlane.emulate.runtime.helper import Program
from memlane.emulate.semantics import TABLE
from memlane.emulate.semantics.call import SERVICES
from memlane.errors import UnsupportedPtx
from memlane.launch import Layers
from memlane.ptx import Function, Instruction, Module, registers_read, values_written


def refusals(module: Module, function: Function, where: Chip | None = None) -> dict[int, str]:
    """Return the instructions of a kernel that the emulator refuses, by index, with what it says. The kernel must be straight-line code."""
    layers = layers_for(Layers(), module, function)
    body, _ = link(module, function, SERVICES, stop_at_memory=False)
    frame = place_variables(module, function, body)
    needed = LiveOut(body.segments)
    read = frozenset(name for segment in body.segments for step in segment.steps for name in registers_read(step.instruction))
    registers = assign_registers(body.registers, needed.anywhere(), {}, read, layers)
    step_function = ir.Function(Program(), ir.FunctionType(I32, [POINTER]), "kernel")
    entry = Emit(step_function.append_basic_block("entry"))
    k = Lowering(entry, step_function.args[0], registers, frame, layers, where or _any_chip())
    flow = k.flow = Flow(k, body.segments, needed)
    found: dict[int, str] = {}
    for segment in body.segments:
        flow.begin(segment)
        for step in segment.steps:
            write = TABLE.get(step.instruction.form.key)
            if k.e.block.is_terminated:  # the instruction before ends a segment, and this one follows it nowhere
                k.e.position_at_end(k.e.append_basic_block("unreachable"))
            k.begin(step)
            try:
                if write is None:
                    raise UnsupportedPtx(f"the emulator does not model {step.instruction.name}")
                write(k)
            except UnsupportedPtx as refusal:
                found[step.index] = refusal.message
                _leave_results(k, step.instruction)
            k.end(step)
        flow.finish()
    return found


def _leave_results(k: Lowering, instruction: Instruction) -> None:
    """Write zeros to the registers that the instruction would have written, because later instructions read them."""
    for name in values_written(instruction):
        bits = k.registers.bits[name]
        k.set_register(name, constant(I32 if bits == 1 else vector(INTEGERS[bits]), 0))


@cache
def _any_chip() -> Chip:
    """Return a chip; any will do, because only counts and clock depend on it."""
    return load("h200")
