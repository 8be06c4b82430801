"""Compiles a kernel for the emulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import llvmlite.ir as ir

from memlane.chip import Chip
from memlane.emulate.check.hooks import check_products
from memlane.emulate.check.wgmma import WgmmaRegisters
from memlane.emulate.code.build import I32, POINTER, Emit
from memlane.emulate.code.jit import Code, compile_text, fingerprint, without_garbage_collection
from memlane.emulate.code.store import Entry, digest, keep, present_store
from memlane.emulate.code.text import CodeFunction
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.lower.body import Body, LiveOut, Segment, Step
from memlane.emulate.lower.flow import Flow
from memlane.emulate.lower.linking import link, linked_instructions
from memlane.emulate.lower.lowering import Lowering, assign_registers
from memlane.emulate.lower.variables import Frame, place_variables
from memlane.emulate.runtime.helper import Program, compile_helpers, load_helpers
from memlane.emulate.semantics import TABLE
from memlane.emulate.semantics.accesses import require_access
from memlane.emulate.semantics.call import SERVICES
from memlane.errors import UnsupportedPtx
from memlane.launch import stage
from memlane.ptx import Function, Instruction, Module, called_functions, print_module, registers_read

_ENTRY = "kernel"
"""The name of the function in the machine code of each kernel."""


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """Machine code that runs one warp until it stops, and what a launch must provide for it."""

    code: Code
    """The function: takes the record of a warp, returns a status."""
    warp_bytes: int
    """Bytes of a warp's record and registers."""
    frame: Frame
    layers: CompiledLayers
    instructions: tuple[Instruction, ...]
    """Instructions by index, for messages and counts: those of the kernel, then those of its called functions (`called_functions`)."""
    weights: tuple[tuple[int, int], ...]
    """For each execution counter of the counting layer: its number, and the instructions that it stands for."""

    @property
    def has_mbarriers(self) -> bool:
        """Return whether the kernel uses barriers in shared memory."""
        return any(one.opcode == "mbarrier" for one in self.instructions)


def compile_kernel(module: Module, function: Function, layers: CompiledLayers, chip: Chip) -> CompiledKernel:
    """Return the machine code of a kernel, from the store if it is there; the caller holds `jit.LOCK`.

    Raises UnsupportedPtx at the first instruction that has no semantics.
    """
    store = present_store()
    if store is None:
        with without_garbage_collection(), stage("compiling machine code"):
            return _build(module, function, layers, chip)[0]
    key = _key(module, function, layers, chip)
    kernel = _restored(store.get(key), module, function, layers)
    if kernel is None:
        with without_garbage_collection(), stage("compiling machine code"):
            kernel, entry = _build(module, function, layers, chip)
        keep(key, entry)
    return kernel


def _key(module: Module, function: Function, layers: CompiledLayers, chip: Chip) -> str:
    """Return the key of the compiled code: hashes the kernel and the functions it calls, the offsets of variables and functions, layers and
    chip."""
    named = {function.name, *(called.name for called in called_functions(module, function))}
    items = tuple(item for item in module.items if not isinstance(item, Function) or item.name in named)
    text, numbers = print_module(replace(module, items=items)), repr(chip) if layers.depends_on_chip else ""
    return digest("kernel", fingerprint(), function.name, text, " ".join(module.functions), repr(layers), numbers)


def _build(module: Module, function: Function, layers: CompiledLayers, chip: Chip) -> tuple[CompiledKernel, Entry]:
    """Compile a kernel; return it, and the entry that the store keeps for other processes."""
    found = lowered(module, function, layers, chip)
    compile_helpers(found.program.required.values())
    object_file = compile_text(str(found.program), layers.quick)
    facts = {
        "helpers": list(found.program.required),
        "warp_bytes": found.warp_bytes,
        "frame": asdict(found.frame),
        "weights": found.weights,
    }
    kernel = CompiledKernel(Code(object_file, _ENTRY), found.warp_bytes, found.frame, layers, found.instructions, found.weights)
    return kernel, Entry(facts, object_file)


def segments_of(module: Module, function: Function, layers: CompiledLayers) -> tuple[Segment, ...]:
    """Return the segments of a kernel with these layers, by the numbers that `WARP` records hold."""
    body, _ = link(module, function, SERVICES, stop_at_memory=layers.clock)
    return body.segments


@dataclass(frozen=True)
class Lowered:
    """A kernel as a program for LLVM, before it is compiled."""

    program: Program
    warp_bytes: int
    frame: Frame
    instructions: tuple[Instruction, ...]
    weights: tuple[tuple[int, int], ...]


def lowered(module: Module, function: Function, layers: CompiledLayers, chip: Chip) -> Lowered:
    """Return a kernel with these layers as a program for LLVM; the fields are those of `CompiledKernel`."""
    assert function.body is not None
    body, instructions = link(module, function, SERVICES, stop_at_memory=layers.clock)
    frame = place_variables(module, function, body)
    needed = LiveOut(body.segments)
    read = frozenset(name for segment in body.segments for one in segment.steps for name in registers_read(one.instruction))
    registers = assign_registers(body.registers, needed.anywhere(), _spans(body, needed, layers), read, layers)
    program = Program()
    step = CodeFunction(program, ir.FunctionType(I32, [POINTER]), _ENTRY)
    k = Lowering(Emit(step.append_basic_block("entry")), step.args[0], registers, frame, layers, chip)
    if layers.predicts and k.scoreboard is not None:
        k.scoreboard.weigh(instructions, _skips(body))
    flow = _write_segments(k, body, needed)
    return Lowered(program, registers.nbytes, frame, instructions, flow.weights())


def _spans(body: Body, needed: LiveOut, layers: CompiledLayers) -> dict[str, tuple[int, int]]:
    """Return the segments over which each register holds a value; empty if that is not known. A called function writes registers that its
    instructions do not name, and the checker reads registers after their last use."""
    calls = any(segment.returns or any(step.link is not None for step in segment.steps) for segment in body.segments)
    return {} if calls or layers.check else needed.spans()


def _skips(body: Body) -> list[int]:
    """Return the indices of guarded forward branches."""
    last = [(segment, segment.steps[-1]) for segment in body.segments if segment.steps and segment.successors]
    return [
        step.index
        for segment, step in last
        if step.instruction.opcode == "bra" and step.instruction.guard is not None and segment.successors[0] > segment.number
    ]


def _restored(entry: Entry | None, module: Module, function: Function, layers: CompiledLayers) -> CompiledKernel | None:
    """Return the stored kernel; None if it is not stored or a helper that it calls is missing."""
    if entry is None or not load_helpers(entry.facts["helpers"]):
        return None
    said = entry.facts["frame"]
    offsets = {name: (space, offset) for name, (space, offset) in said["offsets"].items()}
    frame = Frame(**{**said, "offsets": offsets, "symbols": tuple(said["symbols"])})
    return CompiledKernel(
        code=Code(entry.code, _ENTRY),
        warp_bytes=entry.facts["warp_bytes"],
        frame=frame,
        layers=layers,
        instructions=linked_instructions(module, function),
        weights=tuple((number, weight) for number, weight in entry.facts["weights"]),
    )


def _write_segments(k: Lowering, body: Body, needed: LiveOut) -> Flow:
    flow = k.flow = Flow(k, body.segments, needed)
    if k.layers.check:
        k.products = WgmmaRegisters.of((step.index, step.instruction) for segment in body.segments for step in segment.steps)
    for segment in body.segments:
        flow.begin(segment)
        for step in segment.steps:
            _write_step(k, step)
        flow.finish()
    flow.close()
    return flow


def _write_step(k: Lowering, step: Step) -> None:
    write = TABLE.get(step.instruction.form.key)
    if write is None:
        raise UnsupportedPtx(f"the emulator does not model {step.instruction.name}", step.instruction.span)
    k.begin(step)
    k.flow.count_executions(step)
    check_products(k)
    write(k)
    require_access(k)
    k.end(step)
