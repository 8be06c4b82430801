"""Blocks of a cluster: their records, their common start, and the cluster barrier.

They are resident together, in neighbouring slots of one worker, so that nothing here needs a lock. The record of the first block holds the
state that they share. A thread at the barrier either has not arrived, or has arrived and may continue once all others of the cluster have
arrived or exited.
"""

from __future__ import annotations

from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import ARRIVED_TWICE, BLOCK, BLOCKED, CLUSTER_BARRIER, CONTEXT, NOT_ARRIVED, RUN, WARP
from memlane.emulate.runtime.barriers import leave, note_stop, notify_opening, wake
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import helper, invoke
from memlane.emulate.runtime.schedule import warp_at
from memlane.emulate.runtime.warp_splits import continue_at
from memlane.emulate.runtime.window import peer_of
from memlane.emulate.runtime.workers import note_progress


def first_of(e: Emit, context: Value, block: Value) -> Value:
    """Return the record of the first block in the cluster of a resident block."""
    return peer_of(e, context, block, constant(I32, 0))


@helper("cluster_open", VOID, POINTER)
def open_barrier(e: Emit, first: Value) -> None:
    """Open the cluster barrier, at which all threads have arrived: waiting threads continue, and the next phase begins."""
    context = e.get_pointer(first, BLOCK, "context")
    notify_opening(e, first, constant(I32, CLUSTER_BARRIER))
    note_progress(e, context)
    opened = e.get(first, BLOCK, "cluster_release")
    e.put(opened, first, BLOCK, "cluster_opened")
    for field in ("cluster_release", "cluster_come"):
        e.put(0, first, BLOCK, field)
    living = e.variable(constant(I32, 0))
    with e.count(e.get(context, CONTEXT, "cluster_blocks")) as rank:
        block = peer_of(e, context, first, rank)
        living.set(e.add(living.get(), e.get(block, BLOCK, "live")))
        with e.count(e.get(context, CONTEXT, "warps")) as number:
            _let_pass(e, context, warp_at(e, context, block, number), opened)
    e.put(living.get(), first, BLOCK, "cluster_pending")


def _let_pass(e: Emit, context: Value, warp: Value, opened: Value) -> None:
    waits = e.get(warp, WARP, "at_cluster")
    passed = e.or_(e.get(warp, WARP, "cluster_passed"), e.get(warp, WARP, "cluster_arrived"))
    e.put(e.and_(passed, e.not_(waits)), warp, WARP, "cluster_passed")
    e.put(0, warp, WARP, "cluster_arrived")
    with e.if_then(e.icmp_unsigned("!=", waits, constant(I32, 0))):
        e.put(0, warp, WARP, "at_cluster")
        e.put(e.and_(e.get(warp, WARP, "waiting"), e.not_(waits)), warp, WARP, "waiting")
        e.put(e.intrinsic("smax", [e.get(warp, WARP, "time"), opened]), warp, WARP, "time")
        with e.if_then(e.icmp_unsigned("==", e.get(warp, WARP, "status"), constant(I32, BLOCKED))):
            e.put(RUN, warp, WARP, "status")
            wake(e, context, warp)


def _settle(e: Emit, first: Value, lanes: Value) -> None:
    """Stop waiting for `lanes` at the barrier; open it if they were the last."""
    left = e.bump(first, BLOCK, "cluster_pending", e.neg(e.popcount(lanes)))
    come = e.icmp_unsigned("!=", e.get(first, BLOCK, "cluster_come"), constant(I32, 0))
    with e.if_then(e.and_(come, e.icmp_unsigned("==", left, constant(I32, 0))), likely=False):
        invoke(e, open_barrier, first)


def _first_of_warp(e: Emit, warp: Value) -> Value:
    """Return the record of the first block of a warp's cluster."""
    block = e.get_pointer(warp, WARP, "block")
    return first_of(e, e.get_pointer(block, BLOCK, "context"), block)


def _refuse(e: Emit, warp: Value, kind: int, lanes: Value, site: Value) -> None:
    """Report a fault of the first of `lanes` and return from the helper, if there are any."""
    zero = constant(I32, 0)
    with e.if_then(e.icmp_unsigned("!=", lanes, zero), likely=False):
        invoke(e, fault, warp, constant(I32, kind), site, e.lowest_bit(lanes), constant(I64, 0), zero, zero)
        e.ret_void()


@helper("cluster_arrive", VOID, POINTER, I32, I32, I64, I32)
def arrive_at_cluster(e: Emit, warp: Value, lanes: Value, segment: Value, time: Value, site: Value) -> None:
    """Let `lanes` arrive at the barrier of their cluster and continue at `segment` at once. If they are the last, it opens at `time`."""
    first = _first_of_warp(e, warp)
    continue_at(e, warp, lanes, segment)
    arrived = e.get(warp, WARP, "cluster_arrived")
    _refuse(e, warp, ARRIVED_TWICE, e.and_(lanes, e.or_(arrived, e.get(warp, WARP, "cluster_passed"))), site)
    e.put(e.or_(arrived, lanes), warp, WARP, "cluster_arrived")
    e.put(e.intrinsic("smax", [e.get(first, BLOCK, "cluster_release"), time]), first, BLOCK, "cluster_release")
    e.bump(first, BLOCK, "cluster_come", e.popcount(lanes))
    _settle(e, first, lanes)


@helper("cluster_wait", VOID, POINTER, I32, I32, I32)
def wait_at_cluster(e: Emit, warp: Value, lanes: Value, segment: Value, site: Value) -> None:
    """Make `lanes`, which have arrived at the barrier of their cluster, wait until it opens; they continue at `segment`."""
    first = _first_of_warp(e, warp)
    continue_at(e, warp, lanes, segment)
    arrived, passed = e.get(warp, WARP, "cluster_arrived"), e.get(warp, WARP, "cluster_passed")
    _refuse(e, warp, NOT_ARRIVED, e.and_(lanes, e.not_(e.or_(arrived, passed))), site)
    with e.if_then(e.icmp_unsigned("!=", e.and_(passed, lanes), constant(I32, 0))):
        e.put(e.and_(passed, e.not_(lanes)), warp, WARP, "cluster_passed")
        opened = e.get(first, BLOCK, "cluster_opened")
        e.put(e.intrinsic("smax", [e.get(warp, WARP, "time"), opened]), warp, WARP, "time")
    waits = e.and_(lanes, arrived)
    note_stop(e, warp, waits, site)
    e.put(e.or_(e.get(warp, WARP, "at_cluster"), waits), warp, WARP, "at_cluster")
    e.put(e.or_(e.get(warp, WARP, "waiting"), waits), warp, WARP, "waiting")


@helper("cluster_leave", VOID, POINTER, I32)
def leave_cluster(e: Emit, warp: Value, lanes: Value) -> None:
    """Let `lanes` exit: the barriers of their block and of their cluster no longer wait for them."""
    invoke(e, leave, warp, lanes)
    first = _first_of_warp(e, warp)
    arrived = e.get(warp, WARP, "cluster_arrived")
    for field in ("cluster_arrived", "cluster_passed"):
        e.put(e.and_(e.get(warp, WARP, field), e.not_(lanes)), warp, WARP, field)
    _settle(e, first, e.and_(lanes, e.not_(arrived)))
