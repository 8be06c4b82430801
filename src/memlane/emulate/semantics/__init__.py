"""What each instruction does, one short function per instruction, in files named like those of the instruction table (`ptx/ops`).

To add an instruction that the parser knows, write its function in the file of its chapter and bind it with its key: the chapter and
the name that its row in the instruction table has.

    @semantics("integer/neg")
    def neg(k: Lowering) -> None:
        k.write("d", k.e.neg(k.read("a")))

`k.read` gives an operand for all 32 lanes, `k.write` takes the result; guards and masks are not the function's concern. `k.active` are the
lanes that take part, for the instructions that care. Memory is reached by `accesses` alone, where it is counted, timed and checked.
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
