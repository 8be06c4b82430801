"""A kernel compiled for the emulator."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import llvmlite.ir as ir

from memlane.chip import Chip
from memlane.emulate.code.build import I32, POINTER, Emit
from memlane.emulate.code.jit import Code
from memlane.emulate.layers import Compiled
from memlane.emulate.lower.body import Body, Step, live_out
from memlane.emulate.lower.flow import Flow
from memlane.emulate.lower.linking import link
from memlane.emulate.lower.lowering import Lowering, assign_registers
from memlane.emulate.lower.variables import Frame, place_variables
from memlane.emulate.runtime.helper import Program, compile_helpers
from memlane.emulate.semantics import TABLE
from memlane.emulate.semantics.call import SERVICES
from memlane.errors import UnsupportedPtx
from memlane.ptx import Function, Instruction, Module

_numbers = itertools.count()


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """Machine code that runs one warp until it stops, and what a launch must provide for it."""

    code: Code
    """The function: a warp's record in, a status out."""
    warp_bytes: int
    """Record and registers of a warp."""
    frame: Frame
    layers: Compiled
    instructions: tuple[Instruction, ...]
    """By index, for messages and counts: those of the kernel, then those of the functions that it calls (`called_functions`)."""
    weights: tuple[tuple[int, int], ...]
    """What the counting layer's tallies of executed lanes count for: number of the tally, and instructions it stands for."""


def compile_kernel(module: Module, function: Function, layers: Compiled, chip: Chip) -> CompiledKernel:
    """Compile a kernel; the caller holds `jit.LOCK`. Raises UnsupportedPtx at the first instruction that has no semantics."""
    assert function.body is not None
    body, instructions = link(module, function, SERVICES, stop_at_memory=layers.clock)
    frame = place_variables(module, function, body)
    needed = live_out(body.places)
    registers = assign_registers(body.registers, set().union(*needed), layers)
    program = Program()
    name = f"kernel{next(_numbers)}"
    step = ir.Function(program, ir.FunctionType(I32, [POINTER]), name)
    k = Lowering(Emit(step.append_basic_block("entry")), step.args[0], registers, frame, layers, chip)
    flow = _write_places(k, body, needed)
    compile_helpers(list(program.required.values()))
    return CompiledKernel(
        code=Code(str(program), name),
        warp_bytes=registers.nbytes,
        frame=frame,
        layers=layers,
        instructions=instructions,
        weights=flow.weights(),
    )


def _write_places(k: Lowering, body: Body, needed: list[set[str]]) -> Flow:
    flow = k.flow = Flow(k, body.places, needed)
    for place in body.places:
        flow.begin(place)
        for step in place.steps:
            _write_step(k, step)
        flow.finish()
    flow.close()
    return flow


def _write_step(k: Lowering, step: Step) -> None:
    write = TABLE.get(step.instruction.form.manual)
    if write is None:
        raise UnsupportedPtx(f"the emulator does not model {step.instruction.name}", step.instruction.span)
    k.begin(step)
    k.flow.count_executions(step)
    write(k)
    k.end(step)
