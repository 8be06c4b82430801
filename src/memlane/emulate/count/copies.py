"""Count the cost of a warp's asynchronous copy in generated code, by the rules of `memlane.chip.copies`."""

from __future__ import annotations

from functools import cache

from memlane.chip import LANES
from memlane.chip.copies import HALF, LINE, SECTOR
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant, vector
from memlane.emulate.count.banks import fullest_of_passes, total_of_passes
from memlane.emulate.count.equal_lanes import equal_lanes
from memlane.emulate.runtime.helper import Helper, invoke

_ADDRESSES, _LANES = vector(I64), vector(I32)
_ROWS = 0xFFFF
"""Mask of a row of shared memory, larger than a block can have."""


@cache
def copy_helper(nbytes: int, past_l1: bool) -> Helper:
    """Return `(sources: <32 x i64>*, distance, targets: <32 x i64>*, distance, lanes: i32, readers: i32, whole: i32) -> i64`: wavefronts,
    `ideal << 32`, and past L1 `sectors << 48`.

    `readers`: lanes that read; `whole`: lanes that read all bytes that they copy.
    """

    def build(e: Emit, source: Value, far: Value, target: Value, near: Value, lanes: Value, readers: Value, whole: Value) -> None:
        sources, targets = (e.add(e.load_lanes(at, I64), e.splat(distance)) for at, distance in ((source, far), (target, near)))
        through = Helper(
            f"memlane_copy_through_l1_{nbytes}",
            I64,
            (_ADDRESSES, _ADDRESSES, I32, I32),
            lambda e, sources, targets, lanes, readers: _through_l1(e, nbytes, sources, targets, lanes, readers),
        )
        if not past_l1:
            e.ret(invoke(e, through, sources, targets, lanes, readers))
            return
        found = e.variable(_past_l1(e, sources, targets, readers))
        with e.if_then(e.icmp_unsigned("!=", lanes, whole)):
            found.set(e.add(found.get(), invoke(e, through, sources, targets, lanes, readers)))
        e.ret(found.get())

    name = f"memlane_copy_{'past' if past_l1 else 'by'}_l1_{nbytes}"
    return Helper(name, I64, (POINTER, I64, POINTER, I64, I32, I32, I32), build)


def _through_l1(e: Emit, nbytes: int, sources: Value, targets: Value, lanes: Value, readers: Value) -> None:
    """Return, summed over the passes, the most lanes that conflict with one lane: lanes that write to its bank, or read from the bank that
    it reads."""
    read, written = (fullest_of_passes(e, e.trunc(at, _LANES), mask, nbytes, LINE) for at, mask in ((sources, readers), (targets, lanes)))
    number, both = e.variable(total_of_passes(e, e.intrinsic("umax", [read, written]))), e.intrinsic("umin", [read, written])
    several = e.reduce("umax", both) if both.type.count > 1 else e.extract_element(both, constant(I32, 0))
    with e.if_then(e.icmp_unsigned(">", several, constant(I32, 1)), likely=False):  # else a lane conflicts on one side only
        number.set(_conflicting_lanes(e, nbytes, sources, targets, lanes, readers))
    e.ret(e.or_(e.zext(number.get(), I64), e.shl(_ideal(e, lanes, nbytes), constant(I64, 32))))


def _conflicting_lanes(e: Emit, nbytes: int, sources: Value, targets: Value, lanes: Value, readers: Value) -> Value:
    """Return the exact sum of conflicts over the passes, computed lane by lane."""
    size, total = LINE // nbytes, e.variable(constant(I32, 0))
    mask = constant(_ADDRESSES, LINE - nbytes)
    read, written = (e.and_(at, mask) for at in (sources, targets))
    for first in range(0, LANES, size):
        here = constant(I32, ((1 << size) - 1) << first)
        most = e.variable(constant(I32, 0))
        with e.each_lane(e.and_(lanes, here)) as lane:
            near, far = (e.mask_of(e.icmp_unsigned("==", banks, e.splat(e.extract_element(banks, lane)))) for banks in (written, read))
            reads = e.icmp_unsigned("!=", e.and_(e.lshr(readers, lane), constant(I32, 1)), constant(I32, 0))
            met = e.or_(near, e.select(reads, e.and_(far, readers), constant(I32, 0)))
            most.set(e.intrinsic("umax", [most.get(), e.popcount(e.and_(met, e.and_(lanes, here)))]))
        total.set(e.add(total.get(), most.get()))
    return total.get()


def _ideal(e: Emit, lanes: Value, nbytes: int) -> Value:
    """Return the wavefronts that the bytes of the lanes would fill; i64."""
    nearly = e.add(e.mul(e.popcount(lanes), constant(I32, nbytes)), constant(I32, LINE - 1))
    return e.zext(e.udiv(nearly, constant(I32, LINE)), I64)


def _past_l1(e: Emit, sources: Value, targets: Value, readers: Value) -> Value:
    """Return the wavefronts that transfers share, `ideal << 32` and `transfers << 48`."""
    half, one = constant(_ADDRESSES, HALF), constant(I32, 1)
    overwritten, paired, again = (e.variable(constant(I32, 0)) for _ in range(3))
    with e.each_lane(readers) as lane:
        same = e.mask_of(e.icmp_unsigned("==", targets, e.splat(e.extract_element(targets, lane))))
        overwritten.set(e.or_(overwritten.get(), e.and_(same, e.sub(e.shl(one, lane), one))))
    copied = e.and_(readers, e.not_(overwritten.get()))
    with e.each_lane(copied) as lane:
        beside = e.icmp_unsigned("==", e.xor(targets, half), e.splat(e.extract_element(targets, lane)))
        from_beside = e.icmp_unsigned("==", e.xor(sources, half), e.splat(e.extract_element(sources, lane)))
        paired.set(e.or_(paired.get(), e.and_(copied, e.mask_of(e.and_(beside, from_beside)))))
    upper = e.mask_of(e.icmp_unsigned("!=", e.and_(targets, half), constant(_ADDRESSES, 0)))
    transfers = e.and_(copied, e.not_(e.and_(paired.get(), upper)))
    key = _wavefront_key(e, sources, targets, paired.get())
    with e.each_lane(transfers) as lane:
        sector = e.lshr(e.xor(sources, e.splat(e.extract_element(sources, lane))), constant(_ADDRESSES, 5))
        other = e.or_(sector, e.xor(key, e.splat(e.extract_element(key, lane))))
        alike = e.and_(transfers, e.mask_of(e.icmp_unsigned("==", other, constant(_ADDRESSES, 0))))
        again.set(e.or_(again.get(), e.and_(alike, e.not_(e.sub(e.shl(constant(I32, 2), lane), one)))))
    turn = e.select(e.lanes_of(again.get()), constant(_ADDRESSES, 1), constant(_ADDRESSES, 0))
    with e.goto_entry_block():
        keys = e.alloca(_ADDRESSES)
        keys.align = 64
    e.store_lanes(e.or_(key, turn), keys)
    number = e.and_(invoke(e, equal_lanes, keys, transfers), constant(I64, 0xFFFFFFFF))
    ideal, moved = _ideal(e, copied, HALF), e.zext(e.popcount(transfers), I64)
    return e.or_(number, e.or_(e.shl(ideal, constant(I64, 32)), e.shl(moved, constant(I64, 48))))


def _wavefront_key(e: Emit, sources: Value, targets: Value, paired: Value) -> Value:
    """Return a key per lane, equal for transfers that share a wavefront: 32 i64 with a lowest bit of 0.

    It combines the line, the row, which halves go where, and whether sectors move from even to odd pieces or back.
    """

    def bits(value: Value, shift: int, mask: int) -> Value:
        return e.and_(e.lshr(value, constant(_ADDRESSES, shift)), constant(_ADDRESSES, mask))

    def joined(high: Value, width: int, low: Value) -> Value:
        return e.or_(e.shl(high, constant(_ADDRESSES, width)), low)

    of_half, to_half, turned = bits(sources, 4, 1), bits(targets, 4, 1), bits(e.xor(sources, targets), 5, 1)
    both = e.or_(e.xor(of_half, to_half), constant(_ADDRESSES, 4))
    halves = e.select(e.lanes_of(paired), both, joined(of_half, 1, to_half))
    place = joined(e.lshr(sources, constant(_ADDRESSES, 7)), 16, bits(targets, 7, _ROWS))
    return joined(joined(joined(place, 3, halves), 1, turned), 1, constant(_ADDRESSES, 0))


assert (SECTOR, HALF, LINE) == (1 << 5, 1 << 4, 1 << 7)
