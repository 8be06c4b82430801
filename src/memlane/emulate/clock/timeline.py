"""Schedule the warps of a launch in order of time: the ready warp with the earliest time runs next.

All resident blocks of all multiprocessors share one heap of ready warps, ordered by time. A warp runs until its time exceeds that of the
next one by `SLACK` cycles. Its reservations in the meantime leave earlier slots of the rings free for other warps (`clock.rings`), so a
little slack changes the result little.
"""

from __future__ import annotations

from memlane.emulate.clock.issue import bring_rings_near
from memlane.emulate.clock.levels import CACHES, LEVEL
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import (
    BLOCK,
    BLOCKED,
    BROKEN,
    CONTEXT,
    DEADLOCK,
    DONE,
    ENDLESS,
    FAILED,
    FINISHED,
    HOST_LINE_BYTES,
    PAUSED,
    REGISTERS,
    SLACK,
    START_PARTS,
    WARP,
    YIELD,
    offset,
)
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import helper, invoke
from memlane.emulate.runtime.schedule import STEP, end_block, prepare_slot, slot_at, start_cluster, warp_at
from memlane.emulate.runtime.window import peer_of
from memlane.emulate.runtime.workers import claim_cluster

_ENTRY = 16
"""Bytes of a heap entry: the time of a warp and the address of its record, both i64."""
_FOREVER = (1 << 62) - 1


def _entry(e: Emit, heap: Value, index: Value) -> Value:
    return e.at(heap, e.mul(index, constant(I64, _ENTRY)))


def _time(e: Emit, entry: Value) -> Value:
    return e.load(entry, typ=I64)


def _write(e: Emit, entry: Value, time: Value, warp: Value) -> None:
    e.store(time, entry)
    e.store(warp, e.at(entry, 8))


@helper("heap_push", VOID, POINTER, POINTER)
def push(e: Emit, context: Value, warp: Value) -> None:
    """Insert a ready warp into the heap."""
    heap = e.get_pointer(context, CONTEXT, "heap")
    time = e.get(warp, WARP, "time")
    place = e.variable(e.get(context, CONTEXT, "heap_count"))
    e.bump(context, CONTEXT, "heap_count")
    above = e.append_basic_block("above")
    settled = e.append_basic_block("settled")
    e.branch(above)
    e.position_at_end(above)
    with e.if_then(e.icmp_unsigned("==", place.get(), constant(I64, 0))):
        e.branch(settled)
    parent = e.lshr(e.sub(place.get(), constant(I64, 1)), constant(I64, 1))
    parent_entry = _entry(e, heap, parent)
    with e.if_then(e.icmp_signed("<=", _time(e, parent_entry), time)):
        e.branch(settled)
    _write(e, _entry(e, heap, place.get()), _time(e, parent_entry), e.load(e.at(parent_entry, 8), typ=I64))
    place.set(parent)
    e.branch(above)
    e.position_at_end(settled)
    _write(e, _entry(e, heap, place.get()), time, e.ptrtoint(warp, I64))


@helper("heap_pop", POINTER, POINTER)
def pop(e: Emit, context: Value) -> None:
    """Remove the earliest warp from the heap, which must not be empty, and return its record."""
    heap = e.get_pointer(context, CONTEXT, "heap")
    first = e.load(e.at(heap, 8), typ=I64)
    count = e.bump(context, CONTEXT, "heap_count", -1)
    last = _entry(e, heap, count)
    time, warp = _time(e, last), e.load(e.at(last, 8), typ=I64)
    place = e.variable(constant(I64, 0))
    below = e.append_basic_block("below")
    settled = e.append_basic_block("settled")
    e.branch(below)
    e.position_at_end(below)
    left = e.add(e.shl(place.get(), constant(I64, 1)), constant(I64, 1))
    with e.if_then(e.icmp_unsigned(">=", left, count)):
        e.branch(settled)
    right = e.add(left, constant(I64, 1))
    # Without a right child, its entry is the one just removed, which is no earlier than the parent of the left one: harmless to compare.
    earlier = e.icmp_signed("<", _time(e, _entry(e, heap, right)), _time(e, _entry(e, heap, left)))
    child = e.select(e.and_(e.icmp_unsigned("<", right, count), earlier), right, left)
    entry = _entry(e, heap, child)
    with e.if_then(e.icmp_signed("<=", time, _time(e, entry))):
        e.branch(settled)
    _write(e, _entry(e, heap, place.get()), _time(e, entry), e.load(e.at(entry, 8), typ=I64))
    place.set(child)
    e.branch(below)
    e.position_at_end(settled)
    _write(e, _entry(e, heap, place.get()), time, warp)
    e.ret(e.inttoptr(first, POINTER))


@helper("begin_next_cluster", VOID, POINTER, POINTER)
def begin_next_cluster(e: Emit, context: Value, first: Value) -> None:
    """Start the next cluster of the grid, if one is left, in the free slots that begin at `first`."""
    number = claim_cluster(e, context)
    with e.if_then(e.icmp_unsigned("<", number, e.get(context, CONTEXT, "blocks"))):
        _wait_for_start(e, context, first)
        invoke(e, start_cluster, context, first, invoke(e, sampled_block, context, number))
        with e.count(e.get(context, CONTEXT, "cluster_blocks")) as rank:
            block = peer_of(e, context, first, rank)
            with e.count(e.get(context, CONTEXT, "warps")) as warp:
                invoke(e, push, context, warp_at(e, context, block, warp))


def _wait_for_start(e: Emit, context: Value, first: Value) -> None:
    """Delay the start of a block behind earlier starts, by the chip's rate of block starts; no delay where that is not known."""
    interval = e.get(context, CONTEXT, "block_interval")
    with e.if_then(e.icmp_unsigned("!=", interval, constant(I64, 0)), likely=False):
        parts = constant(I64, START_PARTS)
        free = e.mul(e.get(first, BLOCK, "finish"), parts)
        start = e.intrinsic("smax", [free, e.get(context, CONTEXT, "next_start")])
        e.put(e.add(start, interval), context, CONTEXT, "next_start")
        e.put(e.udiv(start, parts), first, BLOCK, "finish")


@helper("sampled_block", I64, POINTER, I64)
def sampled_block(e: Emit, context: Value, turn: Value) -> None:
    """Return the block of the grid that starts as number `turn`; `turn` itself unless only a sample of the blocks runs.

    A sample takes the blocks on some of the multiprocessors in each wave, in windows of consecutive waves."""
    sms = e.get(context, CONTEXT, "sample_sms")
    with e.if_then(e.icmp_unsigned("==", sms, constant(I64, 0)), likely=True):
        e.ret(turn)
    window = e.mul(sms, e.get(context, CONTEXT, "sample_waves"))
    inside = e.urem(turn, window)
    wave = e.mul(e.udiv(inside, sms), e.get(context, CONTEXT, "sample_group"))
    start = e.mul(e.udiv(turn, window), e.get(context, CONTEXT, "sample_stride"))
    e.ret(e.add(start, e.add(wave, e.urem(inside, sms))))


@helper("begin_timeline", VOID, POINTER)
def begin_timeline(e: Emit, context: Value) -> None:
    """Start the first clusters of the grid in all slots for blocks."""
    count = e.get(context, CONTEXT, "slot_count")
    with e.count(count) as index:
        invoke(e, prepare_slot, context, slot_at(e, context, index))
    size = e.get(context, CONTEXT, "cluster_blocks")
    with e.count(e.udiv(count, size)) as index:
        invoke(e, begin_next_cluster, context, slot_at(e, context, e.mul(index, size)))


@helper("run_timeline", I32, POINTER, POINTER)
def run_timeline(e: Emit, context: Value, step: Value) -> None:
    """Run warps in order of time, for a limited number of steps; the status returned is that of `schedule.run`."""
    with e.count(constant(I32, 1 << 16)):
        with e.if_then(e.icmp_unsigned("==", e.get(context, CONTEXT, "heap_count"), constant(I64, 0)), likely=False):
            _end(e, context)
        warp = invoke(e, pop, context)
        heap = e.get_pointer(context, CONTEXT, "heap")
        others = e.icmp_unsigned("!=", e.get(context, CONTEXT, "heap_count"), constant(I64, 0))
        following = e.select(others, _time(e, heap), constant(I64, _FOREVER))
        limit = e.add(e.intrinsic("smax", [following, e.get(warp, WARP, "time")]), constant(I64, SLACK))
        e.put(e.intrinsic("smin", [limit, e.get(context, CONTEXT, "deadline")]), context, CONTEXT, "limit")
        _bring_near(e, context, heap)
        _after_step(e, context, warp, e.call_through(step, STEP, [warp]))
        _push_woken(e, context)
    e.ret(constant(I32, PAUSED))


def _bring_near(e: Emit, context: Value, heap: Value) -> None:
    """Prefetch the records of the next warps into the host's caches while the current one runs.

    For the two warps after the next one, prefetch the first lines of the record, which point to the block. For the next warp, whose record
    is cached by now, prefetch its block, its program counters, the registers that it reads first, the rings of its sub-core around its
    time, and the `LEVEL` of its L1."""

    def lines(start: Value, first: int, count: int) -> None:
        for number in range(count):
            e.prefetch(e.at(start, first + number * HOST_LINE_BYTES))

    with e.if_then(e.icmp_unsigned(">", e.get(context, CONTEXT, "heap_count"), constant(I64, 2)), likely=True):
        for place in (1, 2):
            lines(e.load(e.at(heap, place * _ENTRY + 8), typ=POINTER), 0, 2)
        warp = e.load(e.at(heap, 8), typ=POINTER)
        block = e.get_pointer(warp, WARP, "block")
        lines(block, 0, 2)
        lines(warp, offset(WARP, "pcs"), 2)
        with e.each_lane(e.get(warp, WARP, "near")) as line:
            e.prefetch(e.at(warp, e.add(constant(I64, REGISTERS), e.mul(line, constant(I64, HOST_LINE_BYTES)))))
        bring_rings_near(e, e.get_pointer(block, BLOCK, "sm_state"), e.get(warp, WARP, "subcore"), _time(e, heap))
        l1 = e.get_pointer(e.get_pointer(context, CONTEXT, "caches"), CACHES, "l1")
        own = e.at(l1, e.mul(e.zext(e.get(block, BLOCK, "sm"), I64), constant(I64, LEVEL.itemsize)))
        lines(own, 0, -(-LEVEL.itemsize // HOST_LINE_BYTES))


def _after_step(e: Emit, context: Value, warp: Value, status: Value) -> None:
    def is_(code: int) -> Value:
        return e.icmp_unsigned("==", status, constant(I32, code))

    with e.if_then(is_(FAILED), likely=False):
        e.ret(constant(I32, BROKEN))
    with e.if_then(is_(YIELD), likely=False):
        spent = e.icmp_signed("<", e.bump(context, CONTEXT, "patience_left", -1), constant(I64, 0))
        with e.if_then(spent, likely=False):
            zero = constant(I32, 0)
            invoke(e, fault, warp, constant(I32, ENDLESS), zero, zero, constant(I64, 0), zero, zero)
            e.ret(constant(I32, BROKEN))
    with e.if_else(e.or_(is_(BLOCKED), is_(DONE))) as (stops, goes_on):
        with stops:
            e.put(status, warp, WARP, "status")
            with e.if_then(is_(DONE)):
                _warp_ends(e, context, warp)
        with goes_on:
            late = e.icmp_signed(">", e.get(warp, WARP, "time"), e.get(context, CONTEXT, "deadline"))
            with e.if_then(late, likely=False):
                zero = constant(I32, 0)
                invoke(e, fault, warp, constant(I32, ENDLESS), zero, zero, constant(I64, 0), zero, zero)
                e.ret(constant(I32, BROKEN))
            invoke(e, push, context, warp)


def _warp_ends(e: Emit, context: Value, warp: Value) -> None:
    block = e.get_pointer(warp, WARP, "block")
    finish = e.intrinsic("smax", [e.get(block, BLOCK, "finish"), e.get(warp, WARP, "time")])
    finish = e.intrinsic("smax", [finish, e.get(warp, WARP, "outstanding")])
    e.put(finish, block, BLOCK, "finish")
    lived = e.sub(e.get(warp, WARP, "time"), e.get(warp, WARP, "began"))
    e.put(e.add(e.get(context, CONTEXT, "lives"), lived), context, CONTEXT, "lives")
    running = e.bump(block, BLOCK, "running", -1)
    with e.if_then(e.icmp_unsigned("==", running, constant(I32, 0))):
        e.store(finish, e.element(e.get_pointer(context, CONTEXT, "finishes"), e.get(context, CONTEXT, "finished"), I64))
        e.put(e.intrinsic("smax", [finish, e.get(context, CONTEXT, "end")]), context, CONTEXT, "end")
        with e.if_then(end_block(e, context, block)):
            invoke(e, begin_next_cluster, context, peer_of(e, context, block, constant(I32, 0)))


def _push_woken(e: Emit, context: Value) -> None:
    """Insert the warps whose barrier has opened into the heap."""
    count = e.get(context, CONTEXT, "woken_count")
    with e.if_then(e.icmp_unsigned("!=", count, constant(I64, 0)), likely=False):
        woken = e.get_pointer(context, CONTEXT, "woken")
        with e.count(count) as index:
            invoke(e, push, context, e.load(e.element(woken, index, POINTER), typ=POINTER))
        e.put(0, context, CONTEXT, "woken_count")


def _end(e: Emit, context: Value) -> None:
    """Return from the launch when no warp is ready: it has finished, or the threads of some block are in a deadlock."""
    with e.if_then(e.icmp_unsigned("==", e.get(context, CONTEXT, "finished"), e.get(context, CONTEXT, "blocks"))):
        e.ret(constant(I32, FINISHED))
    with e.count(e.get(context, CONTEXT, "slot_count")) as index:
        block = slot_at(e, context, index)
        with e.if_then(e.icmp_unsigned("!=", e.get(block, BLOCK, "running"), constant(I32, 0))):
            zero = constant(I32, 0)
            first = warp_at(e, context, block, zero)
            invoke(e, fault, first, constant(I32, DEADLOCK), zero, zero, constant(I64, 0), zero, zero)
            e.ret(constant(I32, BROKEN))
    e.ret(constant(I32, BROKEN))
