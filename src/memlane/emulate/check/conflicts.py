"""Decide whether two accesses to one word by different threads are ordered, harmless, or a data race."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from memlane.chip import LANES
from memlane.emulate.check.clocks import happens_before
from memlane.emulate.check.notes import note
from memlane.emulate.check.records import (
    DISTANCE_SHIFT,
    LANE_SHIFT,
    MOST_SITES,
    MOST_WARPS,
    OTHER_BLOCK,
    RACE_WITH_READ,
    RACE_WITH_WRITE,
    SAME_BLOCK,
    SAME_WARP,
    SITE_SHIFT,
    STAMP_SHIFT,
)
from memlane.emulate.check.stamps import CheckedWarp, now, owner_address
from memlane.emulate.code.build import I1, I8, I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.runtime.helper import Helper, invoke

_ARGUMENTS = (POINTER, I32, I32, I32, I64, I32, I32, I64, POINTER, POINTER)
"""Argument types: warp, site, kind, lane, address, bytes, space, entry of the other access, host memory of this one, data that it
stores."""


@cache
def conflict(element_bytes: int, count: int, stores: bool) -> Helper:
    """Return a helper that records a data race with the access of an entry, unless the two are ordered or both write the same value.

    `stores`: whether this access is a plain store of `count` elements, whose data the last pointer addresses. The kind is recorded together
    with the distance between the threads.
    """

    def build(
        e: Emit,
        warp: Value,
        site: Value,
        kind: Value,
        lane: Value,
        address: Value,
        nbytes: Value,
        space: Value,
        entry: Value,
        memory: Value,
        data: Value,
    ) -> None:
        actor = CheckedWarp(e, warp)
        stamp = e.lshr(entry, constant(I64, STAMP_SHIFT))
        other_site = e.trunc(e.and_(e.lshr(entry, constant(I64, SITE_SHIFT)), constant(I64, MOST_SITES - 1)), I32)
        other_lane = e.trunc(e.and_(e.lshr(entry, constant(I64, LANE_SHIFT)), constant(I64, LANES - 1)), I32)
        with e.if_then(invoke(e, happens_before, warp, lane, stamp, other_lane)):
            e.ret_void()
        if stores:
            with e.if_then(e.icmp_unsigned("==", kind, constant(I32, RACE_WITH_WRITE))):
                as_memory = _equals(e, memory, data, lane, element_bytes, count)
                with e.if_then(as_memory):
                    e.ret_void()
                # Two lanes of one store: the memory still holds what was there before both.
                as_other = _lanes_equal(e, data, lane, other_lane, element_bytes, count)
                at_once = e.and_(e.icmp_unsigned("==", other_site, site), e.icmp_unsigned("==", stamp, now(e, actor.launch)))
                with e.if_then(e.and_(at_once, as_other)):
                    e.ret_void()
        other = e.load(owner_address(e, actor.launch, stamp), typ=I64)
        kind = e.or_(kind, e.shl(_distance(e, actor, other), constant(I32, DISTANCE_SHIFT)))
        invoke(e, note, warp, kind, site, lane, address, nbytes, space, other_site, other, other_lane)

    return Helper(f"memlane_check_conflict_{element_bytes}x{count}_{stores:d}", VOID, _ARGUMENTS, build)


def _distance(e: Emit, actor: CheckedWarp, other: Value) -> Value:
    """Return how far apart the threads of two accesses are (warp, block or grid); `other` is the block and warp of the other access."""
    apart = e.select(e.icmp_unsigned("==", other, actor.warp_id(e)), constant(I32, SAME_WARP), constant(I32, SAME_BLOCK))
    most = constant(I64, MOST_WARPS)
    abroad = e.icmp_unsigned("!=", e.udiv(other, most), e.udiv(actor.warp_id(e), most))
    return e.select(abroad, constant(I32, OTHER_BLOCK), apart)


def kind_of(is_read: bool) -> int:
    """Return the kind of a race, given whether the other access was a read."""
    return RACE_WITH_READ if is_read else RACE_WITH_WRITE


def _all_bytes(e: Emit, element_bytes: int, count: int, same: Callable[[int, Value], Value]) -> Value:
    result = e.variable(constant(I1, 1))
    for part in range(count):
        with e.count(constant(I32, element_bytes)) as byte:
            result.set(e.and_(result.get(), same(part, byte)))
    return result.get()


def _byte(e: Emit, data: Value, part: int, lane: Value, byte: Value, element_bytes: int) -> Value:
    """Return one byte of an element that a lane stores; data is laid out component by component."""
    column = e.at(data, part * LANES * element_bytes)
    distance = e.add(e.mul(lane, constant(I32, element_bytes)), byte)
    return e.load(e.element(column, distance, I8), typ=I8)


def _equals(e: Emit, memory: Value, data: Value, lane: Value, element_bytes: int, count: int) -> Value:
    def same(part: int, byte: Value) -> Value:
        there = e.load(e.element(e.at(memory, part * element_bytes), byte, I8), typ=I8)
        return e.icmp_unsigned("==", there, _byte(e, data, part, lane, byte, element_bytes))

    return _all_bytes(e, element_bytes, count, same)


def _lanes_equal(e: Emit, data: Value, lane: Value, other: Value, element_bytes: int, count: int) -> Value:
    def same(part: int, byte: Value) -> Value:
        one, two = (_byte(e, data, part, which, byte, element_bytes) for which in (lane, other))
        return e.icmp_unsigned("==", one, two)

    return _all_bytes(e, element_bytes, count, same)
