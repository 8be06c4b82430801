"""Barriers of a block and of a warp, warp-synchronous instructions, exits. Arrival is counted by thread, as on Volta and later."""

from __future__ import annotations

import llvmlite.ir as ir

from memlane.emulate.code.build import I1, I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import BAD_BARRIER, BARRIERS, BLOCK, BLOCKED, CONTEXT, RUN, SLACK, WARP, offset
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import helper, invoke
from memlane.emulate.runtime.pages import Pages
from memlane.emulate.runtime.warp_splits import continue_at, lanes_at
from memlane.emulate.runtime.workers import note_progress
from memlane.launch import WAIT_DTYPE


def _warp_of(e: Emit, block: Value, number: Value) -> Value:
    context = e.get_pointer(block, BLOCK, "context")
    distance = e.mul(e.zext(number, I64), e.get(context, CONTEXT, "warp_bytes"))
    return e.at(e.at(block, e.get(context, CONTEXT, "warps_offset")), distance)


def wake(e: Emit, context: Value, warp: Value) -> None:
    """Add a warp that can continue to the list of the clock layer's scheduler, if that runs. The warp that opened the barrier does not run
    ahead of it, because it may wait for what the other one does next."""
    woken = e.get_pointer(context, CONTEXT, "woken")
    with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(woken, I64), constant(I64, 0))):
        limit = e.add(e.get(warp, WARP, "time"), constant(I64, SLACK))
        e.put(e.intrinsic("smin", [e.get(context, CONTEXT, "limit"), limit]), context, CONTEXT, "limit")
        count = e.get(context, CONTEXT, "woken_count")
        e.store(warp, e.element(woken, count, POINTER))
        e.put(e.add(count, constant(I64, 1)), context, CONTEXT, "woken_count")


_OBSERVER = ir.FunctionType(VOID, [POINTER, I32])
_WAITS = Pages(WAIT_DTYPE, "waits", "wait_count", "wait_room", "new_wait_page")


def notify_opening(e: Emit, block: Value, barrier: Value) -> None:
    """Call the observer in `context.opened`, if there is one, before a barrier opens."""
    context = e.get_pointer(block, BLOCK, "context")
    function = e.get_pointer(context, CONTEXT, "opened")
    with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(function, I64), constant(I64, 0)), likely=False):
        e.call_through(function, _OBSERVER, [block, barrier])


@helper("release", VOID, POINTER, I32)
def release(e: Emit, block: Value, barrier: Value) -> None:
    """Open a barrier: all waiting threads continue, and it is ready for its next use."""
    notify_opening(e, block, barrier)
    e.put(e.get(block, BLOCK, "popc", barrier), block, BLOCK, "result", barrier)
    e.put(e.get(block, BLOCK, "arrived", barrier), block, BLOCK, "took_part", barrier)
    e.put(0, block, BLOCK, "popc", barrier)
    e.put(0, block, BLOCK, "arrived", barrier)
    e.put(0, block, BLOCK, "expected", barrier)
    context = e.get_pointer(block, BLOCK, "context")
    opened = e.get(block, BLOCK, "release", barrier)
    e.put(0, block, BLOCK, "release", barrier)
    note_progress(e, context)
    with e.count(e.get(context, CONTEXT, "warps")) as number:
        warp = _warp_of(e, block, number)
        here = e.get(warp, WARP, "at_barrier", barrier)
        with e.if_then(e.icmp_unsigned("!=", here, constant(I32, 0))):
            e.put(0, warp, WARP, "at_barrier", barrier)
            e.put(e.and_(e.get(warp, WARP, "waiting"), e.not_(here)), warp, WARP, "waiting")
            time = e.get(warp, WARP, "time")
            _keep_wait(e, context, block, number, time, opened)
            e.put(e.select(e.icmp_signed("<", time, opened), opened, time), warp, WARP, "time")
            with e.if_then(e.icmp_unsigned("==", e.get(warp, WARP, "status"), constant(I32, BLOCKED))):
                e.put(RUN, warp, WARP, "status")
                wake(e, context, warp)


def _keep_wait(e: Emit, context: Value, block: Value, warp: Value, arrived: Value, opened: Value) -> None:
    """Append a warp's wait at a barrier to the launch's waits, if these are kept; Python provides a new page when one is full."""
    with e.if_then(e.icmp_unsigned("!=", e.get(context, CONTEXT, "waits"), constant(I64, 0)), likely=False):
        invoke(e, keep_wait, context, block, warp, arrived, opened)


@helper("keep_wait", VOID, POINTER, POINTER, I32, I64, I64)
def keep_wait(e: Emit, context: Value, block: Value, warp: Value, arrived: Value, opened: Value) -> None:
    """Append a row of `WAIT_DTYPE`. Without a new page the row is dropped, and Python knows by the callback that some are missing."""
    row = _WAITS.begin_row(e, context)
    origin = e.get(block, BLOCK, "origin")
    values = {
        "block": e.get(block, BLOCK, "number"),
        "warp": warp,
        "arrived": e.add(arrived, origin),
        "opened": e.add(e.intrinsic("smax", [arrived, opened]), origin),
    }
    _WAITS.fill(e, row, values)


def note_stop(e: Emit, warp: Value, lanes: Value, site: Value) -> None:
    """Record the instruction at which `lanes` stopped."""
    stops = e.at(warp, offset(WARP, "stopped_at"))
    e.store_lanes(e.select(e.lanes_of(lanes), e.splat(site), e.load_lanes(stops, I32)), stops)


def _open_if_complete(e: Emit, block: Value, barrier: Value) -> None:
    """Open the barrier if all threads it waits for have arrived: the given number, or all that have not exited."""
    arrived, expected = e.get(block, BLOCK, "arrived", barrier), e.get(block, BLOCK, "expected", barrier)
    needed = e.select(e.icmp_unsigned("==", expected, constant(I32, 0)), e.get(block, BLOCK, "live"), expected)
    come = e.icmp_unsigned(">=", arrived, needed)
    with e.if_then(e.and_(come, e.icmp_unsigned("!=", arrived, constant(I32, 0)))):
        invoke(e, release, block, barrier)


@helper("arrive", VOID, POINTER, I32, I32, I32, I32, I1, I64, I32)
def arrive_at_barrier(
    e: Emit, warp: Value, lanes: Value, barrier: Value, count: Value, segment: Value, waits: Value, time: Value, site: Value
) -> None:
    """Let `lanes` arrive at a barrier of the block; they continue at `segment` when it opens, or at once if they do not wait.

    `count` is the number of threads that the barrier needs, 0 for all; `time` is when they may continue if they are the last.
    """
    block = e.get_pointer(warp, WARP, "block")
    continue_at(e, warp, lanes, segment)
    with e.if_then(e.icmp_unsigned(">=", barrier, constant(I32, BARRIERS)), likely=False):
        invoke(e, fault, warp, constant(I32, BAD_BARRIER), site, e.lowest_bit(lanes), e.zext(barrier, I64), count, constant(I32, 0))
        e.ret_void()
    with e.if_then(waits):
        note_stop(e, warp, lanes, site)
        e.put(e.or_(e.get(warp, WARP, "waiting"), lanes), warp, WARP, "waiting")
        e.put(e.or_(e.get(warp, WARP, "at_barrier", barrier), lanes), warp, WARP, "at_barrier", barrier)
    e.bump(block, BLOCK, "arrived", e.popcount(lanes), barrier)
    e.put(count, block, BLOCK, "expected", barrier)
    latest = e.get(block, BLOCK, "release", barrier)
    e.put(e.select(e.icmp_signed("<", latest, time), time, latest), block, BLOCK, "release", barrier)
    _open_if_complete(e, block, barrier)


@helper("leave", VOID, POINTER, I32)
def leave(e: Emit, warp: Value, lanes: Value) -> None:
    """Let `lanes` exit. Barriers and warp-synchronous instructions no longer wait for them."""
    block = e.get_pointer(warp, WARP, "block")
    context = e.get_pointer(block, BLOCK, "context")
    note_progress(e, context)
    live = e.and_(e.get(warp, WARP, "live"), e.not_(lanes))
    e.put(live, warp, WARP, "live")
    left = e.sub(e.get(block, BLOCK, "live"), e.popcount(lanes))
    e.put(left, block, BLOCK, "live")
    # Lanes at a warp-synchronous instruction check again whether all are there; those at a barrier of the warp continue if they are
    # complete.
    asleep = e.get(warp, WARP, "at_warp_barrier")
    woken = e.or_(e.get(warp, WARP, "at_sync"), _with_all_partners(e, warp, asleep, e.load_lanes(_partners(e, warp), I32)))
    e.put(e.and_(e.get(warp, WARP, "waiting"), e.not_(woken)), warp, WARP, "waiting")
    e.put(0, warp, WARP, "at_sync")
    e.put(e.and_(asleep, e.not_(woken)), warp, WARP, "at_warp_barrier")
    with e.if_then(e.icmp_unsigned("!=", left, constant(I32, 0))), e.count(constant(I32, BARRIERS)) as barrier:
        _open_if_complete(e, block, barrier)


def _partners(e: Emit, warp: Value) -> Value:
    """Return a pointer to the masks of the lanes at a barrier of the warp."""
    return e.at(warp, offset(WARP, "partners"))


def _with_all_partners(e: Emit, warp: Value, there: Value, masks: Value) -> Value:
    """Return the lanes of `there` whose live partners, by 32 masks, are all in `there`."""
    missing = e.and_(e.get(warp, WARP, "live"), e.not_(there))
    waits = e.mask_of(e.icmp_unsigned("!=", e.and_(masks, e.splat(missing)), constant(masks.type, 0)))
    return e.and_(there, e.not_(waits))


@helper("wait_for_partners", I32, POINTER, I32, POINTER, I32)
def wait_for_partners(e: Emit, warp: Value, segment: Value, masks: Value, site: Value) -> None:
    """Let the running lanes arrive at the warp-synchronous instruction at `segment`; `masks` points to the partners of each lane that runs
    or waits there. Return 1 if the partners of some lanes are all there now (these become the running split), 0 if the running lanes have
    to wait. No lane waits for lanes that have exited."""
    mask = e.get(warp, WARP, "mask")
    together = e.or_(e.and_(e.get(warp, WARP, "at_sync"), lanes_at(e, warp, segment)), mask)
    ready = _with_all_partners(e, warp, together, e.load_lanes(masks, I32))
    left = e.and_(together, e.not_(ready))
    with e.if_then(e.icmp_unsigned("!=", left, constant(I32, 0))):
        continue_at(e, warp, left, segment)
        note_stop(e, warp, left, site)
    for field in ("waiting", "at_sync"):
        e.put(e.or_(e.and_(e.get(warp, WARP, field), e.not_(ready)), left), warp, WARP, field)
    with e.if_then(e.icmp_unsigned("==", ready, constant(I32, 0))):
        e.ret(constant(I32, 0))
    e.put(ready, warp, WARP, "mask")
    e.ret(constant(I32, 1))


@helper("arrive_at_warp_barrier", I32, POINTER, I32, POINTER, I32, I32)
def arrive_at_warp_barrier(e: Emit, warp: Value, lanes: Value, masks: Value, segment: Value, site: Value) -> None:
    """Let `lanes` arrive at a barrier of the warp, with a mask for each lane; they continue at `segment`. Return 1 if they may do so now
    and no lane waited for them. Else return 0: lanes whose live partners are at such a barrier, not necessarily the same one, continue when
    it is their turn, including some that waited; the others wait."""
    kept = _partners(e, warp)
    e.store_lanes(e.select(e.lanes_of(lanes), e.load_lanes(masks, I32), e.load_lanes(kept, I32)), kept)
    together = e.or_(e.get(warp, WARP, "at_warp_barrier"), lanes)
    ready = _with_all_partners(e, warp, together, e.load_lanes(kept, I32))
    with e.if_then(e.icmp_unsigned("==", ready, lanes)):
        e.ret(constant(I32, 1))
    left = e.and_(together, e.not_(ready))
    continue_at(e, warp, lanes, segment)
    note_stop(e, warp, e.and_(lanes, left), site)
    e.put(left, warp, WARP, "at_warp_barrier")
    e.put(e.or_(e.and_(e.get(warp, WARP, "waiting"), e.not_(ready)), left), warp, WARP, "waiting")
    e.ret(constant(I32, 0))
