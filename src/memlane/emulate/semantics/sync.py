"""Barriers and fences."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.check.hooks import check_barrier, check_fence, check_masks, check_warp_barrier
from memlane.emulate.code.build import I1, I32, I64, constant
from memlane.emulate.layout import BLOCK, CONTEXT, WARP
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.barriers import arrive_at_barrier, arrive_at_warp_barrier
from memlane.emulate.semantics.table import semantics
from memlane.emulate.semantics.warp import any_of


@semantics("sync/barrier", "sync/bar")
def bar(k: Lowering) -> None:
    """Let threads arrive at a barrier of the block and, unless they only `arrive`, wait. The result of a reduction is read when they
    continue."""
    e = k.e
    barrier = k.uniform("a")
    is_reduction = k.instruction.has("red")
    if k.resumes:
        return _finish_reduction(k)
    count = k.uniform("b") if k.has("b") else constant(I32, 0)
    if is_reduction:
        chosen = e.popcount(e.and_(k.read("c"), k.active))
        e.bump(k.block, BLOCK, "popc", chosen, e.and_(barrier, constant(I32, 15)))
    following = k.flow.pause()
    time = constant(I64, 0) if k.scoreboard is None else k.scoreboard.barrier_opens
    check_barrier(k, barrier)
    waits = constant(I1, 0 if k.instruction.has("arrive") else 1)
    k.call(arrive_at_barrier, k.warp, k.active, barrier, count, constant(I32, following), waits, time, constant(I32, k.index))
    return k.flow.pick_again()


def _finish_reduction(k: Lowering) -> None:
    e, instruction = k.e, k.instruction
    barrier = e.and_(k.uniform("a"), constant(I32, 15))
    counted = e.get(k.block, BLOCK, "result", barrier)
    if instruction.has("popc"):
        return k.write("d", e.splat(counted))
    taking_part = e.get(k.block, BLOCK, "took_part", barrier)
    holds = e.icmp_unsigned("==", counted, taking_part) if instruction.has("and") else e.icmp_unsigned("!=", counted, constant(I32, 0))
    return k.write("p", e.sext(holds, I32))


@semantics("sync/bar.warp.sync")
def bar_warp_sync(k: Lowering) -> None:
    """Wait, in each lane, for the live lanes of its own mask. Lanes whose guard is false do not arrive."""
    e = k.e
    partners = k.read("mask")
    members = any_of(k, partners)
    following = k.flow.pause()
    check_masks(k)
    check_warp_barrier(k, partners)
    missing = e.and_(e.and_(members, e.get(k.warp, WARP, "live")), e.not_(k.active))
    waiting = e.or_(missing, e.get(k.warp, WARP, "at_warp_barrier"))
    with e.if_then(e.icmp_unsigned("!=", waiting, constant(I32, 0)), likely=False):
        e.store_lanes(partners, k.scratch("partners", 4 * LANES))
        together = k.call(
            arrive_at_warp_barrier, k.warp, k.active, k.scratch("partners", 4 * LANES), constant(I32, following), constant(I32, k.index)
        )
        with e.if_then(e.icmp_unsigned("==", together, constant(I32, 0))):
            k.flow.pick_again()
    k.flow.go(following)


@semantics("sync/membar", "sync/fence", "sync/griddepcontrol")
def fence(k: Lowering) -> None:
    """Order memory operations. Those of a block execute one after another here; between blocks of different workers the processor has to
    keep their order."""
    check_fence(k)
    e, instruction = k.e, k.instruction
    if instruction.has("sc") or (instruction.opcode == "membar" and not instruction.has("cta")):
        with e.if_then(e.icmp_unsigned("!=", e.get(k.context, CONTEXT, "parallel"), constant(I32, 0)), likely=False):
            e.fence("seq_cst")
    else:
        e.fence("acq_rel")
