"""The empty window of a scheme: what its probe records around nothing.

The instrumented module is taken as it is, and each timed access in it is replaced by a filler that holds no access. Everything else,
probes and records and loops, stays. There are two fillers, because nothing can be put between two clock reads without either being
something or being moved away by the assembler:

    switched off    @never ld.global.u64 d, [a];     the access itself under a predicate that is false, which only the launch knows
    arithmetic      xor.b64 d, a, zero;              one operation from the address to the value, with an operand that is 0

Either one can only lengthen the window: by the time of its issue and what the machine spends on an access that is switched off, or by
the latency of one operation. So the window is the smaller of the two means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.instrument.insert import placed, rewrite_body
from memlane.launch import Kernel, Launch, LoadedModule
from memlane.measure.arena import Arena
from memlane.measure.assemble import LaunchRecord, assemble_trace
from memlane.measure.probed import ProbedModule
from memlane.ptx import Address, Function, Guard, Instruction, Register, Statement
from memlane.record import Trace

FILLERS = ("switched off", "arithmetic")


def filled(probed: ProbedModule, kernel: str, filler: str) -> ProbedModule:
    """`probed` with a filler in place of every timed access of `kernel`, whose last parameter is a `.u32` that the launch sets to 0."""
    module = probed.traced.module
    function = module.functions[kernel]
    places = frozenset(probed.traced.positions[kernel].values())

    def rewrite(index: int, instruction: Instruction, scope: object) -> Sequence[Statement]:
        return _fill(instruction, filler) if index in places else (instruction,)

    prologue = f"""\
.reg .b32 %filler_zero;
.reg .b64 %filler_wide;
.reg .pred %filler_never;
ld.param.u32 %filler_zero, [{function.params[-1].name}];
cvt.u64.u32 %filler_wide, %filler_zero;
setp.ne.u32 %filler_never, %filler_zero, 0;
"""
    new: Function = rewrite_body(function, prologue, rewrite)
    traced = replace(probed.traced, module=replace(module, items=tuple(new if item is function else item for item in module.items)))
    return ProbedModule(probed.original, traced, probed.original.target.load(traced.module))


def _fill(access: Instruction, filler: str) -> Sequence[Statement]:
    if filler == "switched off":
        return (replace(access, guard=Guard("%filler_never")),)
    value, address = access.operands
    assert isinstance(value, Register)
    assert isinstance(address, Address)
    assert isinstance(address.base, Register)
    return placed(f"xor.b64 {value.name}, {address.base.name}, %filler_wide;", access.location)


def run(probed: ProbedModule, launch: Launch, records_per_warp: int) -> Trace:
    """Launch the twin of `launch` in `probed` and return what it recorded."""
    target, loaded = launch.kernel.target, probed.loaded
    arena, record = Arena(probed, records_per_warp), LaunchRecord(launch, probed)
    arena.make_room(launch)
    target.launch(replace(launch, kernel=kernel_of(loaded, launch), shared_bytes=probed.shared_bytes(launch)))
    target.sync()
    return assemble_trace(target, probed.traced.options.scheme, [record], {probed: arena.collect()})


def kernel_of(loaded: LoadedModule, launch: Launch) -> Kernel:
    """The kernel of a loaded twin that stands for the one of `launch`."""
    return loaded[launch.kernel.name]
