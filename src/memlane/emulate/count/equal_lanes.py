"""Count the lanes of an atomic that hit the same address in generated code, by the rules of `memlane.chip.access`.

Nearby addresses are sorted, so that equal ones become neighbours; for others the loop runs once per distinct address.
"""

from __future__ import annotations

from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant, vector
from memlane.emulate.code.sorting import distinct, sort
from memlane.emulate.runtime.helper import helper, invoke

_ADDRESSES, _VECTOR = vector(I64), vector(I32)
_REACH = 1 << 30
"""Maximum distance from the first lane's address for the 32-bit path, in bytes."""


@helper("meeting", I64, POINTER, I32)
def equal_lanes(e: Emit, addresses: Value, mask: Value) -> None:
    """Return the distinct addresses of the lanes in `mask`, and the most lanes at one of them << 32; 0 without a lane."""
    with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
        e.ret(constant(I64, 0))
    first = e.load(e.element(addresses, e.lowest_bit(mask), I64), typ=I64)
    active = e.lanes_of(mask)
    distances = e.sub(e.load_lanes(addresses, I64), e.splat(e.sub(first, constant(I64, _REACH))))
    reach = e.reduce("or", e.select(active, distances, constant(_ADDRESSES, 0)))
    common = e.reduce("and", e.select(active, distances, constant(_ADDRESSES, -1)))
    with e.if_then(e.icmp_unsigned("==", common, reach)):
        e.ret(_packed(e, constant(I32, 1), e.popcount(mask)))
    with e.if_then(e.icmp_unsigned(">=", reach, constant(I64, 2 * _REACH)), likely=False):
        e.ret(invoke(e, _equal_lanes_far, addresses, mask))
    ordered = sort(e, e.select(active, e.trunc(distances, _VECTOR), constant(_VECTOR, -1)))
    there = e.mask_of(e.icmp_unsigned("!=", ordered, constant(_VECTOR, -1)))
    firsts = e.and_(distinct(e, ordered), there)
    # Longest run of equal lanes: the number of shifts after which no run is left.
    runs, most = e.variable(e.and_(there, e.not_(firsts))), e.variable(constant(I32, 1))
    with e.while_(lambda: e.icmp_unsigned("!=", runs.get(), constant(I32, 0))):
        runs.set(e.and_(runs.get(), e.lshr(runs.get(), constant(I32, 1))))
        most.set(e.add(most.get(), constant(I32, 1)))
    e.ret(_packed(e, e.popcount(firsts), most.get()))


@helper("meeting_far", I64, POINTER, I32)
def _equal_lanes_far(e: Emit, addresses: Value, mask: Value) -> None:
    """Return the result of `equal_lanes` for lanes at any distance: one iteration per distinct address."""
    lanes = e.load_lanes(addresses, I64)
    left, number, most = e.variable(mask), e.variable(constant(I32, 0)), e.variable(constant(I32, 0))
    with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
        address = e.extract_element(lanes, e.lowest_bit(left.get()))
        here = e.and_(e.mask_of(e.icmp_unsigned("==", lanes, e.splat(address))), left.get())
        left.set(e.xor(left.get(), here))
        number.set(e.add(number.get(), constant(I32, 1)))
        most.set(e.intrinsic("umax", [most.get(), e.popcount(here)]))
    e.ret(_packed(e, number.get(), most.get()))


def _packed(e: Emit, number: Value, most: Value) -> Value:
    return e.or_(e.zext(number, I64), e.shl(e.zext(most, I64), constant(I64, 32)))
