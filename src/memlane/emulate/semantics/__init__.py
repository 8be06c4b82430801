"""Lowers each instruction, one short function per instruction, in files named like those of the instruction table (`ptx/ops`).

To add an instruction that the parser knows, write its function in the file of its chapter and bind it with its key: the chapter and the
name that its row in the instruction table has.

    @semantics("integer/neg")
    def neg(k: Lowering) -> None:
        k.write("d", k.e.neg(k.read("a")))

`k.read` returns an operand for all 32 lanes, `k.write` takes the result; guards and masks are handled outside the function. `k.active` is
the mask of the active lanes, for the instructions that need it. Memory is accessed only through `accesses`, where each access is counted,
timed and checked. Docstrings say what the instruction does at run time.
"""

from memlane.emulate.semantics import (
    asynchronous,
    atomic,
    call,
    cluster,
    cluster_copies,
    compare,
    control,
    convert,
    extended,
    floating,
    half,
    integer,
    logic,
    matrix,
    memory,
    miscellaneous,
    service,
    sync,
    tensor,
    texture,
    video,
    warp,
    wgmma,
    wmma,
)
from memlane.emulate.semantics.table import TABLE, Semantics, semantics

__all__ = [
    "TABLE",
    "Semantics",
    "asynchronous",
    "atomic",
    "call",
    "cluster",
    "cluster_copies",
    "compare",
    "control",
    "convert",
    "extended",
    "floating",
    "half",
    "integer",
    "logic",
    "matrix",
    "memory",
    "miscellaneous",
    "semantics",
    "service",
    "sync",
    "tensor",
    "texture",
    "video",
    "warp",
    "wgmma",
    "wmma",
]
