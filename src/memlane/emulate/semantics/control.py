"""Control flow."""

from __future__ import annotations

from memlane.emulate.build import I32, I64, constant
from memlane.emulate.layout import TRAP
from memlane.emulate.lowering import Lowering
from memlane.emulate.runtime.faults import fault
from memlane.emulate.semantics.table import semantics

_SECTION = "control-flow-instructions-"


@semantics(_SECTION + "bra")
def bra(k: Lowering) -> None:
    k.flow.save()
    if k.instruction.guard is None:
        return k.flow.go(k.flow.successors[0])
    return k.flow.split(k.active)


@semantics(_SECTION + "ret", _SECTION + "exit")
def ret(k: Lowering) -> None:
    k.flow.save()
    k.flow.leave(k.active)


@semantics("miscellaneous-instructions-trap", "miscellaneous-instructions-brkpt")
def trap(k: Lowering) -> None:
    e, zero = k.e, constant(I32, 0)
    k.flow.save()
    with e.if_then(e.icmp_unsigned("!=", k.active, zero)):
        k.call(fault, k.warp, constant(I32, TRAP), constant(I32, k.index), e.lowest_bit(k.active), constant(I64, 0), zero, zero)
        k.flow.pick_again()
    if k.flow.successors:
        k.flow.go(k.flow.successors[0])
    else:
        k.flow.pick_again()
