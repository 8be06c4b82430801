"""Loads and stores of a warp.

Addresses are passed as a pointer to 32 i64 and an offset that is added to each; data as a pointer to `count` times 32 elements, component
by component. Two access patterns are fastest, for each half of the warp: all lanes at one address, and consecutive addresses (lane i at
`first + i * size`). They include whole coalesced warps, and tiles with rows of 16 threads. Other lanes that are all inside the window are
gathered or scattered with one instruction, where the processor can. The rest goes lane by lane, for example the first access to another
allocation.

Other workers may access the same global memory. No element is torn: each is moved whole, in a vector too, because it is aligned.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.atomic import load_whole, store_whole
from memlane.emulate.code.build import I32, I64, INTEGERS, POINTER, VOID, Emit, Value, constant, vector
from memlane.emulate.code.jit import can_gather
from memlane.emulate.code.sorting import permute
from memlane.emulate.layout import FULL
from memlane.emulate.runtime.helper import Helper
from memlane.emulate.runtime.window import Window, address_of_lane

_SEVERAL_WORKERS = ("global", "generic")
"""State spaces that another worker may write at the same time."""

HALF = LANES // 2
_GATHERED_BITS = 32
"""Least bits of an element that a processor can gather."""

_ARGUMENTS = (POINTER, POINTER, I64, I32, I32, POINTER)
"""Arguments: warp, addresses, offset, lanes, site, data."""


@cache
def load(space: str, bits: int, count: int) -> Helper:
    """Return the helper for `ld{.space}{.vec}`: loads `count` elements of `bits` for each lane."""

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, mask: Value, site: Value, out: Value) -> None:
        element, nbytes = INTEGERS[bits], bits // 8 * count
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first_lane = e.lowest_bit(mask)
        first = address_of_lane(e, addresses, distance, first_lane)
        window = Window(e, warp, space, site, first, nbytes)
        if space != "local":
            with e.if_then(e.icmp_unsigned("==", mask, constant(I32, FULL))):
                _load_fast_pattern(e, window, space, addresses, distance, element, count, out)
        if can_gather() and bits >= _GATHERED_BITS:
            _gather_if_inside(e, window, addresses, distance, mask, element, count, out)
        with e.each_lane(mask) as lane, window.lane(lane, address_of_lane(e, addresses, distance, lane)) as pointer:
            for part in range(count):
                value = _load_element(e, space, e.at(pointer, part * bits // 8), element)
                e.store(value, e.element(e.at(out, part * LANES * bits // 8), lane, element))

    return Helper(f"memlane_load_{space}_{bits}x{count}", VOID, _ARGUMENTS, build)


def _load_element(e: Emit, space: str, pointer: Value, element: ir.Type) -> Value:
    return load_whole(e, pointer, element) if space in _SEVERAL_WORKERS else e.load(pointer, typ=element)


def _store_element(e: Emit, space: str, value: Value, pointer: Value) -> None:
    if space in _SEVERAL_WORKERS:
        store_whole(e, value, pointer)
    else:
        e.store(value, pointer)


def _offsets_in_half(e: Emit, addresses: Value) -> Value:
    """Return the addresses minus that of the first lane in the same half of the warp."""
    lanes = e.load_lanes(addresses, I64)
    return e.sub(lanes, permute(e, lanes, [lane // HALF * HALF for lane in range(LANES)]))


def _are_consecutive(e: Emit, steps: Value, nbytes: int) -> Value:
    """Return i1: whether each half accesses consecutive pieces of `nbytes`."""
    return _is_zero(e, e.xor(steps, ir.Constant(vector(I64), [lane % HALF * nbytes for lane in range(LANES)])))


def _is_zero(e: Emit, lanes: Value) -> Value:
    return e.icmp_unsigned("==", e.reduce("or", lanes), constant(I64, 0))


def _resolve_halves(e: Emit, window: Window, addresses: Value, distance: Value, records: int) -> tuple[Value, list[Value]]:
    """Return i1 whether `records` pieces from the first lane of each half are allowed, and the host pointers of both halves."""
    ways = [window.whole(address_of_lane(e, addresses, distance, constant(I32, first)), records) for first in (0, HALF)]
    return e.and_(*(allowed for allowed, _ in ways)), [pointer for _, pointer in ways]


def _load_fast_pattern(
    e: Emit, window: Window, space: str, addresses: Value, distance: Value, element: ir.Type, count: int, out: Value
) -> None:
    """Load and return from the helper if the access has one of the two fast patterns; fall through otherwise."""
    steps = _offsets_in_half(e, addresses)
    nbytes = element.width // 8 * count
    with e.if_then(_are_consecutive(e, steps, nbytes)):
        allowed, rows = _resolve_halves(e, window, addresses, distance, HALF)
        with e.if_then(allowed, likely=True):
            for half, row in enumerate(rows):
                everything = e.load(row, typ=ir.VectorType(element, HALF * count), align=1)
                for part in range(count):
                    lanes = everything if count == 1 else permute(e, everything, [lane * count + part for lane in range(HALF)])
                    e.store_lanes(lanes, e.at(out, (part * LANES + half * HALF) * element.width // 8))
            e.ret_void()
    with e.if_then(_is_zero(e, steps)):
        allowed, places = _resolve_halves(e, window, addresses, distance, 1)
        with e.if_then(allowed, likely=True):
            for half, place in enumerate(places):
                for part in range(count):
                    value = e.splat(_load_element(e, space, e.at(place, part * element.width // 8), element))
                    e.store_lanes(permute(e, value, [0] * HALF), e.at(out, (part * LANES + half * HALF) * element.width // 8))
            e.ret_void()


def _gather_if_inside(
    e: Emit, window: Window, addresses: Value, distance: Value, mask: Value, element: ir.Type, count: int, out: Value
) -> None:
    """Gather and return from the helper if all lanes are inside the window; fall through otherwise."""
    allowed, places = window.lanes(e.add(e.load_lanes(addresses, I64), e.splat(distance)), mask)
    with e.if_then(allowed, likely=True):
        for part in range(count):
            nbytes = element.width // 8
            e.store_lanes(e.gather(_pointers(e, places, part * nbytes), mask, element), e.at(out, part * LANES * nbytes))
        e.ret_void()


def _pointers(e: Emit, places: Value, distance: int) -> Value:
    return e.inttoptr(e.add(places, constant(vector(I64), distance)), vector(POINTER))


@cache
def store(space: str, bits: int, count: int) -> Helper:
    """Return the helper for `st{.space}{.vec}`. Where several lanes write to one address, the highest wins."""

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, mask: Value, site: Value, data: Value) -> None:
        element, nbytes = INTEGERS[bits], bits // 8 * count
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first = address_of_lane(e, addresses, distance, e.lowest_bit(mask))
        window = Window(e, warp, space, site, first, nbytes)
        if space != "local":
            with e.if_then(e.icmp_unsigned("==", mask, constant(I32, FULL))):
                _store_fast_pattern(e, window, addresses, distance, element, count, data)
        if can_gather() and bits >= _GATHERED_BITS:
            _scatter_if_inside(e, window, addresses, distance, mask, element, count, data)
        with e.each_lane(mask) as lane, window.lane(lane, address_of_lane(e, addresses, distance, lane)) as pointer:
            for part in range(count):
                value = e.load(e.element(e.at(data, part * LANES * bits // 8), lane, element), typ=element)
                _store_element(e, space, value, e.at(pointer, part * bits // 8))

    return Helper(f"memlane_store_{space}_{bits}x{count}", VOID, _ARGUMENTS, build)


def _store_fast_pattern(e: Emit, window: Window, addresses: Value, distance: Value, element: ir.Type, count: int, data: Value) -> None:
    nbytes = element.width // 8 * count
    with e.if_then(_are_consecutive(e, _offsets_in_half(e, addresses), nbytes)):
        allowed, rows = _resolve_halves(e, window, addresses, distance, HALF)
        with e.if_then(allowed, likely=True):
            everything = e.load(data, typ=ir.VectorType(element, LANES * count), align=1)
            for half, row in enumerate(rows):  # the upper half last: where both halves write to one address, its lanes win
                woven = [part * LANES + half * HALF + lane for lane in range(HALF) for part in range(count)]
                e.store(permute(e, everything, woven), row, align=1)
            e.ret_void()


def _scatter_if_inside(
    e: Emit, window: Window, addresses: Value, distance: Value, mask: Value, element: ir.Type, count: int, data: Value
) -> None:
    """Scatter and return from the helper if all lanes are inside the window; fall through otherwise. Lanes write in order, lowest first."""
    allowed, places = window.lanes(e.add(e.load_lanes(addresses, I64), e.splat(distance)), mask)
    with e.if_then(allowed, likely=True):
        for part in range(count):
            nbytes = element.width // 8
            e.scatter(e.load_lanes(e.at(data, part * LANES * nbytes), element), _pointers(e, places, part * nbytes), mask)
        e.ret_void()
