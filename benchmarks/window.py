"""The empty window of a scheme: what its probe records beyond the access that it surrounds.

The instrumented module is taken as it is, and each timed access in it is replaced by a filler that holds no access. Everything else,
probes and records and loops, stays.

    switched off    @never ld.global.u64 d, [a];            the access itself under a predicate that is false
    one operation   xor.b64 d, a, zero;                     the least that needs the address and gives the value
    chain of n      add.f64 d, a, zero; ...                 n operations from the address to the value, each needing the one before; one
                                                            instruction each once assembled

`zero` is 0, which only the launch knows; it has been through a shuffle, because the assembler would else fetch it again between the clock
reads. Nothing can stand between two clock reads without being something, so the window is the smaller of the first two records: either
filler can only lengthen it.

The chains are there to compare: their records, extrapolated to length 0, are what the probe adds to something long. On an H200 that is 12
to 15 cycles less than the window for `dependent` at L1, L2 and DRAM, and less the extrapolated value the records of loads are some 9
cycles too long there; less the window they are 5 to 6 cycles too short. So what a probe adds to a load lies between the two. Why is not
established: the instructions that keep the first clock value may run beside a chain and not beside a load, and the one operation has a
latency of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memlane.instrument.insert import placed, rewrite_body
from memlane.measure.probed import ProbedModule
from memlane.ptx import Address, Function, Guard, Instruction, Register, Statement

SWITCHED_OFF = 0
ONE_OPERATION = 1
CHAINS = (16, 48)
"""Lengths of the chains."""
FILLERS = (SWITCHED_OFF, ONE_OPERATION, *CHAINS)
"""A filler is named by the number of its operations, 0 for the access that is switched off."""


def filled(probed: ProbedModule, kernel: str, filler: int) -> ProbedModule:
    """`probed` with a filler in place of every timed access of `kernel`, whose last parameter is a `.u32` that the launch sets to 0."""
    module = probed.traced.module
    function = module.functions[kernel]
    places = frozenset(probed.traced.positions[kernel].values())

    def rewrite(index: int, instruction: Instruction, scope: object) -> Sequence[Statement]:
        return _fill(instruction, filler) if index in places else (instruction,)

    prologue = f"""\
.reg .b32 %filler_word;
.reg .b64 %filler_zero;
.reg .pred %filler_never;
ld.param.u32 %filler_word, [{function.params[-1].name}];
shfl.sync.idx.b32 %filler_word, %filler_word, 0, 31, -1;
mov.b64 %filler_zero, {{%filler_word, %filler_word}};
setp.ne.u32 %filler_never, %filler_word, 0;
"""
    new: Function = rewrite_body(function, prologue, rewrite)
    traced = replace(probed.traced, module=replace(module, items=tuple(new if item is function else item for item in module.items)))
    return ProbedModule(traced, replace(probed.twin, loaded=probed.original.target.load(traced.module)))


def _fill(access: Instruction, filler: int) -> Sequence[Statement]:
    if filler == SWITCHED_OFF:
        return (replace(access, guard=Guard("%filler_never")),)
    value, address = access.operands
    assert isinstance(value, Register)
    assert isinstance(address, Address)
    assert isinstance(address.base, Register)
    if filler == ONE_OPERATION:
        return placed(f"xor.b64 {value.name}, {address.base.name}, %filler_zero;", access.location)
    sources = [address.base.name, *[value.name] * (filler - 1)]
    return placed("\n".join(f"add.f64 {value.name}, {source}, %filler_zero;" for source in sources), access.location)


def extrapolated(records: Mapping[int, float]) -> float:
    """The record of a chain of length 0, from those of `CHAINS`."""
    short, long = CHAINS
    slope = (records[long] - records[short]) / (long - short)
    return records[short] - slope * short
