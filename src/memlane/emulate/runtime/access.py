"""Loads and stores of a warp.

Addresses come as a pointer to 32 i64 and a distance that is added to each; data goes through a pointer to `count` times 32 elements,
component by component. Two shapes are quick: all lanes at one address, and lane i at `first + i * size`. Others go lane by lane.

Other workers may be at the same global memory. No element is torn: alone it is moved as one, and in a vector too, because it is aligned.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.code.atomic import load_whole, store_whole
from memlane.emulate.code.build import I32, I64, INTEGERS, POINTER, VOID, Emit, Value, constant, lane_numbers, vector
from memlane.emulate.layout import FULL
from memlane.emulate.runtime.helper import Helper
from memlane.emulate.runtime.window import Window, address_of_lane

_SEVERAL_WORKERS = ("global", "generic")
"""Spaces in which another worker may write meanwhile."""

_ARGUMENTS = (POINTER, POINTER, I64, I32, I32, POINTER)
"""warp, addresses, distance, lanes, site, data"""


@cache
def load(space: str, bits: int, count: int) -> Helper:
    """`ld{.space}{.vec}`: `count` elements of `bits` for each lane."""

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, mask: Value, site: Value, out: Value) -> None:
        element, nbytes = INTEGERS[bits], bits // 8 * count
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first_lane = e.lowest_bit(mask)
        first = address_of_lane(e, addresses, distance, first_lane)
        window = Window(e, warp, space, site, first, nbytes)
        if space != "local":
            with e.if_then(e.icmp_unsigned("==", mask, constant(I32, FULL))):
                _load_at_once(e, window, space, addresses, first, element, count, out)
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


def _differences(e: Emit, addresses: Value) -> Value:
    """Addresses minus that of lane 0."""
    lanes = e.load_lanes(addresses, I64)
    return e.sub(lanes, e.splat(e.load(addresses, typ=I64)))


def _is_zero(e: Emit, lanes: Value) -> Value:
    return e.icmp_unsigned("==", e.reduce("or", lanes), constant(I64, 0))


def _load_at_once(e: Emit, window: Window, space: str, addresses: Value, first: Value, element: ir.Type, count: int, out: Value) -> None:
    """Return from the helper after a load of one of the quick shapes; fall through otherwise."""
    steps = _differences(e, addresses)
    nbytes = element.width // 8 * count
    with e.if_then(_is_zero(e, e.xor(steps, lane_numbers(I64, nbytes)))):
        allowed, pointer = window.whole(first, LANES)
        with e.if_then(allowed, likely=True):
            everything = e.load(pointer, typ=ir.VectorType(element, LANES * count), align=1)
            for part in range(count):
                chosen = ir.Constant(vector(I32), [lane * count + part for lane in range(LANES)])
                lanes = everything if count == 1 else e.shuffle_vector(everything, ir.Constant(everything.type, ir.Undefined), chosen)
                e.store_lanes(lanes, e.at(out, part * LANES * element.width // 8))
            e.ret_void()
    with e.if_then(_is_zero(e, steps)):
        allowed, pointer = window.whole(first, 1)
        with e.if_then(allowed, likely=True):
            for part in range(count):
                value = _load_element(e, space, e.at(pointer, part * element.width // 8), element)
                e.store_lanes(e.splat(value), e.at(out, part * LANES * element.width // 8))
            e.ret_void()


@cache
def store(space: str, bits: int, count: int) -> Helper:
    """`st{.space}{.vec}`. Where several lanes write to one address, the highest wins."""

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, mask: Value, site: Value, data: Value) -> None:
        element, nbytes = INTEGERS[bits], bits // 8 * count
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first = address_of_lane(e, addresses, distance, e.lowest_bit(mask))
        window = Window(e, warp, space, site, first, nbytes)
        if space != "local":
            with e.if_then(e.icmp_unsigned("==", mask, constant(I32, FULL))):
                _store_at_once(e, window, addresses, first, element, count, data)
        with e.each_lane(mask) as lane, window.lane(lane, address_of_lane(e, addresses, distance, lane)) as pointer:
            for part in range(count):
                value = e.load(e.element(e.at(data, part * LANES * bits // 8), lane, element), typ=element)
                _store_element(e, space, value, e.at(pointer, part * bits // 8))

    return Helper(f"memlane_store_{space}_{bits}x{count}", VOID, _ARGUMENTS, build)


def _store_at_once(e: Emit, window: Window, addresses: Value, first: Value, element: ir.Type, count: int, data: Value) -> None:
    nbytes = element.width // 8 * count
    with e.if_then(_is_zero(e, e.xor(_differences(e, addresses), lane_numbers(I64, nbytes)))):
        allowed, pointer = window.whole(first, LANES)
        with e.if_then(allowed, likely=True):
            everything = e.load(data, typ=ir.VectorType(element, LANES * count), align=1)
            if count > 1:
                woven = [part * LANES + lane for lane in range(LANES) for part in range(count)]
                indices = ir.Constant(ir.VectorType(I32, LANES * count), woven)
                everything = e.shuffle_vector(everything, ir.Constant(everything.type, ir.Undefined), indices)
            e.store(everything, pointer, align=1)
            e.ret_void()
