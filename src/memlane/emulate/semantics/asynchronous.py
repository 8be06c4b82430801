"""Asynchronous copies. They are done at once: a kernel that forgets to wait for them works here."""

from __future__ import annotations

from memlane.emulate.check.hooks import check_copy
from memlane.emulate.code.build import I32, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account_copy
from memlane.emulate.runtime.copies import copy
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Immediate

_SECTION = "data-movement-and-conversion-instructions-"


@semantics(_SECTION + "cp-async")
def cp_async(k: Lowering) -> None:
    size = k.instruction.operand("size")
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16) or k.has("ignore"):
        raise k.unsupported()
    e, kind = k.e, vector(I32)
    whole = constant(kind, size.value)
    count = e.intrinsic("umin", [k.read("source", "u32"), whole]) if k.has("source") else whole
    e.store_lanes(count, k.scratch("a"))
    source, target = k.address("src"), k.address("dst", "more_addresses")
    lanes = check_copy(k, source, target, size.value, count)
    k.call(copy(size.value), k.warp, *source, *target, lanes, constant(I32, k.index), k.scratch("a"))
    account_copy(k, source, target, size.value)


@semantics(_SECTION + "cp-async-commit-group", _SECTION + "cp-async-wait-group")
def group(k: Lowering) -> None:
    """Every copy is complete already."""
