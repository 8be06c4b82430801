"""Where lines are in a cache of the clock layer: sets, ways, and which line makes room for another.

The set is the line's number with its upper parts folded in, so that power-of-two strides spread. Sets of L2 have more ways or fewer, as if
lines were spread less evenly over sets of one size: a launch that touches about as much as L2 holds finds part of it there. The line that
was used longest ago goes.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import SECTOR_BYTES
from memlane.emulate.clock.levels import ARRIVAL_BITS, DIRTY_BIT, LEVEL, LINE_WORDS, NO_WAY, SET, line_words
from memlane.emulate.clock.queues import QUEUES, cost, write_to_dram
from memlane.emulate.code.build import I8, I32, I64, POINTER, Emit, Value, constant, lane_numbers, spread, vector
from memlane.emulate.layout import offset
from memlane.emulate.runtime.helper import Helper, invoke

_QUARTERS = ir.VectorType(I64, LINE_WORDS)
"""The parts of a line's number, as its first words hold them."""
COVERED = 0.9
"""Of the bytes of sectors that stores wrote parts of: from there on, others are taken to have written the rest of each."""


def _quarters(e: Emit, line: Value) -> Value:
    """What tells a line from others, as its words have it."""
    bits = 64 - ARRIVAL_BITS
    shifts = ir.Constant(_QUARTERS, [bits * quarter for quarter in range(LINE_WORDS)])
    shifted = e.lshr(spread(e, e.add(line, constant(I64, 1)), LINE_WORDS), shifts)
    return e.and_(shifted, ir.Constant(_QUARTERS, [(1 << bits) - 1] * LINE_WORDS))


def is_at(e: Emit, line: Value, place: Value) -> Value:
    """Whether a line is at a place."""
    there = e.lshr(e.load(place, typ=_QUARTERS, align=8), ir.Constant(_QUARTERS, [ARRIVAL_BITS] * LINE_WORDS))
    different = e.icmp_unsigned("!=", there, _quarters(e, line))
    return e.icmp_unsigned("==", e.bitcast(different, ir.IntType(LINE_WORDS)), ir.Constant(ir.IntType(LINE_WORDS), 0))


class Sets:
    """The sets of 32 lines in a cache, in code that looks for these."""

    def __init__(self, e: Emit, sectors: int, level: Value, lines: Value) -> None:
        self._e, self._sectors, self._level = e, sectors, level
        bits = e.get(level, LEVEL, "set_bits")
        upper = e.lshr(lines, e.splat(bits))
        fold = e.xor(lines, upper)
        fold = e.xor(fold, e.lshr(fold, e.splat(e.shl(bits, constant(I64, 1)))))
        numbers = e.and_(fold, e.splat(e.get(level, LEVEL, "set_mask")))
        self._marks, self._numbers, self._lines = e.local(vector(I8), 64), e.local(vector(I64), 64), e.local(vector(I64), 64)
        e.store_lanes(e.intrinsic("umax", [e.trunc(upper, vector(I8)), constant(vector(I8), 1)]), self._marks)  # 0 is where no line is
        e.store_lanes(numbers, self._numbers)
        e.store_lanes(lines, self._lines)

    def of(self, lane: Value) -> Set:
        """The set of the line of a lane."""
        e = self._e
        mark = e.load(e.element(self._marks, lane, I8), typ=I8)
        number, line = (e.load(e.element(one, lane, I64), typ=I64) for one in (self._numbers, self._lines))
        return Set(e, self._sectors, self._level, number, mark, line)

    def bring_near(self, lanes: Value) -> None:
        """Fetch the sets of some lanes into the host's own caches, for all of them at once: one after the other would wait for memory."""
        with self._e.each_lane(lanes) as lane:
            self._e.prefetch(self.of(lane).address)

    def bring_places_near(self, lanes: Value) -> Value:
        """Fetch the lines of some lanes likewise, or what they take the place of; the lanes whose lines are not there."""
        e, missing = self._e, self._e.variable(constant(I32, 0))
        with e.each_lane(lanes) as lane:
            one = self.of(lane)
            found = one.candidates()
            is_missing = e.icmp_unsigned("==", found, constant(I32, 0))
            e.prefetch(one.place(e.select(is_missing, one.oldest(), e.zext(e.lowest_bit(found), I64))))
            missing.set(e.or_(missing.get(), e.shl(e.zext(is_missing, I32), lane)))
        return missing.get()


class Set:
    """The set of a line in a cache."""

    def __init__(self, e: Emit, sectors: int, level: Value, number: Value, mark: Value, line: Value) -> None:
        self._e, self._sectors, self._level = e, sectors, level
        self.number, self.mark, self.line = number, mark, line
        self.address = e.at(e.get_pointer(level, LEVEL, "sets"), e.mul(number, constant(I64, SET.itemsize)))

    def candidates(self) -> Value:
        """Mask of the ways whose lines have the mark."""
        e = self._e
        return e.mask_of(e.icmp_unsigned("==", e.load_lanes(self.address, I8), e.splat(self.mark)))

    def place(self, way: Value) -> Value:
        """Where the words of the line in a way are."""
        e = self._e
        first = e.at(e.get_pointer(self._level, LEVEL, "lines"), e.mul(self.number, constant(I64, 8 * line_words(self._sectors))))
        return e.at(first, e.mul(way, e.get(self._level, LEVEL, "way_bytes")))

    def put(self, place: Value, way: Value) -> None:
        """Put the line at the place of a way, with all sectors absent."""
        e = self._e
        e.store(self.mark, e.element(self.address, way, I8))
        e.store(e.shl(_quarters(e, self.line), ir.Constant(_QUARTERS, [ARRIVAL_BITS] * LINE_WORDS)), place, align=8)
        for word in range(LINE_WORDS, line_words(self._sectors)):
            e.store(constant(I64, 0), e.at(place, 8 * word))

    def _ages(self) -> Value:
        return self._e.at(self.address, offset(SET, "ages"))

    def oldest(self) -> Value:
        """The way whose line was used longest ago, or never; i64."""
        e, ages = self._e, self._e.load_lanes(self._ages(), I8)
        ways = e.popcount(e.mask_of(e.icmp_unsigned("!=", ages, constant(vector(I8), NO_WAY))))
        last = e.splat(e.trunc(e.sub(ways, constant(I32, 1)), I8))
        return e.zext(e.lowest_bit(e.mask_of(e.icmp_unsigned("==", ages, last))), I64)

    def use(self, way: Value) -> None:
        """Make a way the one that was used last."""
        e, ages = self._e, self._e.load_lanes(self._ages(), I8)
        own = e.load(e.element(self._ages(), way, I8), typ=I8)
        older = e.sub(ages, e.sext(e.icmp_unsigned("<", ages, e.splat(own)), vector(I8)))
        is_own = e.icmp_unsigned("==", lane_numbers(I8), e.splat(e.trunc(way, I8)))
        e.store_lanes(e.select(is_own, constant(vector(I8), 0), older), self._ages())

    def find(self, allocate: bool, is_far: bool = False) -> Value:
        """As the helper `find`."""
        return invoke(self._e, find(self._sectors, allocate, is_far), self._level, self.number, self.mark, self.line)


def place_number(e: Emit, sectors: int, level: Value, place: Value) -> Value:
    """The number of a place among those of all sets and ways; i64."""
    distance = e.sub(e.ptrtoint(place, I64), e.get(level, LEVEL, "lines"))
    return e.udiv(distance, constant(I64, 8 * line_words(sectors)))


@cache
def find(sectors: int, allocate: bool, is_far: bool = False) -> Helper:
    """`(level: ptr, set: i64, mark: i8, line: i64) -> ptr`: the words of a line, which is the one used last from then on. If the line is
    not there: null, or with `allocate` the place of the one used longest ago, with all sectors absent. Of L2, which `is_far`, what goes is
    counted, and keeps DRAM busy."""

    def build(e: Emit, level: Value, number: Value, mark: Value, line: Value) -> None:
        where = Set(e, sectors, level, number, mark, line)
        left = e.variable(where.candidates())
        with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
            candidate = e.zext(e.lowest_bit(left.get()), I64)
            place = where.place(candidate)
            with e.if_then(is_at(e, line, place), likely=True):
                where.use(candidate)
                e.ret(place)
            left.set(e.and_(left.get(), e.sub(left.get(), constant(I32, 1))))
        if not allocate:
            e.ret(e.inttoptr(constant(I64, 0), POINTER))
            return
        way = where.oldest()
        place = where.place(way)
        if is_far:
            _write_back(e, sectors, level, place)
        where.put(place, way)
        where.use(way)
        e.ret(place)

    return Helper(
        f"memlane_find{'_place' if allocate else ''}{'_far' if is_far else ''}_{sectors}",
        POINTER,
        (POINTER, I64, I8, I64),
        build,
    )


def _write_back(e: Emit, sectors: int, level: Value, place: Value) -> None:
    """Count the sectors at `place` that were stored to, and begin anew to count the atomics at the line there."""
    back = constant(I64, 0)
    for sector in range(sectors):
        back = e.add(back, _is_dirty(e, e.load(e.at(place, 8 * sector), typ=I64)))
    e.bump(level, LEVEL, "written_back", back)
    _keep_dram_busy(e, sectors, level, place, back)
    # Where there were none all counts are 0, and their memory is better not touched.
    with e.if_then(e.icmp_unsigned("!=", e.get(level, LEVEL, "hottest"), constant(I64, 0)), likely=False):
        number = place_number(e, sectors, level, place)
        own = e.element(e.get_pointer(level, LEVEL, "atomics"), e.shl(number, constant(I64, 1)), I64)
        for word in range(2):
            e.store(constant(I64, 0), e.at(own, 8 * word))


def _keep_dram_busy(e: Emit, sectors: int, level: Value, place: Value, back: Value) -> None:
    """Let sectors go to DRAM: pieces of it, whose rest is read first, where stores wrote parts of sectors that no others completed."""
    queues = e.get_pointer(level, LEVEL, "queues")
    sectors_written, read = e.variable(back), e.variable(constant(I64, 0))
    covered = e.mul(e.get(level, LEVEL, "part_sectors"), constant(I64, round(SECTOR_BYTES * COVERED)))
    with e.if_then(e.icmp_unsigned("<", e.get(level, LEVEL, "part_bytes"), covered), likely=False):
        pairs = constant(I64, 0)
        for first in range(0, sectors, 2):
            both = e.or_(*(e.load(e.at(place, 8 * (first + one)), typ=I64) for one in range(2)))
            pairs = e.add(pairs, _is_dirty(e, both))
        in_pairs = e.get(queues, QUEUES, "fetched_pairs")
        read.set(e.add(e.mul(pairs, in_pairs), cost(e, queues, "fetched", back)))
        by_pairs = e.icmp_unsigned("!=", in_pairs, constant(I64, 0))
        sectors_written.set(e.select(by_pairs, e.shl(pairs, constant(I64, 1)), back))
    write_to_dram(e, queues, sectors_written.get(), read.get())


def _is_dirty(e: Emit, word: Value) -> Value:
    """1 for a word whose sector was stored to; else 0."""
    return e.and_(e.lshr(word, constant(I64, DIRTY_BIT)), constant(I64, 1))
