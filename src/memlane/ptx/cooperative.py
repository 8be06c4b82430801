"""Tell which kernels synchronise their whole grid."""

from __future__ import annotations

from memlane.ptx.calls import special_registers
from memlane.ptx.ir import Function, Module

GRID_WORKSPACE = ("%envreg1", "%envreg2")
"""Low and high half of the address of the memory in which the blocks of a cooperative launch count arrivals.

The manual leaves these registers to the driver; this is how `grid_group::sync` of CUDA's cooperative groups reads them.
"""


def is_cooperative(module: Module, function: Function) -> bool:
    """Return whether a kernel, itself or through its callees, needs a cooperative launch, with all blocks resident at once."""
    return not special_registers(module, function).isdisjoint(GRID_WORKSPACE)
