"""Find, insert and evict lines in a cache of the clock layer: sets, ways and LRU replacement.

The set is a hash of the line's number: its upper bits are folded in, so that power-of-two strides spread over the sets; in L2 after a
multiplication, so that the lines of boxes of a grid, and of columns some lines wide, spread over them too. Sets of L2 differ
in their number of ways, as if lines were spread unevenly over sets of equal size: a launch that touches about as much as L2 holds finds
part of it there. The least recently used line is evicted.
"""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.chip import SECTOR_BYTES
from memlane.emulate.clock.levels import ARRIVAL_BITS, DIRTY_BIT, LEVEL, LINE_WORDS, NO_WAY, SET, SET_FACTOR, line_words
from memlane.emulate.clock.queues import QUEUES, cost, write_to_dram
from memlane.emulate.code.build import I8, I32, I64, POINTER, Emit, Value, constant, lane_numbers, spread, vector
from memlane.emulate.layout import offset
from memlane.emulate.runtime.helper import Helper, invoke

_QUARTERS = ir.VectorType(I64, LINE_WORDS)
"""Vector of the pieces of a tag, as the first words of a line hold them."""
COVERED = 0.9
"""Share of the bytes of partly written sectors from which on other stores are assumed to have completed each sector."""


def _quarters(e: Emit, line: Value) -> Value:
    """Return the tag of a line, split into pieces as its words hold it."""
    bits = 64 - ARRIVAL_BITS
    shifts = ir.Constant(_QUARTERS, [bits * quarter for quarter in range(LINE_WORDS)])
    shifted = e.lshr(spread(e, e.add(line, constant(I64, 1)), LINE_WORDS), shifts)
    return e.and_(shifted, ir.Constant(_QUARTERS, [(1 << bits) - 1] * LINE_WORDS))


def is_at(e: Emit, line: Value, place: Value) -> Value:
    """Return whether the tag at `place` is that of `line`; i1."""
    there = e.lshr(e.load(place, typ=_QUARTERS, align=8), ir.Constant(_QUARTERS, [ARRIVAL_BITS] * LINE_WORDS))
    different = e.icmp_unsigned("!=", there, _quarters(e, line))
    return e.icmp_unsigned("==", e.bitcast(different, ir.IntType(LINE_WORDS)), ir.Constant(ir.IntType(LINE_WORDS), 0))


class Sets:
    """Sets of the lines of 32 lanes in a cache, for generated code that looks the lines up."""

    def __init__(self, e: Emit, sectors: int, level: Value, lines: Value, is_far: bool) -> None:
        self._e, self._sectors, self._level = e, sectors, level
        bits = e.get(level, LEVEL, "set_bits")
        upper = e.lshr(lines, e.splat(bits))
        if is_far:
            mixed = e.lshr(e.mul(upper, constant(vector(I64), SET_FACTOR)), e.splat(e.sub(constant(I64, 64), bits)))
            fold = e.xor(lines, mixed)
        else:
            fold = e.xor(lines, upper)
            fold = e.xor(fold, e.lshr(fold, e.splat(e.shl(bits, constant(I64, 1)))))
        numbers = e.and_(fold, e.splat(e.get(level, LEVEL, "set_mask")))
        self._marks, self._numbers, self._lines = e.local(vector(I8), 64), e.local(vector(I64), 64), e.local(vector(I64), 64)
        e.store_lanes(e.intrinsic("umax", [e.trunc(upper, vector(I8)), constant(vector(I8), 1)]), self._marks)  # 0 marks an empty way
        e.store_lanes(numbers, self._numbers)
        e.store_lanes(lines, self._lines)

    def of(self, lane: Value) -> Set:
        """Return the set of the line of a lane."""
        e = self._e
        mark = e.load(e.element(self._marks, lane, I8), typ=I8)
        number, line = (e.load(e.element(one, lane, I64), typ=I64) for one in (self._numbers, self._lines))
        return Set(e, self._sectors, self._level, number, mark, line)

    def bring_near(self, lanes: Value) -> None:
        """Prefetch the sets of `lanes` into the host's caches, so that the later look-ups do not miss one after another."""
        with self._e.each_lane(lanes) as lane:
            self._e.prefetch(self.of(lane).address)

    def bring_places_near(self, lanes: Value) -> Value:
        """Prefetch the lines of `lanes`, or the lines that they will evict; return a mask of the lanes whose lines are absent for sure."""
        e, missing = self._e, self._e.variable(constant(I32, 0))
        with e.each_lane(lanes) as lane:
            one = self.of(lane)
            found = one.candidates()
            is_missing = e.icmp_unsigned("==", found, constant(I32, 0))
            e.prefetch(one.place(e.select(is_missing, one.oldest(), e.zext(e.lowest_bit(found), I64))))
            missing.set(e.or_(missing.get(), e.shl(e.zext(is_missing, I32), lane)))
        return missing.get()


class Set:
    """Set of a line in a cache."""

    def __init__(self, e: Emit, sectors: int, level: Value, number: Value, mark: Value, line: Value) -> None:
        self._e, self._sectors, self._level = e, sectors, level
        self.number, self.mark, self.line = number, mark, line
        self.address = e.at(e.get_pointer(level, LEVEL, "sets"), e.mul(number, constant(I64, SET.itemsize)))

    def candidates(self) -> Value:
        """Return a mask of the ways whose mark matches; their tags remain to be compared."""
        e = self._e
        return e.mask_of(e.icmp_unsigned("==", e.load_lanes(self.address, I8), e.splat(self.mark)))

    def place(self, way: Value) -> Value:
        """Return the address of the words of the line in a way."""
        e = self._e
        first = e.at(e.get_pointer(self._level, LEVEL, "lines"), e.mul(self.number, constant(I64, 8 * line_words(self._sectors))))
        return e.at(first, e.mul(way, e.get(self._level, LEVEL, "way_bytes")))

    def put(self, place: Value, way: Value) -> None:
        """Insert the line into a way, at address `place`, with all sectors absent."""
        e = self._e
        e.store(self.mark, e.element(self.address, way, I8))
        e.store(e.shl(_quarters(e, self.line), ir.Constant(_QUARTERS, [ARRIVAL_BITS] * LINE_WORDS)), place, align=8)
        for word in range(LINE_WORDS, line_words(self._sectors)):
            e.store(constant(I64, 0), e.at(place, 8 * word))

    def _ages(self) -> Value:
        return self._e.at(self.address, offset(SET, "ages"))

    def oldest(self) -> Value:
        """Return the least recently used way, empty ways first; i64."""
        e, ages = self._e, self._e.load_lanes(self._ages(), I8)
        ways = e.popcount(e.mask_of(e.icmp_unsigned("!=", ages, constant(vector(I8), NO_WAY))))
        last = e.splat(e.trunc(e.sub(ways, constant(I32, 1)), I8))
        return e.zext(e.lowest_bit(e.mask_of(e.icmp_unsigned("==", ages, last))), I64)

    def use(self, way: Value) -> None:
        """Mark a way as the most recently used."""
        e, ages = self._e, self._e.load_lanes(self._ages(), I8)
        own = e.load(e.element(self._ages(), way, I8), typ=I8)
        older = e.sub(ages, e.sext(e.icmp_unsigned("<", ages, e.splat(own)), vector(I8)))
        is_own = e.icmp_unsigned("==", lane_numbers(I8), e.splat(e.trunc(way, I8)))
        e.store_lanes(e.select(is_own, constant(vector(I8), 0), older), self._ages())

    def find(self, allocate: bool, is_far: bool = False) -> Value:
        """Call the helper `find` for this set and line."""
        return invoke(self._e, find(self._sectors, allocate, is_far), self._level, self.number, self.mark, self.line)


def place_number(e: Emit, sectors: int, level: Value, place: Value) -> Value:
    """Return the index of a line's place among the places of all sets and ways; i64."""
    distance = e.sub(e.ptrtoint(place, I64), e.get(level, LEVEL, "lines"))
    return e.udiv(distance, constant(I64, 8 * line_words(sectors)))


@cache
def find(sectors: int, allocate: bool, is_far: bool = False) -> Helper:
    """Return the helper `(level: ptr, set: i64, mark: i8, line: i64) -> ptr` that looks a line up and returns the address of its words.

    A hit makes the line the most recently used. A miss returns null, or with `allocate` evicts the least recently used line and returns its
    place, with all sectors absent. In L2 (`is_far`), an eviction counts the dirty sectors and charges DRAM for their write-back."""

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
    """Count the dirty sectors at `place`, charge DRAM for them, and reset the counts of atomics of the line there."""
    back = constant(I64, 0)
    for sector in range(sectors):
        back = e.add(back, _is_dirty(e, e.load(e.at(place, 8 * sector), typ=I64)))
    e.bump(level, LEVEL, "written_back", back)
    _keep_dram_busy(e, sectors, level, place, back)
    # Without atomics all counts are 0: do not touch their memory.
    with e.if_then(e.icmp_unsigned("!=", e.get(level, LEVEL, "hottest"), constant(I64, 0)), likely=False):
        number = place_number(e, sectors, level, place)
        own = e.element(e.get_pointer(level, LEVEL, "atomics"), e.shl(number, constant(I64, 1)), I64)
        for word in range(2):
            e.store(constant(I64, 0), e.at(own, 8 * word))


def _keep_dram_busy(e: Emit, sectors: int, level: Value, place: Value, back: Value) -> None:
    """Charge DRAM for writing back the `back` dirty sectors at `place`.

    Where stores left sectors partly written, whole pieces of DRAM are written, and read first."""
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
    """Return 1 for a word of a dirty sector, else 0; i64."""
    return e.and_(e.lshr(word, constant(I64, DIRTY_BIT)), constant(I64, 1))
