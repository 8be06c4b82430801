"""Track the happens-before order: turns of warps, barriers, fences, flags."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.check.notes import SPREAD, note
from memlane.emulate.check.records import (
    BLOCK_STATE,
    EXITED_BARRIER,
    HASH_ENTRIES,
    KEPT_STAMPS,
    LAUNCH,
    MOST_WARPS,
    SPLIT_BARRIER,
    STAMP_SHIFT,
    STATE_BYTES,
    UNWRITTEN_BITS,
    WARP_STATE,
)
from memlane.emulate.check.stamps import CheckedWarp, advance, now, owner_address, warp_id, warp_state
from memlane.emulate.code.build import I1, I32, I64, POINTER, VOID, Emit, Value, constant, lane_numbers, vector
from memlane.emulate.layout import BLOCK, CLUSTER_BARRIER, CONTEXT, WARP, offset
from memlane.emulate.runtime.helper import helper, invoke
from memlane.emulate.runtime.schedule import warp_at
from memlane.emulate.runtime.window import peer_of

_NEVER = 0xFFFF_FFFF
CTA, DEVICE = 1, 2
"""Scope of a fence."""


def _load_clock(e: Emit, own: Value) -> Value:
    return e.load_lanes(e.at(own, offset(WARP_STATE, "known")), I32)


def _store_clock(e: Emit, own: Value, known: Value) -> None:
    e.store_lanes(known, e.at(own, offset(WARP_STATE, "known")))
    past = e.add(e.zext(e.reduce("umin", known), I64), constant(I64, 1))
    e.put(e.shl(past, constant(I64, STAMP_SHIFT)), own, WARP_STATE, "limit")


def _is_number(e: Emit, number: Value) -> Value:
    """Return a <32 x i1> that is true only in lane `number`."""
    return e.icmp_unsigned("==", lane_numbers(I32), e.splat(number))


def _join(e: Emit, one: Value, other: Value) -> Value:
    return e.intrinsic("umax", [one, other])


# -- turns and blocks ------------------------------------------------------------------------------------------------------------


@helper("check_begin_turn", VOID, POINTER)
def begin_turn(e: Emit, warp: Value) -> None:
    """Start a warp's turn: stamps belong to it from here on."""
    block = e.get_pointer(warp, WARP, "block")
    context = e.get_pointer(block, BLOCK, "context")
    launch = e.get_pointer(context, CONTEXT, "check")
    e.put(warp_id(e, block, e.get(warp, WARP, "number")), launch, LAUNCH, "running")
    invoke(e, ensure_block_state, block)
    stamp = advance(e, launch)
    own = warp_state(e, e.get_pointer(block, BLOCK, "check"), e.get(warp, WARP, "number"))
    e.put(e.shl(stamp, constant(I64, STAMP_SHIFT)), own, WARP_STATE, "since")


@helper("check_attend", VOID, POINTER)
def ensure_block_state(e: Emit, block: Value) -> None:
    """Make sure that a block has its checker state, created by its first turn or by another block of its cluster."""
    context = e.get_pointer(block, BLOCK, "context")
    launch = e.get_pointer(context, CONTEXT, "check")
    with e.if_then(e.icmp_unsigned("==", e.get(block, BLOCK, "check"), constant(I64, 0)), likely=False):
        distance = e.sub(e.ptrtoint(block, I64), e.get(context, CONTEXT, "slots"))
        slot = e.udiv(distance, e.get(context, CONTEXT, "slot_bytes"))
        place = e.add(e.get(launch, LAUNCH, "blocks"), e.mul(slot, e.get(launch, LAUNCH, "block_bytes")))
        e.put(place, block, BLOCK, "check")
    state = e.get_pointer(block, BLOCK, "check")
    number = e.add(e.get(block, BLOCK, "number"), constant(I64, 1))
    with e.if_then(e.icmp_unsigned("!=", e.get(state, BLOCK_STATE, "number"), number), likely=False):
        e.put(number, state, BLOCK_STATE, "number")
        invoke(e, begin_block, context, block)


@helper("check_begin_block", VOID, POINTER, POINTER)
def begin_block(e: Emit, context: Value, block: Value) -> None:
    """Initialise a block's state: nothing in its shared and local memory is written, and its warps know only of the past."""
    launch, state = e.get_pointer(context, CONTEXT, "check"), e.get_pointer(block, BLOCK, "check")
    start = offset(BLOCK_STATE, "covered")
    e.fill(e.at(state, start), 0, constant(I64, STATE_BYTES - start))
    stamp = e.trunc(advance(e, launch), I32)
    count = e.get(context, CONTEXT, "warps")
    exists = e.icmp_unsigned("<", lane_numbers(I32), e.splat(count))
    known = e.select(exists, e.splat(stamp), constant(vector(I32), _NEVER))
    with e.count(count) as number:
        own = warp_state(e, state, number)
        _store_clock(e, own, known)
        e.put(e.get(warp_at(e, context, block, number), WARP, "live"), own, WARP_STATE, "members")
    cells = e.at(state, e.get(launch, LAUNCH, "cells_offset"))
    nbytes = e.get(launch, LAUNCH, "cells_bytes")
    e.fill(cells, 0, nbytes)
    words = e.udiv(nbytes, constant(I64, 3 * 8))
    with e.count(e.lshr(words, constant(I64, 5))) as group:  # cells come in multiples of 32
        pointer = e.at(cells, e.mul(group, constant(I64, 8 * LANES)))
        e.store_lanes(constant(vector(I64), UNWRITTEN_BITS), pointer)
    e.fill(e.at(state, e.get(launch, LAUNCH, "local_offset")), UNWRITTEN_BITS, e.get(launch, LAUNCH, "local_bytes"))


# -- barriers --------------------------------------------------------------------------------------------------------------------


def _barrier_clock(e: Emit, state: Value, barrier: Value) -> Value:
    """Return the address of a barrier's clock: the join of the clocks of all warps that arrived."""
    return e.at(e.at(state, offset(BLOCK_STATE, "joined")), e.mul(e.zext(barrier, I64), constant(I64, 4 * MOST_WARPS)))


@helper("check_arrive", VOID, POINTER, I32, I32)
def arrive(e: Emit, warp: Value, barrier: Value, loose: Value) -> None:
    """Merge a warp's clock, with its own accesses, into a barrier's clock."""
    actor = CheckedWarp(e, warp)
    barrier = e.and_(barrier, constant(I32, 15))
    e.put(e.or_(loose, e.get(actor.state, BLOCK_STATE, "loose", barrier)), actor.state, BLOCK_STATE, "loose", barrier)
    place = _barrier_clock(e, actor.state, barrier)
    mine = e.select(_is_number(e, actor.number), e.splat(e.trunc(now(e, actor.launch), I32)), _load_clock(e, actor.own))
    # Warps that do not exist have the stamp _NEVER; it is not passed on at barriers.
    mine = e.select(e.icmp_unsigned("==", mine, constant(vector(I32), _NEVER)), constant(vector(I32), 0), mine)
    e.store_lanes(_join(e, mine, e.load_lanes(place, I32)), place)
    flags = _join(e, e.get(actor.own, WARP_STATE, "acquired"), e.get(actor.own, WARP_STATE, "pending"))
    before = e.get(actor.state, BLOCK_STATE, "joined_acquired", barrier)
    e.put(_join(e, flags, before), actor.state, BLOCK_STATE, "joined_acquired", barrier)
    advance(e, actor.launch)


@helper("check_opened", VOID, POINTER, I32)
def barrier_opened(e: Emit, block: Value, barrier: Value) -> None:
    """Merge a barrier's clock into the waiting warps' clocks, just before the barrier opens."""
    with e.if_then(e.icmp_unsigned("==", barrier, constant(I32, CLUSTER_BARRIER)), likely=False):
        invoke(e, cluster_opened, block)
        e.ret_void()
    context, state = e.get_pointer(block, BLOCK, "context"), e.get_pointer(block, BLOCK, "check")
    launch = e.get_pointer(context, CONTEXT, "check")
    with e.if_then(e.icmp_unsigned("==", e.get(block, BLOCK, "expected", barrier), constant(I32, 0))):
        invoke(e, inspect_barrier, block, barrier)
    place = _barrier_clock(e, state, barrier)
    joined = e.variable(e.load_lanes(place, I32))
    with e.count(e.get(context, CONTEXT, "warps")) as number:  # exited warps make no more accesses, so they are ordered
        gone = e.icmp_unsigned("==", e.get(warp_at(e, context, block, number), WARP, "live"), constant(I32, 0))
        with e.if_then(gone, likely=False):
            joined.set(e.select(_is_number(e, number), e.splat(e.trunc(now(e, launch), I32)), joined.get()))
    acquired = e.get(state, BLOCK_STATE, "joined_acquired", barrier)
    with e.count(e.get(context, CONTEXT, "warps")) as number:
        waits = e.get(warp_at(e, context, block, number), WARP, "at_barrier", barrier)
        with e.if_then(e.icmp_unsigned("!=", waits, constant(I32, 0))):
            own = warp_state(e, state, number)
            _store_clock(e, own, _join(e, _load_clock(e, own), joined.get()))
            e.put(_join(e, acquired, e.get(own, WARP_STATE, "acquired")), own, WARP_STATE, "acquired")
    e.store_lanes(constant(vector(I32), 0), place)
    for field in ("joined_acquired", "loose"):
        e.put(0, state, BLOCK_STATE, field, barrier)
    advance(e, launch)


@helper("check_inspect_barrier", VOID, POINTER, I32)
def inspect_barrier(e: Emit, block: Value, barrier: Value) -> None:
    """Report a block barrier that threads have missed by exiting, or reached at different instructions."""
    context, state = e.get_pointer(block, BLOCK, "context"), e.get_pointer(block, BLOCK, "check")
    zero, none = constant(I32, 0), constant(I64, 0)
    site, lane, warp = e.variable(zero), e.variable(constant(I32, LANES)), e.variable(e.ptrtoint(block, I64))
    with e.count(e.get(context, CONTEXT, "warps")) as number:
        here = warp_at(e, context, block, number)
        waits = e.get(here, WARP, "at_barrier", barrier)
        stops = e.at(here, offset(WARP, "stopped_at"))
        first = e.icmp_unsigned("==", lane.get(), constant(I32, LANES))
        with e.if_then(e.and_(first, e.icmp_unsigned("!=", waits, zero))):
            lane.set(e.lowest_bit(waits))
            site.set(e.load(e.element(stops, lane.get(), I32), typ=I32))
            warp.set(e.ptrtoint(here, I64))
    loose = e.icmp_unsigned("!=", e.get(state, BLOCK_STATE, "loose", barrier), zero)
    someone = e.inttoptr(warp.get(), POINTER)
    with e.if_then(e.icmp_unsigned("!=", lane.get(), constant(I32, LANES))), e.count(e.get(context, CONTEXT, "warps")) as number:
        here = warp_at(e, context, block, number)
        stops = e.load_lanes(e.at(here, offset(WARP, "stopped_at")), I32)
        waits = e.get(here, WARP, "at_barrier", barrier)
        elsewhere = e.and_(waits, e.mask_of(e.icmp_unsigned("!=", stops, e.splat(site.get()))))
        elsewhere = e.select(loose, zero, elsewhere)
        members = e.get(warp_state(e, state, number), WARP_STATE, "members")
        exited = e.and_(members, e.not_(e.get(here, WARP, "live")))
        for kind, lanes in ((SPLIT_BARRIER, elsewhere), (EXITED_BARRIER, exited)):
            with e.if_then(e.icmp_unsigned("!=", lanes, zero), likely=False):
                other = e.lowest_bit(lanes)
                place = e.at(here, offset(WARP, "stopped_at"))
                other_site = e.load(e.element(place, other, I32), typ=I32)
                other_who = warp_id(e, block, number)
                invoke(e, note, someone, constant(I32, kind), site.get(), lane.get(), none, zero, zero, other_site, other_who, other)


@helper("check_warp_barrier", VOID, POINTER)
def warp_barrier(e: Emit, warp: Value) -> None:
    """Order the lanes of a warp after all of them arrived at a warp barrier."""
    actor = CheckedWarp(e, warp)
    present = e.trunc(now(e, actor.launch), I32)
    _store_clock(e, actor.own, e.select(_is_number(e, actor.number), e.splat(present), _load_clock(e, actor.own)))
    _acquire(e, actor)
    advance(e, actor.launch)


# -- fences and flags ------------------------------------------------------------------------------------------------------------


def _acquire(e: Emit, actor: CheckedWarp) -> None:
    seen = _join(e, e.get(actor.own, WARP_STATE, "acquired"), e.get(actor.own, WARP_STATE, "pending"))
    e.put(seen, actor.own, WARP_STATE, "acquired")


@helper("check_acquire", VOID, POINTER)
def acquire(e: Emit, warp: Value) -> None:
    """Order accesses released through flags that the warp read before its later accesses."""
    _acquire(e, CheckedWarp(e, warp))


def _hash(e: Emit, key: Value) -> Value:
    """Return the index of a key in a table of `HASH_ENTRIES` entries."""
    bits = HASH_ENTRIES.bit_length() - 1
    return e.lshr(e.mul(key, constant(I64, SPREAD)), constant(I64, 64 - bits))


def _release_clock(e: Emit, launch: Value, person: Value) -> Value:
    return e.element(e.get_pointer(launch, LAUNCH, "covered"), _hash(e, e.add(person, constant(I64, 1))), I32)


@helper("check_fence", VOID, POINTER, I32)
def fence(e: Emit, warp: Value, reach: Value) -> None:
    """Execute a fence: the warp's accesses, and those it knows of in its block, may be released; flags that it read are acquired."""
    actor = CheckedWarp(e, warp)
    _release(e, actor, reach)
    _acquire(e, actor)
    e.put(1, actor.own, WARP_STATE, "fenced")
    advance(e, actor.launch)


def _release(e: Emit, actor: CheckedWarp, reach: Value) -> None:
    """Order the warp's accesses, and those it knows of in its block, before its later releases."""
    present = e.trunc(now(e, actor.launch), I32)
    known = _load_clock(e, actor.own)
    known = e.select(e.icmp_unsigned("==", known, constant(vector(I32), _NEVER)), constant(vector(I32), 0), known)
    known = e.select(_is_number(e, actor.number), e.splat(present), known)
    place = e.at(actor.state, offset(BLOCK_STATE, "covered"))
    e.store_lanes(_join(e, known, e.load_lanes(place, I32)), place)
    with e.if_then(e.icmp_unsigned("==", reach, constant(I32, DEVICE))):
        first = warp_id(e, actor.block, constant(I32, 0))
        row = e.local(known.type, align=128)
        e.store(known, row)
        with e.count(e.get(actor.context, CONTEXT, "warps")) as number:
            entry = _release_clock(e, actor.launch, e.add(first, e.zext(number, I64)))
            e.store(_join(e, e.load(entry, typ=I32), e.load(e.element(row, number, I32), typ=I32)), entry)


def _flag(e: Emit, actor: CheckedWarp, address: Value, home: Value | None) -> Value:
    word = e.lshr(address, constant(I64, 2))
    if home is not None:  # flags in shared memory belong to one block
        word = e.sub(word, e.shl(e.add(e.get(home, BLOCK, "number"), constant(I64, 1)), constant(I64, 20)))
    return e.element(e.get_pointer(actor.launch, LAUNCH, "flags"), _hash(e, word), I32)


def read_flags(e: Emit, actor: CheckedWarp, addresses: Value, distance: Value, lanes: Value, home: Value | None) -> None:
    """Record strong reads: accesses released at these addresses are acquired by the next fence or barrier.

    `home`: the block whose shared memory holds the addresses; None for global memory.
    """
    with (
        e.if_then(e.icmp_unsigned("!=", e.get(actor.launch, LAUNCH, "released"), constant(I64, 0)), likely=False),
        e.each_lane(lanes) as lane,
    ):
        address = e.add(e.load(e.element(addresses, lane, I64), typ=I64), distance)
        seen = e.load(_flag(e, actor, address, home), typ=I32)
        e.put(_join(e, seen, e.get(actor.own, WARP_STATE, "pending")), actor.own, WARP_STATE, "pending")


def write_flags(e: Emit, actor: CheckedWarp, addresses: Value, distance: Value, lanes: Value, home: Value | None) -> None:
    """Record strong writes: after a fence they release the warp's accesses."""
    with e.if_then(e.icmp_unsigned("!=", e.get(actor.own, WARP_STATE, "fenced"), constant(I32, 0)), likely=False):
        e.bump(actor.launch, LAUNCH, "released")
        present = e.trunc(now(e, actor.launch), I32)
        with e.each_lane(lanes) as lane:
            address = e.add(e.load(e.element(addresses, lane, I64), typ=I64), distance)
            e.store(present, _flag(e, actor, address, home))
        advance(e, actor.launch)  # the warp's later accesses are not released by this flag


# -- the barrier of a cluster ----------------------------------------------------------------------------------------------------


def _first_state(e: Emit, block: Value) -> Value:
    """Return the state of a cluster's first block, which holds the fields of the cluster barrier."""
    first = peer_of(e, e.get_pointer(block, BLOCK, "context"), block, constant(I32, 0))
    invoke(e, ensure_block_state, first)
    return e.get_pointer(first, BLOCK, "check")


@helper("check_cluster_arrival", VOID, POINTER, I32)
def cluster_arrival(e: Emit, warp: Value, releases: Value) -> None:
    """Record a warp's arrival at its cluster barrier, which covers its accesses if the arrival releases."""
    actor = CheckedWarp(e, warp)
    state = _first_state(e, actor.block)
    earlier = e.get(state, BLOCK_STATE, "cluster_first")
    e.put(e.select(e.icmp_unsigned("==", earlier, constant(I64, 0)), now(e, actor.launch), earlier), state, BLOCK_STATE, "cluster_first")
    with e.if_else(e.icmp_unsigned("!=", releases, constant(I32, 0))) as (release, relax):
        with release:
            _release(e, actor, constant(I32, DEVICE))
        with relax:
            e.put(1, state, BLOCK_STATE, "cluster_loose")
    advance(e, actor.launch)


@helper("check_cluster_opened", VOID, POINTER)
def cluster_opened(e: Emit, first: Value) -> None:
    """Merge the arrivals' clocks into the waiting warps, just before the cluster barrier opens; other warps follow when they wait."""
    context, state = e.get_pointer(first, BLOCK, "context"), _first_state(e, first)
    launch = e.get_pointer(context, CONTEXT, "check")
    loose = e.icmp_unsigned("!=", e.get(state, BLOCK_STATE, "cluster_loose"), constant(I32, 0))
    since = e.select(loose, constant(I64, 0), e.get(state, BLOCK_STATE, "cluster_first"))
    values = (("cluster_since", since), ("cluster_opened", now(e, launch)), ("cluster_first", constant(I64, 0)))
    for field, value in (*values, ("cluster_loose", constant(I32, 0))):
        e.put(value, state, BLOCK_STATE, field)
    with e.count(e.get(context, CONTEXT, "cluster_blocks")) as rank:
        block = peer_of(e, context, first, rank)
        with e.count(e.get(context, CONTEXT, "warps")) as number:
            warp = warp_at(e, context, block, number)
            with e.if_then(e.icmp_unsigned("!=", e.get(warp, WARP, "at_cluster"), constant(I32, 0))):
                invoke(e, cluster_passed, warp)
    advance(e, launch)


@helper("check_cluster_passed", VOID, POINTER)
def cluster_passed(e: Emit, warp: Value) -> None:
    """Merge the cluster barrier's clock into a warp that passes it."""
    actor = CheckedWarp(e, warp)
    state = _first_state(e, actor.block)
    opened_at = e.trunc(e.get(state, BLOCK_STATE, "cluster_opened"), I32)
    e.put(_join(e, opened_at, e.get(actor.own, WARP_STATE, "acquired")), actor.own, WARP_STATE, "acquired")
    since = e.get(state, BLOCK_STATE, "cluster_since")
    with e.if_then(e.icmp_unsigned("!=", since, constant(I64, 0))):
        # Every access of the cluster before the first arrival belongs to a warp that has arrived since.
        _store_clock(e, actor.own, _join(e, _load_clock(e, actor.own), e.splat(e.trunc(e.sub(since, constant(I64, 1)), I32))))
        e.put(e.shl(since, constant(I64, STAMP_SHIFT)), actor.own, WARP_STATE, "cluster_limit")


# -- order -----------------------------------------------------------------------------------------------------------------------


@helper("check_ordered", I1, POINTER, I32, I64, I32)
def happens_before(e: Emit, warp: Value, lane: Value, stamp: Value, other_lane: Value) -> None:
    """Return whether an access by `other_lane` of the warp that owns `stamp` happens before the present access of `lane`."""
    actor = CheckedWarp(e, warp)
    launch, own = actor.launch, actor.own
    past = e.icmp_unsigned("<", stamp, e.get(launch, LAUNCH, "base"))
    forgotten = e.icmp_unsigned("<=", e.add(stamp, constant(I64, KEPT_STAMPS)), now(e, launch))
    with e.if_then(e.or_(past, forgotten)):
        e.ret(constant(I1, 1))
    other = e.load(owner_address(e, launch, stamp), typ=I64)
    when = e.trunc(stamp, I32)
    acquired = e.get(own, WARP_STATE, "acquired")
    other_block = e.udiv(other, constant(I64, MOST_WARPS))
    with e.if_then(e.icmp_unsigned("!=", other_block, e.get(actor.block, BLOCK, "number"))):
        covered = e.load(_release_clock(e, launch, other), typ=I32)
        e.ret(e.icmp_unsigned("<=", when, e.intrinsic("umin", [acquired, covered])))
    number = e.trunc(e.urem(other, constant(I64, MOST_WARPS)), I32)
    same = e.and_(e.icmp_unsigned("==", number, actor.number), e.icmp_unsigned("==", lane, other_lane))
    known = e.get(own, WARP_STATE, "known", number)
    covered = e.get(actor.state, BLOCK_STATE, "covered", number)
    by_barrier = e.icmp_unsigned("<=", when, known)
    by_flag = e.icmp_unsigned("<=", when, e.intrinsic("umin", [acquired, covered]))
    e.ret(e.or_(same, e.or_(by_barrier, by_flag)))
