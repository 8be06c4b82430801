"""Where lines are in a cache of the clock layer: sets, ways, and which line makes room for another.

The set is the line's number with its upper parts folded in, so that power-of-two strides spread. Sets of L2 have more ways or fewer, as if
lines were spread less evenly over sets of one size: a launch that touches about as much as L2 holds finds part of it there. The line that
was used longest ago goes.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import SECTOR_BYTES
from memlane.emulate.clock.levels import DIRTY_BIT, FEW_WAYS, LEVEL, MOST_WAYS
from memlane.emulate.clock.queues import QUEUES, cost, write_to_dram
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.code.sorting import permute
from memlane.emulate.runtime.helper import Helper

HOST_LINE_BYTES = 64
COVERED = 0.9
"""Of the bytes of sectors that stores wrote parts of: from there on, others are taken to have written the rest of each."""


def _row(e: Emit, level: Value, line: Value) -> Value:
    """The number of the first place of a line's set; i64."""
    bits = e.get(level, LEVEL, "set_bits")
    fold = e.xor(line, e.lshr(line, bits))
    fold = e.xor(fold, e.lshr(fold, e.shl(bits, constant(I64, 1))))
    return e.mul(e.and_(fold, e.get(level, LEVEL, "set_mask")), e.get(level, LEVEL, "places"))


def _has_many_ways(e: Emit, level: Value) -> Value:
    return e.icmp_unsigned("!=", e.get(level, LEVEL, "places"), constant(I64, FEW_WAYS))


def _match(e: Emit, level: Value, row: Value, line: Value) -> Value:
    """Mask of the places in a row where the line is: of one, or of none."""
    tags, tag = e.element(e.get_pointer(level, LEVEL, "tags"), row, I64), e.add(line, constant(I64, 1))

    def equal(first: int, count: int) -> Value:
        kind = ir.VectorType(I64, count)
        same = e.icmp_unsigned("==", e.load(e.at(tags, 8 * first), typ=kind, align=8), permute(e, e.splat(tag), [0] * count))
        return e.bitcast(same, ir.IntType(count))

    found = e.variable(e.zext(equal(0, FEW_WAYS), I32))
    with e.if_then(_has_many_ways(e, level)):
        others = e.zext(equal(FEW_WAYS, MOST_WAYS - FEW_WAYS), I32)
        found.set(e.or_(found.get(), e.shl(others, constant(I32, FEW_WAYS))))
    return found.get()


def _arrivals(e: Emit, sectors: int, level: Value, row: Value, way: Value) -> Value:
    """Where the arrivals of the sectors of a place are."""
    return e.element(e.get_pointer(level, LEVEL, "arrivals"), e.mul(e.add(row, way), constant(I64, sectors)), I64)


def _prefetch_way(e: Emit, sectors: int, level: Value, row: Value, way: Value) -> None:
    e.prefetch(_arrivals(e, sectors, level, row, way))
    e.prefetch(e.element(e.get_pointer(level, LEVEL, "stamps"), e.add(row, way), I64))


def _prefetch_row(e: Emit, level: Value, row: Value, field: str) -> None:
    first = e.element(e.get_pointer(level, LEVEL, field), row, I64)
    for distance in range(0, 8 * FEW_WAYS, HOST_LINE_BYTES):
        e.prefetch(e.at(first, distance))
    with e.if_then(_has_many_ways(e, level)):
        for distance in range(8 * FEW_WAYS, 8 * MOST_WAYS, HOST_LINE_BYTES):
            e.prefetch(e.at(first, distance))


@cache
def find(sectors: int, allocate: bool, is_far: bool = False) -> Helper:
    """`(level: ptr, line: i64) -> ptr`: the arrivals of the sectors of a line, marked as used just now. If the line is not there: null,
    or with `allocate` the place of the one used longest ago, with all sectors absent. Of L2, which `is_far`, what goes is counted, and
    keeps DRAM busy."""

    def build(e: Emit, level: Value, line: Value) -> None:
        first = _row(e, level, line)
        stamps = e.element(e.get_pointer(level, LEVEL, "stamps"), first, I64)
        found = _match(e, level, first, line)
        way = e.variable(e.zext(e.lowest_bit(found), I64))
        with e.if_then(e.icmp_unsigned("==", found, constant(I32, 0)), likely=False):
            if not allocate:
                e.ret(e.inttoptr(constant(I64, 0), POINTER))
            else:
                way.set(_oldest(e, level, first))
                tags = e.element(e.get_pointer(level, LEVEL, "tags"), first, I64)
                e.store(e.add(line, constant(I64, 1)), e.element(tags, way.get(), I64))
                place = _arrivals(e, sectors, level, first, way.get())
                if is_far:
                    _write_back(e, sectors, level, place, e.add(first, way.get()))
                for sector in range(sectors):
                    e.store(constant(I64, 0), e.at(place, 8 * sector))
        e.store(e.bump(level, LEVEL, "uses"), e.element(stamps, way.get(), I64))
        e.ret(_arrivals(e, sectors, level, first, way.get()))

    return Helper(
        f"memlane_find{'_place' if allocate else ''}{'_far' if is_far else ''}_{sectors}",
        POINTER,
        (POINTER, I64),
        build,
    )


def _write_back(e: Emit, sectors: int, level: Value, place: Value, number: Value) -> None:
    """Count the sectors at `place` that were stored to, and begin anew to count the atomics at the line of this number."""
    back = constant(I64, 0)
    for sector in range(sectors):
        back = e.add(back, e.lshr(e.load(e.at(place, 8 * sector), typ=I64), constant(I64, DIRTY_BIT)))
    e.bump(level, LEVEL, "written_back", back)
    _keep_dram_busy(e, sectors, level, place, back)
    # Where there were none all counts are 0, and their memory is better not touched.
    with e.if_then(e.icmp_unsigned("!=", e.get(level, LEVEL, "hottest"), constant(I64, 0)), likely=False):
        for word in range(2):
            e.store(
                constant(I64, 0), e.at(e.element(e.get_pointer(level, LEVEL, "atomics"), e.shl(number, constant(I64, 1)), I64), 8 * word)
            )


def _keep_dram_busy(e: Emit, sectors: int, level: Value, place: Value, back: Value) -> None:
    """Let sectors go to DRAM: pieces of it, whose rest is read first, where stores wrote parts of sectors that no others completed."""
    queues = e.get_pointer(level, LEVEL, "queues")
    sectors_written, read = e.variable(back), e.variable(constant(I64, 0))
    covered = e.mul(e.get(level, LEVEL, "part_sectors"), constant(I64, round(SECTOR_BYTES * COVERED)))
    with e.if_then(e.icmp_unsigned("<", e.get(level, LEVEL, "part_bytes"), covered), likely=False):
        pairs = constant(I64, 0)
        for first in range(0, sectors, 2):
            both = e.or_(*(e.load(e.at(place, 8 * (first + one)), typ=I64) for one in range(2)))
            pairs = e.add(pairs, e.lshr(both, constant(I64, DIRTY_BIT)))
        in_pairs = e.get(queues, QUEUES, "fetched_pairs")
        read.set(e.add(e.mul(pairs, in_pairs), cost(e, queues, "fetched", back)))
        by_pairs = e.icmp_unsigned("!=", in_pairs, constant(I64, 0))
        sectors_written.set(e.select(by_pairs, e.shl(pairs, constant(I64, 1)), back))
    write_to_dram(e, queues, sectors_written.get(), read.get())


def _oldest(e: Emit, level: Value, row: Value) -> Value:
    """The way of a row that was used longest ago, or never; i64."""
    stamps = e.element(e.get_pointer(level, LEVEL, "stamps"), row, I64)
    number = e.udiv(row, e.get(level, LEVEL, "places"))
    ways = e.load(e.element(e.get_pointer(level, LEVEL, "ways"), number, I64), typ=I64)
    oldest = e.variable(constant(I64, 0))

    def look(count: int) -> None:
        kind = ir.VectorType(I64, count)
        numbers = ir.Constant(kind, list(range(count)))
        exists = e.icmp_unsigned("<", numbers, permute(e, e.splat(ways), [0] * count))
        ages = e.select(exists, e.load(stamps, typ=kind, align=8), constant(kind, -1))
        same = e.icmp_unsigned("==", ages, permute(e, e.splat(e.reduce("umin", ages)), [0] * count))
        oldest.set(e.zext(e.lowest_bit(e.bitcast(same, ir.IntType(count))), I64))

    with e.if_else(_has_many_ways(e, level)) as (many, few):
        with many:
            look(MOST_WAYS)
        with few:
            look(FEW_WAYS)
    return oldest.get()


@cache
def bring_near(sectors: int, looks: bool, is_past_l1: bool) -> Helper:
    """`(l1, l2, lines: <32 x i64>*, wanted: <32 x i32>*, lanes: i32)`: fetch what the host holds of these lines into its own caches, for
    all of them at once. One line after the other would wait for memory several times each. `wanted` are the sectors, a bit each. `looks`:
    whether L1 may have them; `is_past_l1`: whether it is not even asked."""

    def build(e: Emit, l1: Value, l2: Value, lines: Value, wanted: Value, lanes: Value) -> None:
        far = e.variable(constant(I32, 0) if looks else lanes)

        def line_of(lane: Value) -> Value:
            return e.load(e.element(lines, lane, I64), typ=I64)

        def look_at_tags(level: Value, of: Value) -> None:
            with e.each_lane(of) as lane:
                _prefetch_row(e, level, _row(e, level, line_of(lane)), "tags")

        def look_at_places(level: Value, of: Value) -> Value:
            """The lanes whose lines are not there."""
            missing = e.variable(constant(I32, 0))
            with e.each_lane(of) as lane:
                line = line_of(lane)
                row = _row(e, level, line)
                found = _match(e, level, row, line)
                with e.if_else(e.icmp_unsigned("!=", found, constant(I32, 0))) as (there, absent):
                    with there:
                        _prefetch_way(e, sectors, level, row, e.zext(e.lowest_bit(found), I64))
                    with absent:
                        missing.set(e.or_(missing.get(), e.shl(constant(I32, 1), lane)))
                        _prefetch_row(e, level, row, "stamps")
            return missing.get()

        def look_at_victims(level: Value, of: Value) -> None:
            with e.each_lane(of) as lane:
                row = _row(e, level, line_of(lane))
                e.prefetch(_arrivals(e, sectors, level, row, _oldest(e, level, row)))

        if not is_past_l1:
            look_at_tags(l1, lanes)
        if looks:
            missing = look_at_places(l1, lanes)
            far.set(missing)
            with e.each_lane(e.and_(lanes, e.not_(missing))) as lane:  # the line is there, but maybe not the sector
                line = line_of(lane)
                row = _row(e, l1, line)
                way = e.zext(e.lowest_bit(_match(e, l1, row, line)), I64)
                sector = e.zext(e.lowest_bit(e.load(e.element(wanted, lane, I32), typ=I32)), I64)
                arrival = e.load(e.element(_arrivals(e, sectors, l1, row, way), sector, I64), typ=I64)
                with e.if_then(e.icmp_unsigned("==", arrival, constant(I64, 0))):
                    far.set(e.or_(far.get(), e.shl(constant(I32, 1), lane)))
            look_at_victims(l1, missing)
        look_at_tags(l2, far.get())
        look_at_victims(l2, look_at_places(l2, far.get()))

    name = f"memlane_bring_near_{looks:d}{is_past_l1:d}_{sectors}"
    return Helper(name, VOID, (POINTER, POINTER, POINTER, POINTER, I32), build)
