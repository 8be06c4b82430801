"""Which kernels synchronise their whole grid."""

from __future__ import annotations

from memlane.ptx.calls import special_registers
from memlane.ptx.ir import Function, Module

GRID_WORKSPACE = ("%envreg1", "%envreg2")
"""The upper and the lower half of the address of the memory in which the blocks of a cooperative launch count who has arrived. The manual
leaves these registers to the driver; this is how `grid_group::sync` of CUDA's cooperative groups reads them."""


def is_cooperative(module: Module, function: Function) -> bool:
    """Whether a kernel, or a function that it calls, needs a cooperative launch: one whose blocks are all on the chip at once."""
    return not special_registers(module, function).isdisjoint(GRID_WORKSPACE)
