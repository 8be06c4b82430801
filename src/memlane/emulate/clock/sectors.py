"""Serve the sectors of one line of an access from L1, L2 or DRAM: the innermost part of `caches`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import llvmlite.ir as ir

from memlane.emulate.clock.levels import DIRTY, LEVEL, PRESENT, line_words
from memlane.emulate.clock.places import Set, is_at, place_number
from memlane.emulate.clock.queues import QUEUES, cost, ring, since, wait_at_dram, wait_in
from memlane.emulate.code.build import I8, I32, I64, POINTER, Emit, Value, Variable, constant, spread
from memlane.emulate.runtime.helper import Helper, invoke

LOAD: Final = "load"
LOAD_PAST_L1: Final = "load_past_l1"
STORE: Final = "store"
ATOMIC: Final = "atomic"
"""Kinds of access. `LOAD_PAST_L1`: `ld.cg`, volatile loads, relaxed and acquire loads of a scope wider than the block; `ATOMIC`: also
reductions."""
L1, L2, DRAM = 1, 2, 4


@dataclass(frozen=True)
class Rule:
    """Parameters of a chip and an operation that the generated code depends on."""

    line_bytes: int
    sector_bytes: int
    lines_per_pass: int
    l1: int
    l2: int
    dram: int
    atomic: int
    load_lines: bool
    """Whether a load that misses L1 fetches the whole line."""
    packet: int = 0
    """Time for which a packet of atomic operations keeps its part of L2 busy, in 1 / `BUSY_PARTS` clocks; 0 where it is not known."""
    whole_packet: int = 0
    spread: tuple[int, int] = (1, 1)
    """Share of that time, as numerator and denominator, that counts when operations go to many lines.

    An operation that waits for its own previous result leaves the part of L2 free for other lines meanwhile."""

    @property
    def sectors(self) -> int:
        return self.line_bytes // self.sector_bytes

    @property
    def name(self) -> str:
        return (
            f"{self.line_bytes}_{self.sector_bytes}_{self.lines_per_pass}_{self.l1}_{self.l2}_{self.dram}_{self.atomic}_{self.load_lines:d}"
            f"_{self.packet}_{self.whole_packet}_{'_'.join(map(str, self.spread))}"
        )


def look_in_l1(e: Emit, rule: Rule, one: Set, sectors: Value, time: Value, place: Value, kept: Value) -> Value:
    """Look a line up in L1, allocating it, and return a mask of the `sectors` that are present or arrive within the latency of L1.

    The address of the line is stored at `place`, and its words as they were at `kept`."""
    words = ir.VectorType(I64, line_words(rule.sectors))
    where = one.find(allocate=True)
    word = e.load(where, typ=words, align=8)
    e.store(where, place)
    e.store(word, kept, align=8)
    arrival = e.sub(e.and_(word, constant(words, PRESENT)), constant(words, 1))  # an absent sector becomes -1, later than any time
    there = e.icmp_unsigned("<=", arrival, spread(e, e.add(time, constant(I64, rule.l1)), words.count))
    return e.and_(sectors, e.zext(e.bitcast(there, ir.IntType(words.count)), I32))


@cache
def load_beyond_l1(rule: Rule) -> Helper:
    """Return the helper that serves the sectors of a line that a load did not find in L1.

    `(l2, set: i64, mark: i8, line: i64, sectors: i32, time: i64, place, words) -> i64`: latency of the slowest sector, levels << 32, and
    the number of sectors that were absent in L1 << 40; sectors in flight to L1 do not count as absent. `place` and `words` are those that
    `look_in_l1` stored."""

    def build(e: Emit, l2: Value, number: Value, mark: Value, line: Value, sectors: Value, time: Value, place: Value, words: Value) -> None:
        latest, levels, missed = (e.variable(constant(I64, 0)) for _ in range(3))
        far = _FarLine(e, rule, LOAD, l2, Set(e, rule.sectors, l2, number, mark, line), time)
        is_there = is_at(e, line, place)  # unless another line of the same access evicted it
        with e.each_lane(sectors) as sector:
            arrival = _held(e, e.element(words, sector, I64))
            with e.if_else(e.icmp_unsigned("!=", arrival, constant(I64, 0))) as (hit, miss):
                with hit:
                    _note(e, latest, levels, L1, _wait(e, rule, l2, arrival, time, rule.l1))
                with miss:
                    latency = far.serve(sector, levels)
                    missed.set(e.add(missed.get(), constant(I64, 1 << 40)))
                    with e.if_then(is_there, likely=True):
                        _hold(e, e.element(place, sector, I64), e.add(e.add(time, latency), constant(I64, 1)))
                    _note(e, latest, levels, 0, latency)
        e.ret(e.or_(missed.get(), e.or_(latest.get(), e.shl(levels.get(), constant(I64, 32)))))

    return Helper(f"memlane_load_beyond_l1_{rule.name}", I64, (POINTER, I64, I8, I64, I32, I64, POINTER, POINTER), build)


@cache
def access_l2(rule: Rule, kind: str) -> Helper:
    """Return the helper that serves the sectors of one line of an access that bypasses L1: a store, an atomic or a load past L1.

    `(near: ptr, l2, set: i64, mark: i8, line: i64, sectors: i32, time: i64, busy: i64) -> i64`: the latency of the slowest sector, and the
    levels << 32. `near` is the address of the line in L1, or null; `busy` the time for which atomic operations keep a part of L2 busy, in
    1 / `BUSY_PARTS` clocks."""

    def build(e: Emit, near: Value, l2: Value, number: Value, mark: Value, line: Value, sectors: Value, time: Value, busy: Value) -> None:
        latest, levels = (e.variable(constant(I64, 0)) for _ in range(2))
        far = _FarLine(e, rule, kind, l2, Set(e, rule.sectors, l2, number, mark, line), time)
        with e.each_lane(sectors) as sector:
            if kind == ATOMIC:
                with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(near, I64), constant(I64, 0))):
                    _hold(e, e.element(near, sector, I64), constant(I64, 0))
            _note(e, latest, levels, 0, far.serve(sector, levels))
        if kind == ATOMIC:
            _count_atomics(e, rule, l2, far.place.get(), sectors, busy)
        e.ret(e.or_(latest.get(), e.shl(levels.get(), constant(I64, 32))))

    return Helper(f"memlane_access_l2_{kind}_{rule.name}", I64, (POINTER, POINTER, I64, I8, I64, I32, I64, I64), build)


class _FarLine:
    """Line in L2, looked up at the first request for one of its sectors."""

    def __init__(self, e: Emit, rule: Rule, kind: str, l2: Value, one: Set, time: Value) -> None:
        self._e, self._rule, self._kind, self._l2, self._set, self._time = e, rule, kind, l2, one, time
        self.place = e.variable(e.inttoptr(constant(I64, 0), POINTER))

    def serve(self, sector: Value, levels: Variable) -> Value:
        """Serve a sector from L2 or DRAM, and return its latency."""
        e, rule = self._e, self._rule
        with e.if_then(e.icmp_unsigned("==", e.ptrtoint(self.place.get(), I64), constant(I64, 0))):
            self.place.set(self._set.find(allocate=True, is_far=True))
        return _from_l2(e, rule, self._kind, self._l2, e.element(self.place.get(), sector, I64), self._time, levels)


def _count_atomics(e: Emit, rule: Rule, l2: Value, place: Value, sectors: Value, busy: Value) -> None:
    """Count the sectors of a request with atomic operations, and their `busy` time, for the line whose words are at `place`."""
    number = place_number(e, rule.sectors, l2, place)
    own = e.element(e.get_pointer(l2, LEVEL, "atomics"), e.shl(number, constant(I64, 1)), I64)
    longer = e.at(own, 8)
    e.store(e.add(e.load(longer, typ=I64), busy), longer)
    share, of = rule.spread
    e.bump(l2, LEVEL, "atomic_busy", e.udiv(e.mul(busy, constant(I64, share)), constant(I64, of)))
    total = e.add(e.load(own, typ=I64), e.zext(e.popcount(sectors), I64))
    e.store(total, own)
    e.put(e.intrinsic("umax", [e.get(l2, LEVEL, "hottest"), total]), l2, LEVEL, "hottest")


def _from_l2(e: Emit, rule: Rule, kind: str, l2: Value, slot: Value, time: Value, levels: Variable) -> Value:
    """Return the latency of a request to L2 for one sector; a miss allocates the sector, and fetches it from DRAM unless it is a store."""
    at_hit = rule.atomic if kind == ATOMIC else rule.l2
    extra = rule.atomic - rule.l2 if kind == ATOMIC else 0
    dirty = constant(I64, DIRTY if kind in (STORE, ATOMIC) else 0)
    held = _held(e, slot)
    latency = e.variable(constant(I64, at_hit))
    with e.if_else(e.icmp_unsigned("!=", held, constant(I64, 0))) as (hit, miss):
        with hit:
            if kind in (STORE, ATOMIC):
                with e.if_then(e.icmp_unsigned("<", held, dirty), likely=False):  # a store to host memory costs time: only if clean
                    _hold(e, slot, e.or_(held, dirty))
            if kind != STORE:
                arrival = e.and_(held, constant(I64, ~DIRTY))
                latency.set(e.intrinsic("smax", [_wait(e, rule, l2, arrival, time, rule.l2), constant(I64, rule.l2)]))
                latency.set(e.add(latency.get(), constant(I64, extra)))
            levels.set(e.or_(levels.get(), constant(I64, L2)))
        with miss:
            fetched = rule.l2 if kind == STORE else rule.dram
            name = "allocated" if kind == STORE else "fetched"
            e.bump(l2, LEVEL, name)
            # The words of a pair of sectors, 8 bytes each, differ in bit 3 of their addresses.
            other = _held(e, e.inttoptr(e.xor(e.ptrtoint(slot, I64), constant(I64, 8)), POINTER))
            is_first = e.zext(e.icmp_unsigned("==", other, constant(I64, 0)), I64)
            e.bump(l2, LEVEL, f"{name}_pairs", is_first)
            latency.set(constant(I64, fetched + extra))
            latency.set(e.add(latency.get(), _wait_for_dram(e, kind, l2, time, is_first)))
            _hold(e, slot, e.or_(e.add(e.add(time, latency.get()), constant(I64, 1)), dirty))
            levels.set(e.or_(levels.get(), constant(I64, L2 if kind == STORE else DRAM)))
    return latency.get()


def _held(e: Emit, slot: Value) -> Value:
    """Return the arrival field of the word of a sector, with its dirty bit; 0 if the sector is absent."""
    return e.and_(e.load(slot, typ=I64), constant(I64, PRESENT))


def _hold(e: Emit, slot: Value, held: Value) -> None:
    """Replace the arrival field of the word of a sector, and keep its piece of the tag."""
    e.store(e.or_(e.and_(e.load(slot, typ=I64), constant(I64, ~PRESENT)), held), slot)


def _wait_for_dram(e: Emit, kind: str, l2: Value, time: Value, is_first: Value) -> Value:
    """Return the cycles for which a sector that L2 lacks waits for DRAM. A store waits for earlier work of DRAM, such as write-backs.

    `is_first` is 1 if the other sector of its pair is absent, else 0."""
    queues = e.get_pointer(l2, LEVEL, "queues")
    if kind == STORE:
        return invoke(e, wait_in, ring(e, queues, "dram"), since(e, queues, time), constant(I64, 0))
    amount = e.add(e.get(queues, QUEUES, "fetched"), cost(e, queues, "fetched_pairs", is_first))
    waited = invoke(e, wait_at_dram, queues, time, amount)
    e.put(waited, l2, LEVEL, "delay")
    return waited


def _wait(e: Emit, rule: Rule, l2: Value, arrival: Value, time: Value, latency: int) -> Value:
    """Return the latency of a sector that is present or in flight: at least `latency`, at most that of a miss."""
    left = e.sub(e.sub(arrival, constant(I64, 1)), time)
    most = e.add(constant(I64, max(latency, rule.dram)), e.get(l2, LEVEL, "delay"))
    return e.intrinsic("smin", [e.intrinsic("smax", [left, constant(I64, latency)]), most])


def _note(e: Emit, latest: Variable, levels: Variable, level: int, latency: Value) -> None:
    latest.set(e.intrinsic("umax", [latest.get(), latency]))
    if level:
        levels.set(e.or_(levels.get(), constant(I64, level)))
