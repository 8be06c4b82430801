"""Chooses which warp of which block a worker runs next, in the function and counting layers.

A worker runs one block at a time, its warps in turn (by their numbers, or shuffled), each until it reaches a barrier, ends, or spends its
budget. When every warp of the worker's resident blocks that can run has spent its budget, they may be waiting for a block that has not
started: one more block becomes resident, in a slot of the worker or one that it may claim.
"""

from __future__ import annotations

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.atomic import store_whole
from memlane.emulate.code.build import I1, I32, I64, POINTER, VOID, Emit, Value, constant, lane_numbers, vector
from memlane.emulate.layout import (
    BARRIERS,
    BLOCK,
    BLOCKED,
    BROKEN,
    CONTEXT,
    COPY_GROUPS,
    DEADLOCK,
    DONE,
    ENDLESS,
    FAILED,
    FINISHED,
    PAUSED,
    RUN,
    WARP,
    YIELD,
    offset,
)
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import helper, invoke
from memlane.emulate.runtime.window import peer_of
from memlane.emulate.runtime.workers import are_blocks_left, are_slots_left, claim_cluster, claim_slots, is_endless, note_progress

STEP = ir.FunctionType(I32, [POINTER])
"""Type of a compiled kernel: runs one warp until it stops, and returns why."""

CLOCK_SKEW = 1_000_003
"""Cycles between the clock origins of neighbouring multiprocessors."""

POISON = 0xA5
"""Byte that fills fresh memory, so that use of uninitialised memory shows."""


def warp_at(e: Emit, context: Value, block: Value, number: Value) -> Value:
    """Return the record of warp `number` of a resident block."""
    distance = e.mul(e.zext(number, I64), e.get(context, CONTEXT, "warp_bytes"))
    return e.at(e.at(block, e.get(context, CONTEXT, "warps_offset")), distance)


def slot_at(e: Emit, context: Value, index: Value) -> Value:
    """Return the record of the resident block in slot `index`, of any worker."""
    return e.at(e.get_pointer(context, CONTEXT, "slots"), e.mul(e.zext(index, I64), e.get(context, CONTEXT, "slot_bytes")))


@helper("prepare_slot", VOID, POINTER, POINTER)
def prepare_slot(e: Emit, context: Value, block: Value) -> None:
    """Initialise a slot with the state that is the same for all of its blocks, and append it to the worker's slots."""
    # Zero the whole record: registers and their times then have no history.
    e.fill(block, 0, e.get(context, CONTEXT, "shared_offset"))
    e.put(e.ptrtoint(context, I64), block, BLOCK, "context")
    _append_slot(e, context, block)
    _place_on_sm(e, context, block)
    start = e.ptrtoint(block, I64)
    e.put(e.add(start, e.get(context, CONTEXT, "shared_offset")), block, BLOCK, "shared")
    e.put(e.add(start, e.get(context, CONTEXT, "local_offset")), block, BLOCK, "local")
    first_warp = e.mul(e.get(block, BLOCK, "slot"), e.get(context, CONTEXT, "warps"))
    width, height = (e.splat(e.get(context, CONTEXT, "block", axis)) for axis in range(2))
    with e.count(e.get(context, CONTEXT, "warps")) as number:
        warp = warp_at(e, context, block, number)
        e.put(start, warp, WARP, "block")
        e.put(number, warp, WARP, "number")
        e.put(e.urem(e.add(first_warp, number), e.get(context, CONTEXT, "subcores")), warp, WARP, "subcore")
        thread = e.add(e.splat(e.mul(number, constant(I32, LANES))), lane_numbers(I32))
        row = e.udiv(thread, width)
        plane = e.udiv(row, height)
        for field, value in (("tid_x", e.sub(thread, e.mul(row, width))), ("tid_y", e.sub(row, e.mul(plane, height))), ("tid_z", plane)):
            e.store_lanes(value, e.at(warp, offset(WARP, field)))


def _append_slot(e: Emit, context: Value, block: Value) -> None:
    """Append a slot to the worker's list, which keeps the order in which it claimed them."""
    last = e.get_pointer(context, CONTEXT, "last")
    address = e.ptrtoint(block, I64)
    with e.if_else(e.icmp_unsigned("==", e.ptrtoint(last, I64), constant(I64, 0))) as (is_first, is_another):
        with is_first:
            e.put(address, context, CONTEXT, "first")
            e.put(address, context, CONTEXT, "turn")
        with is_another:
            e.put(address, last, BLOCK, "next")
    e.put(address, context, CONTEXT, "last")
    e.bump(context, CONTEXT, "owned")


def _place_on_sm(e: Emit, context: Value, block: Value) -> None:
    """Assign a slot to a multiprocessor, in turn. Each multiprocessor has a clock with its own origin."""
    distance = e.sub(e.ptrtoint(block, I64), e.get(context, CONTEXT, "slots"))
    index = e.trunc(e.udiv(distance, e.get(context, CONTEXT, "slot_bytes")), I32)
    count = e.get(context, CONTEXT, "sm_count")
    sm = e.urem(index, count)
    e.put(sm, block, BLOCK, "sm")
    e.put(e.udiv(index, count), block, BLOCK, "slot")
    e.put(e.urem(index, e.get(context, CONTEXT, "cluster_blocks")), block, BLOCK, "rank")
    wide = e.zext(sm, I64)
    e.put(e.add(e.get(context, CONTEXT, "sms"), e.mul(wide, e.get(context, CONTEXT, "sm_bytes"))), block, BLOCK, "sm_state")
    e.put(e.mul(wide, constant(I64, CLOCK_SKEW)), block, BLOCK, "origin")
    e.put(e.get(context, CONTEXT, "base"), block, BLOCK, "finish")


@helper("start_block", VOID, POINTER, POINTER, I64)
def start_block(e: Emit, context: Value, block: Value, number: Value) -> None:
    """Start block `number` of the grid in a slot."""
    e.put(number, block, BLOCK, "number")
    width, height = (e.zext(e.get(context, CONTEXT, "grid", axis), I64) for axis in range(2))
    row = e.udiv(number, width)
    plane = e.udiv(row, height)
    for axis, value in enumerate((e.urem(number, width), e.urem(row, height), plane)):
        e.put(e.trunc(value, I32), block, BLOCK, "ctaid", axis)
    threads, warps = e.get(context, CONTEXT, "threads"), e.get(context, CONTEXT, "warps")
    e.put(threads, block, BLOCK, "live")
    e.put(warps, block, BLOCK, "running")
    for field in ("arrived", "expected", "popc"):
        e.fill(e.at(block, offset(BLOCK, field)), 0, constant(I64, 4 * BARRIERS))
    e.fill(e.at(block, offset(BLOCK, "release")), 0, constant(I64, 8 * BARRIERS))
    e.fill(e.get_pointer(block, BLOCK, "shared"), POISON, e.get(context, CONTEXT, "shared_bytes"))
    local_bytes = e.mul(e.get(context, CONTEXT, "local_bytes"), e.zext(e.mul(warps, constant(I32, LANES)), I64))
    e.fill(e.get_pointer(block, BLOCK, "local"), POISON, local_bytes)
    with e.count(warps) as number_in_block:
        warp = warp_at(e, context, block, number_in_block)
        left = e.sub(threads, e.mul(number_in_block, constant(I32, LANES)))
        live = e.mask_of(e.icmp_unsigned("<", lane_numbers(I32), e.splat(left)))
        e.put(live, warp, WARP, "live")
        for field in (
            "waiting",
            "deferred",
            "at_sync",
            "at_warp_barrier",
            "cluster_arrived",
            "cluster_passed",
            "at_cluster",
            "status",
            "pc",
            "together",
        ):
            e.put(0, warp, WARP, field)
        e.put(e.trunc(e.get(context, CONTEXT, "budget"), I32), warp, WARP, "budget")
        for field in ("time", "began"):
            e.put(e.get(block, BLOCK, "finish"), warp, WARP, field)
        e.put(0, warp, WARP, "outstanding")
        e.put(0, warp, WARP, "turn")
        e.fill(e.at(warp, offset(WARP, "at_barrier")), 0, constant(I64, 4 * BARRIERS))
        e.fill(e.at(warp, offset(WARP, "copies")), 0, constant(I64, 8 * (1 + COPY_GROUPS)))
        e.store_lanes(constant(vector(I32), 0), e.at(warp, offset(WARP, "pcs")))


@helper("start_cluster", VOID, POINTER, POINTER, I64)
def start_cluster(e: Emit, context: Value, first: Value, number: Value) -> None:
    """Start the blocks of a cluster together, in the slots from `first` on; `number` is how many blocks start before them."""
    grid = [e.zext(e.get(context, CONTEXT, "grid", axis), I64) for axis in range(3)]
    shape = [e.zext(e.get(context, CONTEXT, "cluster", axis), I64) for axis in range(3)]
    count = e.get(context, CONTEXT, "cluster_blocks")
    place = _split(e, e.udiv(number, e.zext(count, I64)), [e.udiv(grid[axis], shape[axis]) for axis in range(2)])
    finish = e.variable(e.get(first, BLOCK, "finish"))
    with e.count(count) as rank:
        finish.set(e.intrinsic("smax", [finish.get(), e.get(peer_of(e, context, first, rank), BLOCK, "finish")]))
    with e.count(count) as rank:
        block = peer_of(e, context, first, rank)
        e.put(finish.get(), block, BLOCK, "finish")
        inner = _split(e, e.zext(rank, I64), shape[:2])
        x, y, z = (e.add(e.mul(place[axis], shape[axis]), inner[axis]) for axis in range(3))
        invoke(e, start_block, context, block, e.add(e.mul(e.add(e.mul(z, grid[1]), y), grid[0]), x))
    e.put(count, first, BLOCK, "cluster_running")
    e.put(e.mul(count, e.get(context, CONTEXT, "threads")), first, BLOCK, "cluster_pending")
    for field in ("cluster_come", "cluster_release", "cluster_opened"):
        e.put(0, first, BLOCK, field)
    e.bump(context, CONTEXT, "started", e.zext(count, I64))
    e.bump(context, CONTEXT, "clusters_running")


def _split(e: Emit, number: Value, extents: list[Value]) -> list[Value]:
    """Return x, y and z of a number that counts x fastest."""
    row = e.udiv(number, extents[0])
    return [e.urem(number, extents[0]), e.urem(row, extents[1]), e.udiv(row, extents[1])]


def end_block(e: Emit, context: Value, block: Value) -> Value:
    """End a block. Return i1: whether it was the last of its cluster."""
    e.bump(context, CONTEXT, "finished")
    first = peer_of(e, context, block, constant(I32, 0))
    left = e.bump(first, BLOCK, "cluster_running", -1)
    was_last = e.icmp_unsigned("==", left, constant(I32, 0))
    with e.if_then(was_last):
        e.bump(context, CONTEXT, "clusters_running", -1)
    return was_last


@helper("can_cluster_run", I32, POINTER, POINTER)
def can_cluster_run(e: Emit, context: Value, block: Value) -> None:
    """Return 1 if some warp in the cluster of a block can run, else 0."""
    with e.count(e.get(context, CONTEXT, "cluster_blocks")) as rank:
        peer = peer_of(e, context, block, rank)
        is_resident = e.icmp_unsigned("!=", e.get(peer, BLOCK, "running"), constant(I32, 0))
        with e.if_then(is_resident), e.count(e.get(context, CONTEXT, "warps")) as number:
            status = e.get(warp_at(e, context, peer, number), WARP, "status")
            with e.if_then(e.icmp_unsigned("==", status, constant(I32, RUN))):
                e.ret(constant(I32, 1))
    e.ret(constant(I32, 0))


def _next_order(e: Emit, context: Value) -> Value:
    """Return a pointer to the numbers of a block's warps in the order of their turns this time."""
    number = e.and_(e.bump(context, CONTEXT, "sweeps"), e.get(context, CONTEXT, "order_mask"))
    row = e.mul(number, e.zext(e.get(context, CONTEXT, "warps"), I64))
    return e.element(e.get_pointer(context, CONTEXT, "orders"), row, I32)


@helper("sweep", I32, POINTER, POINTER, POINTER)
def sweep(e: Emit, context: Value, block: Value, step: Value) -> None:
    """Let each warp of a block that can run take one step. Return RUN if the block should be swept again, YIELD if it is another block's
    turn, BLOCKED if it waits for others of its cluster, DONE if the block has ended, FAILED after a fault."""
    ran, yielded = e.variable(constant(I1, 0)), e.variable(constant(I1, 0))
    order = _next_order(e, context)
    with e.count(e.get(context, CONTEXT, "warps")) as turn:
        warp = warp_at(e, context, block, e.load(e.element(order, turn, I32), typ=I32))
        with e.if_then(e.icmp_unsigned("==", e.get(warp, WARP, "status"), constant(I32, RUN))):
            ran.set(constant(I1, 1))
            status = e.call_through(step, STEP, [warp])
            is_yield = e.icmp_unsigned("==", status, constant(I32, YIELD))
            e.put(e.select(is_yield, constant(I32, RUN), status), warp, WARP, "status")
            with e.if_then(is_yield):
                yielded.set(constant(I1, 1))
            with e.if_then(e.icmp_unsigned("==", status, constant(I32, DONE))):
                e.bump(block, BLOCK, "running", -1)
            with e.if_then(e.icmp_unsigned("==", status, constant(I32, FAILED)), likely=False):
                e.ret(constant(I32, FAILED))
    with e.if_then(e.icmp_unsigned("==", e.get(block, BLOCK, "running"), constant(I32, 0))):
        e.ret(constant(I32, DONE))
    with e.if_then(e.not_(ran.get()), likely=False):
        with e.if_then(e.icmp_unsigned("!=", invoke(e, can_cluster_run, context, block), constant(I32, 0))):
            e.ret(constant(I32, BLOCKED))
        first = warp_at(e, context, block, constant(I32, 0))
        zero = constant(I32, 0)
        invoke(e, fault, first, constant(I32, DEADLOCK), zero, zero, constant(I64, 0), zero, zero)
        e.ret(constant(I32, FAILED))
    e.ret(e.select(yielded.get(), constant(I32, YIELD), constant(I32, RUN)))


@helper("run", I32, POINTER, POINTER)
def run(e: Emit, context: Value, step: Value) -> None:
    """Run a worker's part of the launch. Return FINISHED at its end, BROKEN after a fault, or PAUSED so that Python can handle signals and
    let other threads run; call again after PAUSED."""
    e.put(256, context, CONTEXT, "until_pause")
    with e.while_(lambda: e.icmp_signed(">", e.get(context, CONTEXT, "until_pause"), constant(I64, 0))):
        with e.if_then(e.icmp_unsigned("==", e.get(context, CONTEXT, "turn"), constant(I64, 0))):
            invoke(e, next_round, context)
        block = e.get_pointer(context, CONTEXT, "turn")
        idle = e.icmp_unsigned("==", e.get(block, BLOCK, "running"), constant(I32, 0))
        with e.if_else(idle) as (idle_slot, busy_slot):
            with idle_slot:
                _use_slot(e, context, block)
            with busy_slot:
                _run_block(e, context, block, step)
    e.ret(constant(I32, PAUSED))


def _use_slot(e: Emit, context: Value, block: Value) -> None:
    """Start the next cluster in idle slots, of which `block` is the first, unless resident blocks wait and have priority, or none is left.
    Return from the helper if all blocks have ended."""
    is_first = e.icmp_unsigned("==", e.get(block, BLOCK, "rank"), constant(I32, 0))
    are_idle = e.icmp_unsigned("==", e.get(block, BLOCK, "cluster_running"), constant(I32, 0))
    nothing_waits = e.icmp_unsigned("==", e.get(context, CONTEXT, "finished"), e.get(context, CONTEXT, "started"))
    may_start = e.icmp_unsigned("!=", e.get(context, CONTEXT, "may_start"), constant(I64, 0))
    with e.if_else(e.and_(e.and_(is_first, are_idle), e.or_(nothing_waits, may_start))) as (free, busy):
        with free:
            e.put(0, context, CONTEXT, "may_start")
            number = claim_cluster(e, context)
            more = e.icmp_unsigned("<", number, e.get(context, CONTEXT, "blocks"))
            with e.if_else(more) as (start, skip):
                with start:
                    invoke(e, start_cluster, context, block, number)
                    note_progress(e, context)
                with skip:
                    with e.if_then(nothing_waits):
                        _stop_working(e, context)
                        e.ret(constant(I32, FINISHED))
                    _end_turn(e, context, block)
        with busy:
            _end_turn(e, context, block)


def _stop_working(e: Emit, context: Value) -> None:
    """Mark this worker as ended, so that no other waits for it."""
    store_whole(e, constant(I64, 0), e.place(context, CONTEXT, "working")[0])


def _end_turn(e: Emit, context: Value, block: Value) -> None:
    e.put(e.get(block, BLOCK, "next"), context, CONTEXT, "turn")


def _run_block(e: Emit, context: Value, block: Value, step: Value) -> None:
    """Run one turn of a block: until it ends or can only wait."""
    again = e.append_basic_block("again")
    after = e.append_basic_block("turn_over")
    e.branch(again)
    e.position_at_end(again)
    outcome = invoke(e, sweep, context, block, step)
    with e.if_then(e.icmp_unsigned("==", outcome, constant(I32, FAILED)), likely=False):
        e.ret(constant(I32, BROKEN))
    with e.if_then(e.icmp_unsigned("==", outcome, constant(I32, DONE))):
        end_block(e, context, block)
        e.bump(context, CONTEXT, "until_pause", -1)
        e.branch(after)
    with e.if_then(e.icmp_unsigned("==", outcome, constant(I32, BLOCKED)), likely=False):
        _end_turn(e, context, block)
        e.bump(context, CONTEXT, "until_pause", -1)
        e.branch(after)
    with e.if_then(e.icmp_unsigned("==", outcome, constant(I32, YIELD))):
        e.put(1, context, CONTEXT, "yielded")
        _end_turn(e, context, block)
        e.bump(context, CONTEXT, "until_pause", -16)
        spent = e.icmp_signed("<", e.bump(context, CONTEXT, "patience_left", -1), constant(I64, 0))
        with e.if_then(spent, likely=False), e.if_then(e.icmp_unsigned("!=", invoke(e, is_endless, context), constant(I32, 0))):
            zero = constant(I32, 0)
            first = warp_at(e, context, block, zero)
            invoke(e, fault, first, constant(I32, ENDLESS), zero, zero, constant(I64, 0), zero, zero)
            e.ret(constant(I32, BROKEN))
        e.branch(after)
    e.branch(again)
    e.position_at_end(after)


@helper("next_round", VOID, POINTER)
def next_round(e: Emit, context: Value) -> None:
    """Begin the next round of turns over the worker's blocks. If some of them only waited, let one more become resident.

    With other workers, this happens only if nothing happened in this round, because one of them may be about to do what this one waits for;
    and every 16 rounds, because blocks may pass barriers while they wait. `idle_spins` counts the rounds without progress.
    """
    e.put(e.get(context, CONTEXT, "first"), context, CONTEXT, "turn")
    waiting = e.icmp_unsigned("!=", e.get(context, CONTEXT, "yielded"), constant(I32, 0))
    e.put(0, context, CONTEXT, "yielded")
    progress = e.get(context, CONTEXT, "progress")
    is_idle = e.and_(waiting, e.icmp_unsigned("==", progress, e.get(context, CONTEXT, "noticed")))
    e.put(progress, context, CONTEXT, "noticed")
    rounds = e.add(e.get(context, CONTEXT, "idle_spins"), constant(I64, 1))
    e.put(e.select(is_idle, rounds, constant(I64, 0)), context, CONTEXT, "idle_spins")
    alone = e.icmp_unsigned("==", e.get(context, CONTEXT, "parallel"), constant(I32, 0))
    now_and_then = e.icmp_unsigned("==", e.and_(e.bump(context, CONTEXT, "rounds"), constant(I64, 15)), constant(I64, 0))
    one_more = e.and_(waiting, e.or_(e.or_(alone, is_idle), now_and_then))
    e.put(e.zext(one_more, I64), context, CONTEXT, "may_start")
    count = e.get(context, CONTEXT, "cluster_blocks")
    running = e.mul(e.get(context, CONTEXT, "clusters_running"), e.zext(count, I64))
    is_full = e.icmp_unsigned("==", running, e.get(context, CONTEXT, "owned"))
    with e.if_then(e.and_(e.and_(one_more, is_full), e.and_(are_blocks_left(e, context), are_slots_left(e, context)))):
        index = claim_slots(e, context)
        with e.if_then(e.icmp_unsigned("<", index, e.get(context, CONTEXT, "slot_count"))), e.count(count) as rank:
            invoke(e, prepare_slot, context, slot_at(e, context, e.add(index, rank)))
