"""Choose the layers that a kernel is compiled with."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.launch import Layers, MachineCode
from memlane.ptx import Function, Module, once_for_each, special_registers

SMALL_THREADS = 1 << 15
"""Largest launch, in threads, for which clocked code is compiled without full optimisation, in half the time. The runtime, which does
nearly all the work of such a launch, is always optimised, so the launch takes at most a sixth longer."""
_CLOCKS = {"%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}


@dataclass(frozen=True)
class CompiledLayers:
    """The layers compiled into a kernel's machine code, part of its cache key."""

    counts: bool
    accesses: bool
    clock: bool
    check: bool = False
    quick: bool = False
    """Whether to compile quickly rather than to optimise."""
    predicts: bool = False
    """Whether the clock layer models the assembler's output and adds up each instruction's stall cycles."""
    machine: MachineCode | None = None
    """The assembler's output for the kernel; None: it is estimated where needed."""

    @property
    def depends_on_chip(self) -> bool:
        """Whether the code depends on the chip."""
        return self.counts or self.clock


def layers_for(layers: Layers, module: Module, function: Function, threads: int | None = None) -> CompiledLayers:
    """Return the layers that `layers` requests, with the clock added if the kernel or a function it calls reads one.

    `threads`: number of threads of the whole launch.
    """
    clock = layers.clock or reads_clock(module, function.name)
    quick = clock and threads is not None and threads <= SMALL_THREADS
    return CompiledLayers(layers.counts or layers.accesses, layers.accesses, clock, layers.check, quick, layers.prediction, layers.machine)


@once_for_each
def reads_clock(module: Module, kernel: str) -> bool:
    """Return whether a kernel, or a function that it calls, reads `%clock`, `%globaltimer` or a part of them."""
    return not special_registers(module, module.functions[kernel]).isdisjoint(_CLOCKS)
