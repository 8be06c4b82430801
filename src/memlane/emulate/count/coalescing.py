"""Count the sectors of a warp access to global-like memory in generated code, by the rules of `memlane.chip.access`.

For a full warp with a constant stride (contiguous, strided, uniform) everything follows from the first address and the stride. Other
addresses mostly ascend with the lane (two rows of a tile): then it is enough to count neighbours that differ. Any other order is sorted
first. Both use 32-bit distances from the first address; a warp whose lanes lie more than 2^30 bytes apart takes the same path with 64 bits.
"""

from __future__ import annotations

import hashlib
from functools import cache, partial

import llvmlite.ir as ir

from memlane.chip import LANES, AccessKind, Chip, CoalescingRule
from memlane.emulate.code.build import I1, I32, I64, Emit, Value, constant, lane_numbers, vector
from memlane.emulate.code.sorting import before, descents, sort
from memlane.emulate.count import ARGUMENTS
from memlane.emulate.layout import FULL
from memlane.emulate.runtime.helper import Helper, invoke

_REACH = 1 << 30
"""Maximum distance from the first lane's address for the 32-bit path, in bytes."""


def sectors_helper(chip: Chip, kind: AccessKind = "load") -> Helper:
    """Return `(addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32) -> i64`: sectors that move, and `ideal << 32`.

    `nbytes` is the size of each lane's access. Misaligned lanes count each sector that they touch, except under the rule of segments.
    """
    return _sectors_helper(chip.coalescing, chip.sector_bytes, chip.piece_bytes(kind))


@cache
def _sectors_helper(rule: CoalescingRule, sector_bytes: int, piece_bytes: int) -> Helper:
    name = hashlib.sha256(repr((rule, sector_bytes, piece_bytes)).encode()).hexdigest()[:12]
    near = Helper(f"memlane_touched_{piece_bytes}", I64, ARGUMENTS, partial(_touched_near, piece_bytes))
    moved, unit = near, piece_bytes // sector_bytes
    if rule.transactions == "segments":
        moved, unit = Helper(f"memlane_segments_{sector_bytes}", I64, ARGUMENTS, partial(_segments, sector_bytes)), 1
    whole = moved is near and {rule.lanes_4, rule.lanes_8, rule.lanes_16} == {LANES}

    def build(e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret(constant(I64, 0))
        touched = invoke(e, near, addresses, distance, mask, nbytes)
        full_sectors = e.add(e.lshr(touched, constant(I64, 32)), constant(I64, sector_bytes - 1))
        ideal = e.udiv(full_sectors, constant(I64, sector_bytes))
        number = e.and_(touched, constant(I64, FULL)) if whole else _sum_over_groups(e, moved, rule, addresses, distance, mask, nbytes)
        e.ret(e.or_(e.mul(number, constant(I64, unit)), e.shl(ideal, constant(I64, 32))))

    return Helper(f"memlane_sectors_{name}", I64, ARGUMENTS, build)


def _sum_over_groups(e: Emit, moved: Helper, rule: CoalescingRule, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> Value:
    """Return the sum of `moved` over the groups of lanes that are served together; i64."""
    size = e.select(e.icmp_unsigned("<=", nbytes, constant(I32, 8)), constant(I32, rule.lanes_8), constant(I32, rule.lanes_16))
    size = e.select(e.icmp_unsigned("<=", nbytes, constant(I32, 4)), constant(I32, rule.lanes_4), size)
    group = e.lshr(constant(I32, FULL), e.sub(constant(I32, LANES), size))
    total = e.variable(constant(I64, 0))
    with e.count(e.udiv(constant(I32, LANES), size)) as number:
        lanes = e.and_(mask, e.shl(group, e.mul(number, size)))
        with e.if_then(e.icmp_unsigned("!=", lanes, constant(I32, 0))):
            total.set(e.add(total.get(), e.and_(invoke(e, moved, addresses, distance, lanes, nbytes), constant(I64, FULL))))
    return total.get()


def _touched_near(sector_bytes: int, e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
    """Return distinct sectors touched, and distinct bytes << 32; the mask must not be empty."""
    first_lane = e.lowest_bit(mask)
    first = e.add(e.load(e.element(addresses, first_lane, I64), typ=I64), distance)
    base = e.and_(e.sub(first, constant(I64, _REACH)), constant(I64, -sector_bytes))
    distances = e.add(e.load_lanes(addresses, I64), e.splat(e.sub(distance, base)))
    _touched_affine(sector_bytes, e, distances, mask, nbytes)
    active = e.lanes_of(mask)
    reach = e.reduce("or", e.select(active, distances, constant(vector(I64), 0)))
    with e.if_then(e.icmp_unsigned(">=", reach, constant(I64, 2 * _REACH)), likely=False):
        far = Helper(f"memlane_touched_far_{sector_bytes}", I64, ARGUMENTS, partial(_touched_far, sector_bytes))
        e.ret(invoke(e, far, addresses, distance, mask, nbytes))
    near = e.select(active, e.trunc(distances, vector(I32)), constant(vector(I32), -1))
    # Leading inactive lanes repeat the first active one, trailing ones compare greater than all: guarded rows stay sorted.
    in_front = e.sub(e.shl(constant(I32, 1), first_lane), constant(I32, 1))
    near = e.select(e.lanes_of(in_front), e.splat(e.trunc(e.sub(first, base), I32)), near)
    ordered = e.variable(near)
    with e.if_then(e.icmp_unsigned("!=", descents(e, near), constant(I32, 0)), likely=False):
        ordered.set(sort(e, near))
    e.ret(_tally(e, ordered.get(), nbytes, sector_bytes))


def _touched_affine(sector_bytes: int, e: Emit, lanes: Value, mask: Value, nbytes: Value) -> None:
    """Return early for a full warp of aligned addresses with a constant upward stride.

    It touches all sectors from the first to the last, or one per lane if the stride exceeds a sector.
    """
    first = e.extract_element(lanes, constant(I32, 0))
    step = e.sub(e.extract_element(lanes, constant(I32, 1)), first)
    width = e.zext(nbytes, I64)
    row = e.add(e.splat(first), e.mul(e.splat(step), lane_numbers(I64)))
    off = e.reduce("or", e.xor(lanes, row))
    off = e.or_(off, e.and_(e.or_(first, step), e.sub(width, constant(I64, 1))))
    off = e.or_(off, e.zext(e.not_(mask), I64))
    near = e.icmp_unsigned("<", step, constant(I64, _REACH // LANES))
    with e.if_then(e.and_(e.icmp_unsigned("==", off, constant(I64, 0)), near)):
        sector = constant(I64, sector_bytes.bit_length() - 1)
        last = e.add(first, e.mul(step, constant(I64, LANES - 1)))
        between = e.add(e.sub(e.lshr(last, sector), e.lshr(first, sector)), constant(I64, 1))
        touched = e.intrinsic("umin", [between, constant(I64, LANES)])
        lanes_apart = e.select(e.icmp_unsigned("==", step, constant(I64, 0)), constant(I64, 1), constant(I64, LANES))
        e.ret(e.or_(touched, e.shl(e.mul(lanes_apart, width), constant(I64, 32))))


def _touched_far(sector_bytes: int, e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
    """Return the result of `_touched_near` for lanes at any distance, with 64-bit arithmetic."""
    lanes = e.add(e.load_lanes(addresses, I64), e.splat(distance))
    everywhere = e.select(e.lanes_of(mask), lanes, constant(vector(I64), -1))
    e.ret(_tally(e, sort(e, everywhere), nbytes, sector_bytes))


def _tally(e: Emit, starts: Value, nbytes: Value, sector_bytes: int) -> Value:
    """Return distinct sectors, and distinct bytes << 32, of pieces that begin at the sorted `starts`; all ones stands for no piece."""
    element = starts.type.element
    width = e.splat(nbytes if element is I32 else e.zext(nbytes, element))
    sector = constant(vector(element), sector_bytes.bit_length() - 1)
    first = e.lshr(starts, sector)
    last = e.lshr(e.add(starts, e.sub(width, constant(vector(element), 1))), sector)
    # Each piece adds the sectors and bytes that the piece before it did not cover.
    lane_zero = ir.Constant(vector(I1), [lane == 0 for lane in range(LANES)])
    unseen = e.sub(first, constant(vector(element), 1))
    seen = e.intrinsic("smax", [e.select(lane_zero, unseen, before(e, last)), unseen])
    gap = e.select(lane_zero, width, e.sub(starts, before(e, starts)))
    both = e.or_(e.sub(last, seen), e.shl(e.intrinsic("umin", [gap, width]), constant(vector(element), 16)))
    is_piece = e.icmp_unsigned("!=", starts, constant(vector(element), -1))
    total = e.reduce("add", e.select(is_piece, both, constant(vector(element), 0)))
    total = e.zext(total, I64) if element is I32 else total
    return e.or_(e.and_(total, constant(I64, 0xFFFF)), e.shl(e.lshr(total, constant(I64, 16)), constant(I64, 32)))


def _segments(sector_bytes: int, e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
    """Return the sectors that one group of lanes moves under the protocol of compute capability 1.2 and 1.3.

    The lowest remaining lane chooses an aligned segment; all lanes in it are served, and it is halved while one half contains them all.
    """
    lanes = e.add(e.load_lanes(addresses, I64), e.splat(distance))
    largest = e.select(e.icmp_unsigned("==", nbytes, constant(I32, 2)), constant(I64, 64), constant(I64, 128))
    largest = e.select(e.icmp_unsigned("==", nbytes, constant(I32, 1)), constant(I64, 32), largest)
    left, moved = e.variable(mask), e.variable(constant(I64, 0))
    with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
        leader = e.extract_element(lanes, e.lowest_bit(left.get()))
        apart = e.and_(e.xor(lanes, e.splat(leader)), e.splat(e.neg(largest)))
        served = e.and_(e.mask_of(e.icmp_unsigned("==", apart, constant(vector(I64), 0))), left.get())
        left.set(e.xor(left.get(), served))
        size, whole = e.variable(largest), e.variable(constant(I1, 0))
        with e.while_(lambda size=size, whole=whole: _can_halve(e, size.get(), whole.get(), sector_bytes)):
            half = e.lshr(size.get(), constant(I64, 1))
            high = e.mask_of(e.icmp_unsigned("!=", e.and_(lanes, e.splat(half)), constant(vector(I64), 0)))
            high = e.and_(high, served)
            both = e.and_(e.icmp_unsigned("!=", high, constant(I32, 0)), e.icmp_unsigned("!=", high, served))
            whole.set(both)
            size.set(e.select(both, size.get(), half))
        moved.set(e.add(moved.get(), e.udiv(size.get(), constant(I64, sector_bytes))))
    e.ret(moved.get())


def _can_halve(e: Emit, size: Value, whole: Value, sector_bytes: int) -> Value:
    return e.and_(e.icmp_unsigned(">", size, constant(I64, sector_bytes)), e.not_(whole))
