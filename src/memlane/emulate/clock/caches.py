"""The clock layer's view of the memory behind an access: a first-level cache for each multiprocessor, L2, DRAM.

    caches = Caches(chip, sm_count=4, shared_bytes=49152)              # the state; L1 is what shared memory leaves
    result = invoke(e, access_helper(chip, LOAD), caches_pointer, sm, addresses, distance, mask, nbytes, time)
    # i64: latency in cycles | levels << 32 | passes << 40             levels: L1 = 1, L2 = 2, DRAM = 4

The model
- Lines of `line_bytes` in sectors of `sector_bytes`; a miss brings only the sectors asked for. Each cache is set associative with exact
  LRU and 16 to 31 ways (fewer in tiny caches), the sets being a power of two. Assumed: NVIDIA publishes neither; simulators that were
  fitted to Volta and later take 48 ways and more in L1. The set is the line's number with its upper parts folded in, so that power-of-two
  strides spread.
- L1 is written through. A store goes to L2; sectors that L1 holds stay valid (they are updated), others are not brought in. The V100
  white paper and the Turing tuning guide say that L1 caches stores since Volta, but not which ones allocate: that none does is assumed.
- L2 keeps what is stored, without reading DRAM first (it has byte masks). What is written back costs nobody any time; it is counted.
- Atomics and reductions are done in L2, and what L1 holds of their sectors is dropped.
- A sector on its way is not fetched twice: who asks for it meanwhile waits for its arrival. Warps need not be simulated in the order of
  time, so an arrival can lie further ahead than a whole miss takes; then the access would have been the one that missed, and takes as
  long as a miss.
- The latency is that of the slowest sector and one cycle for each pass after the first: `lines_per_wavefront` tags, or the data of one
  line, a pass. No access waits for the bandwidths of L2 and DRAM; what moved is counted (`TRAFFIC`), for the floors of a launch
  (`memlane.chip.floors`). TLBs and the two halves of a large L2 are not modelled.

Launches on one device share `l2`; L1 is empty at the start of each launch, as on the hardware. Times must not restart while `l2` lives on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import llvmlite.ir as ir

from memlane.chip import LANES, Chip
from memlane.emulate.clock.levels import BUSY_PARTS, CACHES, DIRTY, DIRTY_BIT, FEW_WAYS, LEVEL, MOST_WAYS
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant, vector
from memlane.emulate.code.sorting import before, permute
from memlane.emulate.layout import FULL
from memlane.emulate.runtime.helper import Helper, invoke

LOAD: Final = "load"
LOAD_PAST_L1: Final = "load_past_l1"
STORE: Final = "store"
ATOMIC: Final = "atomic"
"""Kinds of access. `LOAD_PAST_L1`: `ld.cg`, volatile, relaxed and acquire loads beyond the block; `ATOMIC`: also reductions."""
L1, L2, DRAM = 1, 2, 4
MANY_LINES = 4
"""Of one access: from so many on it pays to fetch what is known of all of them before the first is looked at."""
HOST_LINE_BYTES = 64


@dataclass(frozen=True)
class _Rule:
    """What of a chip shapes the code."""

    line_bytes: int
    sector_bytes: int
    lines_per_pass: int
    l1: int
    l2: int
    dram: int
    atomic: int
    load_lines: bool
    """Whether a load that misses L1 brings the whole line."""
    packet: int = 0
    """For how many `BUSY_PARTS` of a clock a packet of atomic operations keeps its part of L2 busy."""
    whole_packet: int = 0
    spread: tuple[int, int] = (1, 1)
    """Of that time, the share that counts where the lines are many: what waits for its own last result leaves the part to others."""

    @property
    def sectors(self) -> int:
        return self.line_bytes // self.sector_bytes

    @property
    def name(self) -> str:
        return (
            f"{self.line_bytes}_{self.sector_bytes}_{self.lines_per_pass}_{self.l1}_{self.l2}_{self.dram}_{self.atomic}_{self.load_lines:d}"
            f"_{self.packet}_{self.whole_packet}_{'_'.join(map(str, self.spread))}"
        )


def access_helper(chip: Chip, kind: str, operation: str = "") -> Helper:
    """`(caches: ptr, sm: i32, addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32, time: i64) -> i64`, packed as said above.

    One access of a warp to global-like memory, `distance` added to each address, that the memory pipe takes at `time`. Naturally aligned.
    0 without an active lane. The latency of a store or reduction is the time until L2 has it. `operation`: of atomic ones, `float` for
    additions of floats, `pair` for those with two operands.
    """
    latency = chip.latency
    packet, whole = _packets(chip, operation) if kind == ATOMIC else (0, 0)
    return _access(
        _Rule(
            chip.line_bytes,
            chip.sector_bytes,
            chip.coalescing.lines_per_wavefront,
            _cycles(latency.l1),
            _cycles(latency.l2),
            _cycles(latency.dram),
            _cycles(latency.global_atomic),
            chip.piece_bytes("load") == chip.line_bytes,
            packet,
            whole,
            (_packets(chip, "")[0], packet) if packet else (1, 1),
        ),
        kind,
    )


@cache
def _access(rule: _Rule, kind: str) -> Helper:
    line_helper = _line(rule, kind)

    def build(e: Emit, caches: Value, sm: Value, addresses: Value, distance: Value, mask: Value, nbytes: Value, time: Value) -> None:
        l1 = e.at(e.get_pointer(caches, CACHES, "l1"), e.mul(e.zext(sm, I64), constant(I64, LEVEL.itemsize)))
        l2 = e.get_pointer(caches, CACHES, "l2")
        lanes = e.add(e.load_lanes(addresses, I64), e.splat(distance))
        lines = e.lshr(lanes, constant(vector(I64), _bits(rule.line_bytes)))
        wanted = _sectors_of_lanes(e, rule, lanes, nbytes)
        leaders = e.and_(mask, e.or_(e.mask_of(e.icmp_unsigned("!=", lines, before(e, lines))), constant(I32, 1)))
        numbers, sectors_of_lanes = e.local(vector(I64), align=64), e.local(vector(I32), align=64)
        e.store_lanes(lines, numbers)
        with e.if_then(e.icmp_unsigned(">=", e.popcount(leaders), constant(I32, MANY_LINES)), likely=False):
            e.store_lanes(wanted, sectors_of_lanes)
            invoke(e, _bring_near(rule, kind), l1, l2, numbers, sectors_of_lanes, leaders)
        left = e.variable(mask)
        latest, levels, line_count, sector_count, moved, whole, part_lines = (e.variable(constant(I64, 0)) for _ in range(7))
        with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
            line = e.load(e.element(numbers, e.lowest_bit(left.get()), I64), typ=I64)
            here = e.and_(e.mask_of(e.icmp_unsigned("==", lines, e.splat(line))), left.get())
            left.set(e.xor(left.get(), here))
            sectors = e.reduce("or", e.select(e.lanes_of(here), wanted, constant(vector(I32), 0)))
            if rule.load_lines and kind == LOAD:
                sectors = constant(I32, (1 << rule.sectors) - 1)
            busy = _atomic_work(e, rule, lanes, here, nbytes) if rule.packet else constant(I64, 0)
            served = invoke(e, line_helper, l1, l2, line, sectors, time, busy)
            latest.set(e.intrinsic("umax", [latest.get(), e.and_(served, constant(I64, FULL))]))
            levels.set(e.or_(levels.get(), e.and_(e.lshr(served, constant(I64, 32)), constant(I64, 0xFF))))
            line_count.set(e.add(line_count.get(), constant(I64, 1)))
            touched = e.zext(e.popcount(sectors), I64)
            sector_count.set(e.add(sector_count.get(), touched))
            if kind == LOAD:  # sectors, and << 32 lines, that L1 did not have
                missed = e.lshr(served, constant(I64, 40))
                some = e.zext(e.icmp_unsigned("!=", missed, constant(I64, 0)), I64)
                moved.set(e.add(moved.get(), e.or_(missed, e.shl(some, constant(I64, 32)))))
            if kind == STORE:
                filled = e.intrinsic("umin", [touched, _filled(e, rule, here, nbytes)])
                whole.set(e.add(whole.get(), filled))
                is_part = e.zext(e.icmp_unsigned("!=", filled, touched), I64)
                part_lines.set(e.add(part_lines.get(), is_part))
                moved.set(e.add(moved.get(), e.mul(is_part, e.zext(e.mul(e.popcount(here), nbytes), I64))))
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret(constant(I64, 0))
        _count_traffic(e, kind, l1, line_count.get(), sector_count.get(), moved.get(), whole.get(), part_lines.get())
        passes = e.intrinsic("umax", [_ceiling(e, line_count.get(), rule.lines_per_pass), _ceiling(e, sector_count.get(), rule.sectors)])
        latency = e.add(latest.get(), e.sub(passes, constant(I64, 1)))
        e.ret(e.or_(latency, e.or_(e.shl(levels.get(), constant(I64, 32)), e.shl(passes, constant(I64, 40)))))

    return Helper(f"memlane_access_{kind}_{rule.name}", I64, (POINTER, I32, POINTER, I64, I32, I32, I64), build)


def _count_traffic(e: Emit, kind: str, l1: Value, lines: Value, sectors: Value, moved: Value, whole: Value, part_lines: Value) -> None:
    """Add what an access moves to the counters of its multiprocessor. `moved`: of a `LOAD` the sectors that L1 did not have and << 32 their
    lines, of a `STORE` the bytes in lines that it writes in part."""
    if kind == LOAD:
        e.bump(l1, LEVEL, "read", e.and_(moved, constant(I64, FULL)))
        e.bump(l1, LEVEL, "read_lines", e.lshr(moved, constant(I64, 32)))
    elif kind == LOAD_PAST_L1:
        e.bump(l1, LEVEL, "read", sectors)
        e.bump(l1, LEVEL, "read_lines", lines)
    elif kind == ATOMIC:
        e.bump(l1, LEVEL, "atomic", sectors)
    else:
        e.bump(l1, LEVEL, "written", whole)
        e.bump(l1, LEVEL, "partly_written", e.sub(sectors, whole))
        e.bump(l1, LEVEL, "written_lines", e.sub(lines, part_lines))
        e.bump(l1, LEVEL, "partly_written_lines", part_lines)
        e.bump(l1, LEVEL, "partly_written_bytes", moved)


def _filled(e: Emit, rule: _Rule, lanes: Value, nbytes: Value) -> Value:
    """No fewer sectors than so many lanes with `nbytes` each can write whole."""
    return e.zext(e.lshr(e.mul(e.popcount(lanes), nbytes), constant(I32, _bits(rule.sector_bytes))), I64)


def _sectors_of_lanes(e: Emit, rule: _Rule, lanes: Value, nbytes: Value) -> Value:
    """Bit k of each lane: it touches sector k of its line."""
    first = e.and_(
        e.lshr(e.trunc(lanes, vector(I32)), constant(vector(I32), _bits(rule.sector_bytes))), constant(vector(I32), rule.sectors - 1)
    )
    count = e.udiv(e.add(nbytes, constant(I32, rule.sector_bytes - 1)), constant(I32, rule.sector_bytes))
    return e.shl(e.splat(e.sub(e.shl(constant(I32, 1), count), constant(I32, 1))), first)


def _line(rule: _Rule, kind: str) -> Helper:
    """`(l1, l2, line: i64, sectors: i32, time: i64, busy: i64) -> i64`: the latency of the slowest of the sectors
    of one line, the levels << 32, and for a `LOAD` << 40 how many of the sectors L1 did not have. `busy`: of atomic operations."""

    def build(e: Emit, l1: Value, l2: Value, line: Value, sectors: Value, time: Value, busy: Value) -> None:
        latest, levels, missed = (e.variable(constant(I64, 0)) for _ in range(3))
        near = None if kind == LOAD_PAST_L1 else invoke(e, _find(rule, kind == LOAD), l1, line)
        far_place = e.variable(e.inttoptr(constant(I64, 0), POINTER))

        def beyond(sector: Value) -> Value:
            """Serve a sector from L2 or DRAM: its latency."""
            with e.if_then(e.icmp_unsigned("==", e.ptrtoint(far_place.get(), I64), constant(I64, 0))):
                far_place.set(invoke(e, _find(rule, True, is_far=True), l2, line))
            return _from_l2(e, rule, kind, l2, e.element(far_place.get(), sector, I64), time, levels)

        with e.each_lane(sectors) as sector:
            if kind == LOAD:
                slot = e.element(near, sector, I64)
                arrival = e.load(slot, typ=I64)
                with e.if_else(e.icmp_signed("!=", arrival, constant(I64, 0))) as (hit, miss):
                    with hit:
                        _note(e, latest, levels, L1, _wait(e, rule, arrival, time, rule.l1))
                    with miss:
                        latency = beyond(sector)
                        missed.set(e.add(missed.get(), constant(I64, 1 << 40)))
                        e.store(e.add(e.add(time, latency), constant(I64, 1)), slot)
                        _note(e, latest, levels, 0, latency)
            else:
                if kind == ATOMIC:
                    with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(near, I64), constant(I64, 0))):
                        e.store(constant(I64, 0), e.element(near, sector, I64))
                _note(e, latest, levels, 0, beyond(sector))
        if kind == ATOMIC:
            _count_atomics(e, rule, l2, far_place.get(), sectors, busy)
        e.ret(e.or_(missed.get(), e.or_(latest.get(), e.shl(levels.get(), constant(I64, 32)))))

    return Helper(f"memlane_line_{kind}_{rule.name}", I64, (POINTER, POINTER, I64, I32, I64, I64), build)


def _packets(chip: Chip, operation: str) -> tuple[int, int]:
    """For how many `BUSY_PARTS` of a clock a packet keeps a part of L2 busy, and one for all bytes of a sector; 0 where it is not known."""
    rates = chip.bandwidth
    if rates.atomic_packets is None:
        return 0, 0
    if operation == "float" and rates.atomic_floats is not None:
        each = round(BUSY_PARTS / rates.atomic_floats)
        return each, each
    whole = BUSY_PARTS / (rates.atomic_whole or rates.atomic_packets)
    return round(BUSY_PARTS / rates.atomic_packets), round(2 * whole if operation == "pair" else whole)


def _atomic_work(e: Emit, rule: _Rule, lanes: Value, here: Value, nbytes: Value) -> Value:
    """For how many `BUSY_PARTS` of a clock the atomic operations of the lanes in one line keep its part of L2 busy.

    In each sector there are as many packets as lanes at the word that most lanes meet in, and as many for all of its bytes as at the word
    with the fewest.
    """
    words = e.and_(e.lshr(e.trunc(lanes, vector(I32)), constant(vector(I32), 2)), constant(vector(I32), rule.line_bytes // 4 - 1))
    wide = e.zext(e.icmp_unsigned("==", nbytes, constant(I32, 8)), I32)  # operations on 8 bytes take two words
    words, total = e.lshr(words, e.splat(wide)), constant(I64, 0)
    for sector in range(rule.sectors):
        most, fewest = constant(I32, 0), constant(I32, LANES)
        for word in range(sector * rule.sector_bytes // 4, (sector + 1) * rule.sector_bytes // 4):
            at = e.icmp_unsigned("==", words, e.splat(e.lshr(constant(I32, word), wide)))
            met = e.popcount(e.and_(e.mask_of(at), here))
            most, fewest = e.intrinsic("umax", [most, met]), e.intrinsic("umin", [fewest, met])
        parts = e.mul(e.sub(most, fewest), constant(I32, rule.packet))
        total = e.add(total, e.zext(e.add(parts, e.mul(fewest, constant(I32, rule.whole_packet))), I64))
    return total


def _count_atomics(e: Emit, rule: _Rule, l2: Value, place: Value, sectors: Value, busy: Value) -> None:
    """Count the sectors of a request with atomic operations in the line whose arrivals are at `place`, and for how long they take."""
    distance = e.sub(e.ptrtoint(place, I64), e.get(l2, LEVEL, "arrivals"))
    own = e.at(e.get_pointer(l2, LEVEL, "atomics"), e.shl(e.udiv(distance, constant(I64, rule.sectors)), constant(I64, 1)))
    longer = e.at(own, 8)
    e.store(e.add(e.load(longer, typ=I64), busy), longer)
    share, of = rule.spread
    e.bump(l2, LEVEL, "atomic_busy", e.udiv(e.mul(busy, constant(I64, share)), constant(I64, of)))
    total = e.add(e.load(own, typ=I64), e.zext(e.popcount(sectors), I64))
    e.store(total, own)
    e.put(e.intrinsic("umax", [e.get(l2, LEVEL, "hottest"), total]), l2, LEVEL, "hottest")


def _from_l2(e: Emit, rule: _Rule, kind: str, l2: Value, slot: Value, time: Value, levels: Any) -> Value:
    """The latency of one sector that L2 is asked for; brings it in if it is not there."""
    at_hit = rule.atomic if kind == ATOMIC else rule.l2
    extra = rule.atomic - rule.l2 if kind == ATOMIC else 0
    dirty = constant(I64, DIRTY if kind in (STORE, ATOMIC) else 0)
    held = e.load(slot, typ=I64)
    latency = e.variable(constant(I64, at_hit))
    with e.if_else(e.icmp_signed("!=", held, constant(I64, 0))) as (hit, miss):
        with hit:
            if kind in (STORE, ATOMIC):
                with e.if_then(e.icmp_unsigned("<", held, dirty), likely=False):  # as a store to memory that is clean costs time
                    e.store(e.or_(held, dirty), slot)
            if kind != STORE:
                arrival = e.and_(held, constant(I64, ~DIRTY))
                latency.set(e.intrinsic("smax", [_wait(e, rule, arrival, time, rule.l2), constant(I64, rule.l2)]))
                latency.set(e.add(latency.get(), constant(I64, extra)))
            levels.set(e.or_(levels.get(), constant(I64, L2)))
        with miss:
            fetched = rule.l2 if kind == STORE else rule.dram
            e.store(e.or_(e.add(time, constant(I64, fetched + 1)), dirty), slot)
            name = "allocated" if kind == STORE else "fetched"
            e.bump(l2, LEVEL, name)
            # The arrivals of a pair of sectors are 8 bytes each, at an even multiple of 8 and behind it.
            other = e.load(e.inttoptr(e.xor(e.ptrtoint(slot, I64), constant(I64, 8)), POINTER), typ=I64)
            e.bump(l2, LEVEL, f"{name}_pairs", e.zext(e.icmp_unsigned("==", other, constant(I64, 0)), I64))
            latency.set(constant(I64, fetched + extra))
            levels.set(e.or_(levels.get(), constant(I64, L2 if kind == STORE else DRAM)))
    return latency.get()


def _wait(e: Emit, rule: _Rule, arrival: Value, time: Value, latency: int) -> Value:
    """The latency of a sector that is there or on its way: no less than `latency`, no more than a miss."""
    left = e.sub(e.sub(arrival, constant(I64, 1)), time)
    return e.intrinsic("smin", [e.intrinsic("smax", [left, constant(I64, latency)]), constant(I64, max(latency, rule.dram))])


def _note(e: Emit, latest: Any, levels: Any, level: int, latency: Value) -> None:
    latest.set(e.intrinsic("umax", [latest.get(), latency]))
    if level:
        levels.set(e.or_(levels.get(), constant(I64, level)))


@cache
def _bring_near(rule: _Rule, kind: str) -> Helper:
    """`(l1, l2, lines: <32 x i64>*, wanted: <32 x i32>*, lanes: i32)`: fetch what the host holds of these lines into its own caches, for
    all of them at once. One line after the other would wait for memory several times each. `wanted` are the sectors, a bit each."""

    def build(e: Emit, l1: Value, l2: Value, lines: Value, wanted: Value, lanes: Value) -> None:
        far = e.variable(lanes if kind != LOAD else constant(I32, 0))

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
                        _prefetch_way(e, rule, level, row, e.zext(e.lowest_bit(found), I64))
                    with absent:
                        missing.set(e.or_(missing.get(), e.shl(constant(I32, 1), lane)))
                        _prefetch_row(e, level, row, "stamps")
            return missing.get()

        def look_at_victims(level: Value, of: Value) -> None:
            with e.each_lane(of) as lane:
                row = _row(e, level, line_of(lane))
                stamps = e.element(e.get_pointer(level, LEVEL, "stamps"), row, I64)
                e.prefetch(_arrivals(e, rule, level, row, _oldest(e, level, stamps)))

        if kind != LOAD_PAST_L1:
            look_at_tags(l1, lanes)
        if kind == LOAD:
            missing = look_at_places(l1, lanes)
            far.set(missing)
            with e.each_lane(e.and_(lanes, e.not_(missing))) as lane:  # the line is there, but maybe not the sector
                line = line_of(lane)
                row = _row(e, l1, line)
                way = e.zext(e.lowest_bit(_match(e, l1, row, line)), I64)
                sector = e.zext(e.lowest_bit(e.load(e.element(wanted, lane, I32), typ=I32)), I64)
                arrival = e.load(e.element(_arrivals(e, rule, l1, row, way), sector, I64), typ=I64)
                with e.if_then(e.icmp_unsigned("==", arrival, constant(I64, 0))):
                    far.set(e.or_(far.get(), e.shl(constant(I32, 1), lane)))
            look_at_victims(l1, missing)
        look_at_tags(l2, far.get())
        look_at_victims(l2, look_at_places(l2, far.get()))

    name = f"memlane_bring_near_{kind}_{rule.sectors}"
    return Helper(name, VOID, (POINTER, POINTER, POINTER, POINTER, I32), build)


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


def _arrivals(e: Emit, rule: _Rule, level: Value, row: Value, way: Value) -> Value:
    """Where the arrivals of the sectors of a place are."""
    return e.element(e.get_pointer(level, LEVEL, "arrivals"), e.mul(e.add(row, way), constant(I64, rule.sectors)), I64)


def _prefetch_way(e: Emit, rule: _Rule, level: Value, row: Value, way: Value) -> None:
    e.prefetch(_arrivals(e, rule, level, row, way))
    e.prefetch(e.element(e.get_pointer(level, LEVEL, "stamps"), e.add(row, way), I64))


def _prefetch_row(e: Emit, level: Value, row: Value, field: str) -> None:
    first = e.element(e.get_pointer(level, LEVEL, field), row, I64)
    for distance in range(0, 8 * FEW_WAYS, HOST_LINE_BYTES):
        e.prefetch(e.at(first, distance))
    with e.if_then(_has_many_ways(e, level)):
        for distance in range(8 * FEW_WAYS, 8 * MOST_WAYS, HOST_LINE_BYTES):
            e.prefetch(e.at(first, distance))


@cache
def _find(rule: _Rule, allocate: bool, is_far: bool = False) -> Helper:
    """`(level: ptr, line: i64) -> ptr`: the arrivals of the sectors of a line, marked as used just now. If the line is not there: null,
    or with `allocate` the place of the one used longest ago, with all sectors absent. Of L2, which `is_far`, what goes is counted."""

    def build(e: Emit, level: Value, line: Value) -> None:
        first = _row(e, level, line)
        stamps = e.element(e.get_pointer(level, LEVEL, "stamps"), first, I64)
        found = _match(e, level, first, line)
        way = e.variable(e.zext(e.lowest_bit(found), I64))
        with e.if_then(e.icmp_unsigned("==", found, constant(I32, 0)), likely=False):
            if not allocate:
                e.ret(e.inttoptr(constant(I64, 0), POINTER))
            else:
                way.set(_oldest(e, level, stamps))
                tags = e.element(e.get_pointer(level, LEVEL, "tags"), first, I64)
                e.store(e.add(line, constant(I64, 1)), e.element(tags, way.get(), I64))
                place = _arrivals(e, rule, level, first, way.get())
                if is_far:
                    _write_back(e, rule, level, place, e.add(first, way.get()))
                for sector in range(rule.sectors):
                    e.store(constant(I64, 0), e.at(place, 8 * sector))
        e.store(e.bump(level, LEVEL, "uses"), e.element(stamps, way.get(), I64))
        e.ret(_arrivals(e, rule, level, first, way.get()))

    return Helper(f"memlane_find{'_place' if allocate else ''}{'_far' if is_far else ''}_{rule.sectors}", POINTER, (POINTER, I64), build)


def _write_back(e: Emit, rule: _Rule, level: Value, place: Value, number: Value) -> None:
    """Count the sectors at `place` that were stored to, and begin anew to count the atomics at the line of this number."""
    back = constant(I64, 0)
    for sector in range(rule.sectors):
        back = e.add(back, e.lshr(e.load(e.at(place, 8 * sector), typ=I64), constant(I64, DIRTY_BIT)))
    e.bump(level, LEVEL, "written_back", back)
    # Where there were none all counts are 0, and their memory is better not touched.
    with e.if_then(e.icmp_unsigned("!=", e.get(level, LEVEL, "hottest"), constant(I64, 0)), likely=False):
        for word in range(2):
            e.store(
                constant(I64, 0), e.at(e.element(e.get_pointer(level, LEVEL, "atomics"), e.shl(number, constant(I64, 1)), I64), 8 * word)
            )


def _oldest(e: Emit, level: Value, stamps: Value) -> Value:
    """The way that was used longest ago, or never; i64."""
    oldest = e.variable(constant(I64, 0))

    def look(count: int) -> None:
        kind = ir.VectorType(I64, count)
        numbers = ir.Constant(kind, list(range(count)))
        exists = e.icmp_unsigned("<", numbers, permute(e, e.splat(e.get(level, LEVEL, "ways")), [0] * count))
        ages = e.select(exists, e.load(stamps, typ=kind, align=8), constant(kind, -1))
        same = e.icmp_unsigned("==", ages, permute(e, e.splat(e.reduce("umin", ages)), [0] * count))
        oldest.set(e.zext(e.lowest_bit(e.bitcast(same, ir.IntType(count))), I64))

    with e.if_else(_has_many_ways(e, level)) as (many, few):
        with many:
            look(MOST_WAYS)
        with few:
            look(FEW_WAYS)
    return oldest.get()


def _ceiling(e: Emit, number: Value, by: int) -> Value:
    return e.udiv(e.add(number, constant(I64, by - 1)), constant(I64, by))


def _cycles(number: float) -> int:
    return max(1, round(number))


def _bits(power: int) -> int:
    return power.bit_length() - 1
