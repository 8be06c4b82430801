"""Copies between global and shared memory, lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from memlane.emulate.code.build import I8, I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import BLOCK, CONTEXT, MISALIGNED, SPACE_NUMBERS, WARP
from memlane.emulate.runtime.atomics import reduce_element
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import Helper, invoke
from memlane.emulate.runtime.window import Window, address_of_lane
from memlane.ptx import SCALAR_TYPES

BULK_BYTES = 16
"""Size and alignment unit of bulk copies, in bytes."""


@cache
def copy(nbytes: int) -> Helper:
    """Return the helper for asynchronous copies, `(warp, sources, offset, targets, offset, lanes, site, counts)`: `counts` points to 32
    i32, how many of the `nbytes` each lane reads; the rest of its target becomes zero."""

    def build(
        e: Emit, warp: Value, sources: Value, ahead: Value, targets: Value, behind: Value, mask: Value, site: Value, counts: Value
    ) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first = e.lowest_bit(mask)
        source = Window(e, warp, "global", site, address_of_lane(e, sources, ahead, first), nbytes)
        piece = Window(e, warp, "global", site, address_of_lane(e, sources, ahead, first), 1)
        target = Window(e, warp, "shared", site, address_of_lane(e, targets, behind, first), nbytes)
        with e.each_lane(mask) as lane, target.lane(lane, address_of_lane(e, targets, behind, lane)) as to:
            start = address_of_lane(e, sources, ahead, lane)
            count = e.load(e.element(counts, lane, I32), typ=I32)
            with e.if_else(e.icmp_unsigned(">=", count, constant(I32, nbytes))) as (whole, part):
                with whole, source.lane(lane, start) as come:
                    for number in range(0, nbytes, 4):
                        e.store(e.load(e.at(come, number), typ=I32), e.at(to, number))
                with part:
                    for number in range(0, nbytes, 4):
                        e.store(constant(I32, 0), e.at(to, number))
                    with e.count(count) as number, piece.lane(lane, e.add(start, e.zext(number, I64))) as come:
                        e.store(e.load(come, typ=I8), e.element(to, number, I8))

    arguments = (POINTER, POINTER, I64, POINTER, I64, I32, I32, POINTER)
    return Helper(f"memlane_copy_{nbytes}", VOID, arguments, build)


@cache
def bulk_copy(source: str, target: str) -> Helper:
    """Return the helper `(warp, sources, offset, targets, offset, lanes, site, sizes)`, which copies from one state space to another;
    `sizes` points to 32 i32, bytes in multiples of 16."""

    def move(e: Emit, warp: Value, here: Value, there: Value) -> None:
        for part in (0, 8):
            e.store(e.load(e.at(here, part), typ=I64), e.at(there, part))

    return _in_pieces(f"memlane_bulk_copy_{source}_{target}", source, target, move)


@cache
def bulk_reduce(operation: str, type_name: str) -> Helper:
    """Return the helper that updates elements in global memory one by one with those in shared memory; arguments as of `bulk_copy`."""
    size = SCALAR_TYPES[type_name].nbytes

    def update(e: Emit, warp: Value, here: Value, there: Value) -> None:
        context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
        are_several = e.icmp_unsigned("!=", e.get(context, CONTEXT, "parallel"), constant(I32, 0))
        for part in range(0, BULK_BYTES, size):
            reduce_element(e, operation, type_name, e.at(there, part), e.at(here, part), are_several)

    return _in_pieces(f"memlane_bulk_reduce_{operation}_{type_name}", "shared", "global", update)


def _in_pieces(name: str, source: str, target: str, act: Callable[[Emit, Value, Value, Value], None]) -> Helper:
    """Return a helper that runs `act(e, warp, here, there)` on each piece of 16 bytes, with its host addresses."""

    def build(
        e: Emit, warp: Value, sources: Value, ahead: Value, targets: Value, behind: Value, mask: Value, site: Value, sizes: Value
    ) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first = e.lowest_bit(mask)
        come = Window(e, warp, source, site, address_of_lane(e, sources, ahead, first), BULK_BYTES)
        go = Window(e, warp, target, site, address_of_lane(e, targets, behind, first), BULK_BYTES)
        with e.each_lane(mask) as lane:
            size, start = e.load(e.element(sizes, lane, I32), typ=I32), address_of_lane(e, sources, ahead, lane)
            with e.if_then(e.icmp_unsigned("!=", e.and_(size, constant(I32, BULK_BYTES - 1)), constant(I32, 0)), likely=False):
                end = e.add(start, e.zext(size, I64))  # the misaligned end of the copy
                place = (constant(I32, BULK_BYTES), constant(I32, SPACE_NUMBERS[source]))
                invoke(e, fault, warp, constant(I32, MISALIGNED), site, lane, end, *place)
                e.ret_void()
            with e.count(e.lshr(size, constant(I32, 4))) as number:
                further = e.zext(e.shl(number, constant(I32, 4)), I64)
                end = e.add(address_of_lane(e, targets, behind, lane), further)
                with come.lane(lane, e.add(start, further)) as here, go.lane(lane, end) as there:
                    act(e, warp, here, there)

    arguments = (POINTER, POINTER, I64, POINTER, I64, I32, I32, POINTER)
    return Helper(name, VOID, arguments, build)
