"""Which layers a kernel is compiled with."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.emulate.remembered import once
from memlane.launch import Layers
from memlane.ptx import Function, Module, Special, called_functions

_CLOCKS = {"%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}


@dataclass(frozen=True)
class Compiled:
    """The layers in the machine code of a kernel: part of the key under which it is kept."""

    counts: bool
    accesses: bool
    clock: bool
    check: bool = False

    @property
    def knows_chip(self) -> bool:
        """Whether the code differs from chip to chip."""
        return self.counts or self.clock


def layers_for(layers: Layers, module: Module, function: Function) -> Compiled:
    """What `layers` asks for, and the clock where the kernel, or a function it calls, reads one."""
    return Compiled(layers.counts or layers.accesses, layers.accesses, layers.clock or _reads_clock(module, function), layers.check)


@once
def _reads_clock(module: Module, function: Function) -> bool:
    bodies = [called.body for called in (function, *called_functions(module, function)) if called.body is not None]
    return any(
        isinstance(operand, Special) and operand.name in _CLOCKS
        for body in bodies
        for instruction in body.instructions()
        for operand in instruction.operands
    )
