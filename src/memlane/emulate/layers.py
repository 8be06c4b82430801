"""Which layers a kernel is compiled with."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.launch import Layers, MachineCode
from memlane.ptx import Function, Module, once_for_each, special_registers

SMALL_THREADS = 1 << 15
"""Threads up to which a launch with a clock gets code that is compiled in half the time. Almost all that such a launch does is done by the
runtime, which is always optimised: it takes a sixth longer at most."""
_CLOCKS = {"%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}


@dataclass(frozen=True)
class Compiled:
    """The layers in the machine code of a kernel: part of the key under which it is kept."""

    counts: bool
    accesses: bool
    clock: bool
    check: bool = False
    quick: bool = False
    """Whether the code is to be there soon, rather than to be fast."""
    predicts: bool = False
    """Whether the clock layer takes what an assembler would make of the instructions, and adds up what warps waited at each."""
    machine: MachineCode | None = None
    """What the assembler made of the kernel; None: it is estimated where it is wanted."""

    @property
    def knows_chip(self) -> bool:
        """Whether the code differs from chip to chip."""
        return self.counts or self.clock


def layers_for(layers: Layers, module: Module, function: Function, threads: int | None = None) -> Compiled:
    """What `layers` asks for, and the clock where the kernel, or a function it calls, reads one. `threads`: of the whole launch."""
    clock = layers.clock or reads_clock(module, function.name)
    quick = clock and threads is not None and threads <= SMALL_THREADS
    return Compiled(layers.counts or layers.accesses, layers.accesses, clock, layers.check, quick, layers.prediction, layers.machine)


@once_for_each
def reads_clock(module: Module, kernel: str) -> bool:
    """Return whether a kernel, or a function that it calls, reads `%clock`, `%globaltimer` or a part of them."""
    return not special_registers(module, module.functions[kernel]).isdisjoint(_CLOCKS)
