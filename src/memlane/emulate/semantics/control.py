"""Control flow."""

from __future__ import annotations

from memlane.emulate.check.hooks import check_exit
from memlane.emulate.code.build import I32, I64, constant
from memlane.emulate.layout import TRAP
from memlane.emulate.lower.calls import Return
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account_branch
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.warp_splits import park
from memlane.emulate.semantics.call import return_to_caller
from memlane.emulate.semantics.table import semantics


@semantics("control/bra")
def bra(k: Lowering) -> None:
    k.flow.save()
    if k.instruction.guard is None:
        return k.flow.go(k.flow.successors[0])
    account_branch(k, k.active)
    return k.flow.split(k.active)


@semantics("control/brx.idx")
def brx_idx(k: Lowering) -> None:
    """Let each lane continue at the target that its index names; at the last one for an index past the list, which the manual leaves
    open."""
    e = k.e
    index = k.read("index")
    k.flow.save()
    targets = k.flow.successors if k.instruction.guard is None else k.flow.successors[:-1]
    k.flow.skip_if_idle(k.flow.successors[-1])
    index = e.intrinsic("umin", [index, constant(index.type, len(targets) - 1)])
    for number, goal in enumerate(targets):
        lanes = e.and_(k.active, e.mask_of(e.icmp_unsigned("==", index, constant(index.type, number))))
        k.call(park, k.warp, lanes, constant(I32, goal))
    k.flow.pick_again()


@semantics("control/ret", "control/exit")
def ret(k: Lowering) -> None:
    if isinstance(k.step.link, Return):
        return return_to_caller(k, k.step.link)
    k.flow.save()
    check_exit(k)
    return k.flow.leave(k.active)


@semantics("miscellaneous/trap", "miscellaneous/brkpt")
def trap(k: Lowering) -> None:
    e, zero = k.e, constant(I32, 0)
    k.flow.save()
    with e.if_then(e.icmp_unsigned("!=", k.active, zero)):
        k.call(fault, k.warp, constant(I32, TRAP), constant(I32, k.index), e.lowest_bit(k.active), constant(I64, 0), zero, zero)
        k.flow.pick_again()
    if k.flow.successors:
        k.flow.go(k.flow.following)
    else:
        k.flow.pick_again()
