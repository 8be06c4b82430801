"""Which kernels synchronise their whole grid."""

from __future__ import annotations

from memlane.ptx.calls import called_functions
from memlane.ptx.ir import Function, Module, Special

GRID_WORKSPACE = ("%envreg1", "%envreg2")
"""The upper and the lower half of the address of the memory in which the blocks of a cooperative launch count who has arrived. The manual
leaves these registers to the driver; this is how `grid_group::sync` of CUDA's cooperative groups reads them."""


def is_cooperative(module: Module, function: Function) -> bool:
    """Whether a kernel, or a function that it calls, needs a cooperative launch: one whose blocks are all on the chip at once."""
    bodies = [one.body for one in (function, *called_functions(module, function)) if one.body is not None]
    return any(
        isinstance(operand, Special) and operand.name in GRID_WORKSPACE
        for body in bodies
        for instruction in body.instructions()
        for operand in instruction.operands
    )
