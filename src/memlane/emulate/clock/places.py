"""Where lines are in a cache of the clock layer: sets, ways, and which line makes room for another.

The set is the line's number with its upper parts folded in, so that power-of-two strides spread. Sets of L2 have more ways or fewer, as if
lines were spread less evenly over sets of one size: a launch that touches about as much as L2 holds finds part of it there. The line that
was used longest ago goes.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import SECTOR_BYTES
from memlane.emulate.clock.levels import ARRIVAL_BITS, DIRTY_BIT, LEVEL, LINE_WORDS, NO_WAY, PRESENT, SET, line_words
from memlane.emulate.clock.queues import QUEUES, cost, write_to_dram
from memlane.emulate.code.build import I8, I32, I64, POINTER, VOID, Emit, Value, constant, lane_numbers, spread, vector
from memlane.emulate.layout import offset
from memlane.emulate.runtime.helper import Helper

_QUARTERS = ir.VectorType(I64, LINE_WORDS)
COVERED = 0.9
"""Of the bytes of sectors that stores wrote parts of: from there on, others are taken to have written the rest of each."""


def _quarters(e: Emit, line: Value) -> Value:
    """What tells a line from others, as its words have it."""
    bits = 64 - ARRIVAL_BITS
    shifted = e.lshr(spread(e, e.add(line, constant(I64, 1)), LINE_WORDS), ir.Constant(_QUARTERS, [bits * quarter for quarter in range(LINE_WORDS)]))
    return e.and_(shifted, ir.Constant(_QUARTERS, [(1 << bits) - 1] * LINE_WORDS))


def is_at(e: Emit, line: Value, place: Value) -> Value:
    """Whether a line is at a place."""
    there = e.lshr(e.load(place, typ=_QUARTERS, align=8), ir.Constant(_QUARTERS, [ARRIVAL_BITS] * LINE_WORDS))
    different = e.icmp_unsigned("!=", there, _quarters(e, line))
    return e.icmp_unsigned("==", e.bitcast(different, ir.IntType(LINE_WORDS)), ir.Constant(ir.IntType(LINE_WORDS), 0))


class _Set:
    """The set of a line, in code that looks for it."""

    def __init__(self, e: Emit, level: Value, line: Value) -> None:
        self._e, self._level, self._line = e, level, line
        bits = e.get(level, LEVEL, "set_bits")
        upper = e.lshr(line, bits)
        fold = e.xor(line, upper)
        fold = e.xor(fold, e.lshr(fold, e.shl(bits, constant(I64, 1))))
        self.number = e.and_(fold, e.get(level, LEVEL, "set_mask"))
        self.address = e.at(e.get_pointer(level, LEVEL, "sets"), e.mul(self.number, constant(I64, SET.itemsize)))
        self.mark = e.intrinsic("umax", [e.trunc(upper, I8), constant(I8, 1)])  # 0 is where there is no line
        """Different ones for lines near each other that share the set."""

    def candidates(self) -> Value:
        """Mask of the ways whose lines have the mark."""
        e = self._e
        return e.mask_of(e.icmp_unsigned("==", e.load_lanes(self.address, I8), e.splat(self.mark)))

    def place_number(self, way: Value) -> Value:
        """The number of a way's place among those of all sets; i64."""
        e = self._e
        return e.add(e.mul(self.number, e.get(self._level, LEVEL, "places")), way)

    def place(self, sectors: int, way: Value) -> Value:
        """Where the words of the line in a way are."""
        e = self._e
        return e.element(e.get_pointer(self._level, LEVEL, "lines"), e.mul(self.place_number(way), constant(I64, line_words(sectors))), I64)

    def put(self, sectors: int, place: Value, way: Value) -> None:
        """Put the line at the place of a way, with all sectors absent."""
        e = self._e
        e.store(self.mark, e.element(self.address, way, I8))
        e.store(e.shl(_quarters(e, self._line), ir.Constant(_QUARTERS, [ARRIVAL_BITS] * LINE_WORDS)), place, align=8)
        for word in range(LINE_WORDS, line_words(sectors)):
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


@cache
def find(sectors: int, allocate: bool, is_far: bool = False) -> Helper:
    """`(level: ptr, line: i64) -> ptr`: the arrivals of the sectors of a line, marked as used just now. If the line is not there: null,
    or with `allocate` the place of the one used longest ago, with all sectors absent. Of L2, which `is_far`, what goes is counted, and
    keeps DRAM busy."""

    def build(e: Emit, level: Value, line: Value) -> None:
        where = _Set(e, level, line)
        left = e.variable(where.candidates())
        with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
            candidate = e.zext(e.lowest_bit(left.get()), I64)
            place = where.place(sectors, candidate)
            with e.if_then(is_at(e, line, place), likely=True):
                where.use(candidate)
                e.ret(place)
            left.set(e.and_(left.get(), e.sub(left.get(), constant(I32, 1))))
        if not allocate:
            e.ret(e.inttoptr(constant(I64, 0), POINTER))
            return
        way = where.oldest()
        place = where.place(sectors, way)
        if is_far:
            _write_back(e, sectors, level, place, where.place_number(way))
        where.put(sectors, place, way)
        where.use(way)
        e.ret(place)

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
        back = e.add(back, _is_dirty(e, e.load(e.at(place, 8 * sector), typ=I64)))
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
            pairs = e.add(pairs, _is_dirty(e, both))
        in_pairs = e.get(queues, QUEUES, "fetched_pairs")
        read.set(e.add(e.mul(pairs, in_pairs), cost(e, queues, "fetched", back)))
        by_pairs = e.icmp_unsigned("!=", in_pairs, constant(I64, 0))
        sectors_written.set(e.select(by_pairs, e.shl(pairs, constant(I64, 1)), back))
    write_to_dram(e, queues, sectors_written.get(), read.get())


def _is_dirty(e: Emit, word: Value) -> Value:
    """1 for a word whose sector was stored to; else 0."""
    return e.and_(e.lshr(word, constant(I64, DIRTY_BIT)), constant(I64, 1))


@cache
def bring_near(sectors: int, allocate: bool) -> Helper:
    """`(level, lines: <32 x i64>*, lanes: i32)`: fetch what the host holds of these lines into its own caches, for all of them at once,
    and with `allocate` also what lines that are not there will take the place of. One after the other they would wait for memory several
    times each."""

    def build(e: Emit, level: Value, lines: Value, lanes: Value) -> None:
        def set_of(lane: Value) -> _Set:
            return _Set(e, level, e.load(e.element(lines, lane, I64), typ=I64))

        with e.each_lane(lanes) as lane:
            e.prefetch(set_of(lane).address)
        with e.each_lane(lanes) as lane:
            one = set_of(lane)
            found = one.candidates()
            is_there = e.icmp_unsigned("!=", found, constant(I32, 0))
            way = e.zext(e.lowest_bit(found), I64)
            if allocate:
                e.prefetch(one.place(sectors, e.select(is_there, way, one.oldest())))
            else:
                with e.if_then(is_there):
                    e.prefetch(one.place(sectors, way))

    return Helper(f"memlane_bring_near{'_place' if allocate else ''}_{sectors}", VOID, (POINTER, POINTER, I32), build)
