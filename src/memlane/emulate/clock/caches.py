"""The clock layer's view of the memory behind an access: a first-level cache for each multiprocessor, L2, DRAM.

    caches = Caches(chip, sm_count=4, shared_bytes=49152)              # the state; L1 is what shared memory leaves
    result = invoke(e, access_helper(chip, LOAD), caches_pointer, sm, addresses, distance, mask, nbytes, time)
    # i64: latency in cycles | levels << 32 | passes << 40             levels: L1 = 1, L2 = 2, DRAM = 4

The model
- Lines of `line_bytes` in sectors of `sector_bytes`; a miss brings only the sectors asked for. Each cache is set associative with exact
  LRU (`places`): the sets are a power of two, of 16 to 31 ways in L1 and 12 to 23 on average in L2, fewer in tiny caches. Assumed: NVIDIA
  publishes neither; simulators that were fitted to Volta and later take 48 ways and more in L1.
- L1 is written through. A store goes to L2; sectors that L1 holds stay valid (they are updated), others are not brought in. The V100
  white paper and the Turing tuning guide say that L1 caches stores since Volta, but not which ones allocate: that none does is assumed.
- L2 keeps what is stored, without reading DRAM first (it has byte masks). What is written back keeps DRAM busy.
- Atomics and reductions are done in L2, and what L1 holds of their sectors is dropped.
- A sector on its way is not fetched twice: who asks for it meanwhile waits for its arrival. Warps need not be simulated in the order of
  time, so an arrival can lie further ahead than a whole miss takes; then the access would have been the one that missed, and takes as
  long as a miss.
- The latency is that of the slowest sector and one cycle for each pass after the first: `lines_per_wavefront` tags, or the data of one
  line, a pass. What L1 does not serve waits besides in the queues of L2, of the way there or back, and of DRAM (`queues`). What moved is
  counted (`TRAFFIC`), for the floors of a launch (`memlane.chip.floors`). TLBs and the two halves of a large L2 are not modelled.

Launches on one device share `l2`; L1 is empty at the start of each launch, as on the hardware. Times must not restart while `l2` lives on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

from memlane.chip import Chip
from memlane.emulate.clock.levels import CACHES, DIRTY, LEVEL, PRESENT, line_words
from memlane.emulate.clock.places import bring_near, find
from memlane.emulate.clock.queues import QUEUES, atomic_work, cost, packets, ring, since, wait_at_dram, wait_at_l2, wait_in
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, Variable, constant, vector
from memlane.emulate.code.sorting import before
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
    packet, whole = packets(chip, operation) if kind == ATOMIC else (0, 0)
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
            (packets(chip, "")[0], packet) if packet else (1, 1),
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
            invoke(e, bring_near(rule.sectors, kind == LOAD, kind == LOAD_PAST_L1), l1, l2, numbers, sectors_of_lanes, leaders)
        left, far_before, found = e.variable(mask), _of_dram(e, l2), _Found.of(e)
        with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
            line = e.load(e.element(numbers, e.lowest_bit(left.get()), I64), typ=I64)
            here = e.and_(e.mask_of(e.icmp_unsigned("==", lines, e.splat(line))), left.get())
            left.set(e.xor(left.get(), here))
            sectors = e.reduce("or", e.select(e.lanes_of(here), wanted, constant(vector(I32), 0)))
            if rule.load_lines and kind == LOAD:
                sectors = constant(I32, (1 << rule.sectors) - 1)
            busy = (
                atomic_work(e, (rule.line_bytes, rule.sector_bytes), rule.packet, rule.whole_packet, lanes, here, nbytes)
                if rule.packet
                else constant(I64, 0)
            )
            allocated = e.get(l2, LEVEL, "allocated")
            found.add(e, invoke(e, line_helper, l1, l2, line, sectors, time, busy), e.zext(e.popcount(sectors), I64), busy, kind == LOAD)
            if kind == STORE:
                brought = e.sub(e.get(l2, LEVEL, "allocated"), allocated)
                found.add_stored(e, rule, l2, e.zext(e.popcount(sectors), I64), here, nbytes, brought)
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret(constant(I64, 0))
        _count_traffic(e, kind, l1, found)
        passes = e.intrinsic("umax", [_ceiling(e, found.lines.get(), rule.lines_per_pass), _ceiling(e, found.sectors.get(), rule.sectors)])
        far = e.sub(_of_dram(e, l2), far_before)
        latency = e.add(e.add(found.latest.get(), e.sub(passes, constant(I64, 1))), _wait_for_l2(e, rule, kind, caches, found, far, time))
        e.ret(e.or_(latency, e.or_(e.shl(found.levels.get(), constant(I64, 32)), e.shl(passes, constant(I64, 40)))))

    return Helper(f"memlane_access_{kind}_{rule.name}", I64, (POINTER, I32, POINTER, I64, I32, I32, I64), build)


@dataclass(frozen=True)
class _Found:
    """What the lines of an access add up to, as variables of the generated code."""

    latest: Variable
    levels: Variable
    lines: Variable
    sectors: Variable
    missed: Variable
    """Of a load: sectors that L1 did not have."""
    missed_lines: Variable
    whole: Variable
    """Of a store: sectors that it writes whole; and the lines, and the bytes in these, that it writes in part."""
    part_lines: Variable
    part_bytes: Variable
    busy: Variable
    """Of atomic operations: for how many `BUSY_PARTS` of a clock they keep a part of L2 busy."""

    @classmethod
    def of(cls, e: Emit) -> _Found:
        return cls(*(e.variable(constant(I64, 0)) for _ in fields(cls)))

    def add(self, e: Emit, served: Value, sectors: Value, busy: Value, looks: bool) -> None:
        """Add a line, given what its helper returned; `looks`: whether L1 was asked for it."""
        self.latest.set(e.intrinsic("umax", [self.latest.get(), e.and_(served, constant(I64, FULL))]))
        self.levels.set(e.or_(self.levels.get(), e.and_(e.lshr(served, constant(I64, 32)), constant(I64, 0xFF))))
        more = [(self.lines, constant(I64, 1)), (self.sectors, sectors), (self.busy, busy)]
        if looks:
            missed = e.lshr(served, constant(I64, 40))
            more += [(self.missed, missed), (self.missed_lines, e.zext(e.icmp_unsigned("!=", missed, constant(I64, 0)), I64))]
        for total, by in more:
            total.set(e.add(total.get(), by))

    def add_stored(self, e: Emit, rule: _Rule, l2: Value, sectors: Value, lanes: Value, nbytes: Value, brought: Value) -> None:
        """Add what `lanes` store to so many sectors of a line, of which the store brought some into L2."""
        whole = e.intrinsic("umin", [sectors, _filled(e, rule, lanes, nbytes)])
        is_part = e.zext(e.icmp_unsigned("!=", whole, sectors), I64)
        written = e.mul(is_part, e.zext(e.mul(e.popcount(lanes), nbytes), I64))
        for total, by in ((self.whole, whole), (self.part_lines, is_part), (self.part_bytes, written)):
            total.set(e.add(total.get(), by))
        e.bump(l2, LEVEL, "part_bytes", written)
        e.bump(l2, LEVEL, "part_sectors", e.mul(is_part, brought))


def _of_dram(e: Emit, l2: Value) -> Value:
    """The sectors that L2 had from DRAM, in pairs where it gets pairs, and that it wrote there."""
    return e.add(e.shl(e.get(l2, LEVEL, "fetched_pairs"), constant(I64, 1)), e.get(l2, LEVEL, "written_back"))


def _moved(e: Emit, rule: _Rule, kind: str, found: _Found) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """What an access moves between its multiprocessor and L2, by the names of costs: sectors, and the lines that they are in."""
    lines, sectors = found.lines.get(), found.sectors.get()
    if kind == LOAD:
        return {"read": found.missed.get()}, {"read_lines": found.missed_lines.get()}
    if kind == LOAD_PAST_L1:
        return {"read": sectors}, {"read_lines": lines}
    if kind == ATOMIC:
        share, of = rule.spread
        return {"atomic": e.udiv(e.mul(found.busy.get(), constant(I64, share)), constant(I64, of)) if rule.packet else sectors}, {}
    whole, part_lines = found.whole.get(), found.part_lines.get()
    by_line = {"written_lines": e.sub(lines, part_lines), "partly_written_lines": part_lines}
    return {"written": whole, "partly_written": e.sub(sectors, whole)}, by_line


def _wait_for_l2(e: Emit, rule: _Rule, kind: str, caches: Value, found: _Found, far: Value, time: Value) -> Value:
    """For how long an access waits for L2 and for the way there or back; 0 for what L1 serves. `far`: sectors between L2 and DRAM."""
    queues, waited = e.get_pointer(caches, CACHES, "queues"), e.variable(constant(I64, 0))
    asked = found.missed.get() if kind == LOAD else found.sectors.get()
    with e.if_then(e.icmp_unsigned("!=", asked, constant(I64, 0))):
        sums = (_sum(e, [cost(e, queues, name, count) for name, count in limit.items()]) for limit in _moved(e, rule, kind, found))
        way = ring(e, queues, "reads" if kind in (LOAD, LOAD_PAST_L1) else "writes")
        # What comes from DRAM is in L2 only then: where both are busy, one request waits for one of them.
        in_dram = e.intrinsic("smax", [e.sub(found.latest.get(), constant(I64, rule.dram)), constant(I64, 0)])
        arrives = e.add(time, in_dram)
        served = invoke(e, wait_at_l2, queues, arrives, cost(e, queues, "served", e.add(asked, far)))
        waited.set(e.add(served, invoke(e, wait_in, way, since(e, queues, e.add(arrives, served)), e.intrinsic("smax", [*sums]))))
    return waited.get()


def _sum(e: Emit, values: Sequence[Value]) -> Value:
    total = constant(I64, 0)
    for value in values:
        total = e.add(total, value)
    return total


def _count_traffic(e: Emit, kind: str, l1: Value, found: _Found) -> None:
    """Add what an access moves to the counters of its multiprocessor."""
    lines, sectors, part_lines, whole = (one.get() for one in (found.lines, found.sectors, found.part_lines, found.whole))
    counted = {
        LOAD: {"read": found.missed.get(), "read_lines": found.missed_lines.get()},
        LOAD_PAST_L1: {"read": sectors, "read_lines": lines},
        ATOMIC: {"atomic": sectors},
        STORE: {
            "written": whole,
            "partly_written": e.sub(sectors, whole),
            "written_lines": e.sub(lines, part_lines),
            "partly_written_lines": part_lines,
            "partly_written_bytes": found.part_bytes.get(),
        },
    }
    for name, count in counted[kind].items():
        e.bump(l1, LEVEL, name, count)


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
        near = None if kind == LOAD_PAST_L1 else invoke(e, find(rule.sectors, kind == LOAD), l1, line)
        far_place = e.variable(e.inttoptr(constant(I64, 0), POINTER))

        def beyond(sector: Value) -> Value:
            """Serve a sector from L2 or DRAM: its latency."""
            with e.if_then(e.icmp_unsigned("==", e.ptrtoint(far_place.get(), I64), constant(I64, 0))):
                far_place.set(invoke(e, find(rule.sectors, True, True), l2, line))
            return _from_l2(e, rule, kind, l2, e.element(far_place.get(), sector, I64), time, levels)

        with e.each_lane(sectors) as sector:
            if kind == LOAD:
                slot = e.element(near, sector, I64)
                arrival = _held(e, slot)
                with e.if_else(e.icmp_unsigned("!=", arrival, constant(I64, 0))) as (hit, miss):
                    with hit:
                        _note(e, latest, levels, L1, _wait(e, rule, l2, arrival, time, rule.l1))
                    with miss:
                        latency = beyond(sector)
                        missed.set(e.add(missed.get(), constant(I64, 1 << 40)))
                        _hold(e, slot, e.add(e.add(time, latency), constant(I64, 1)))
                        _note(e, latest, levels, 0, latency)
            else:
                if kind == ATOMIC:
                    with e.if_then(e.icmp_unsigned("!=", e.ptrtoint(near, I64), constant(I64, 0))):
                        _hold(e, e.element(near, sector, I64), constant(I64, 0))
                _note(e, latest, levels, 0, beyond(sector))
        if kind == ATOMIC:
            _count_atomics(e, rule, l2, far_place.get(), sectors, busy)
        e.ret(e.or_(missed.get(), e.or_(latest.get(), e.shl(levels.get(), constant(I64, 32)))))

    return Helper(f"memlane_line_{kind}_{rule.name}", I64, (POINTER, POINTER, I64, I32, I64, I64), build)


def _count_atomics(e: Emit, rule: _Rule, l2: Value, place: Value, sectors: Value, busy: Value) -> None:
    """Count the sectors of a request with atomic operations in the line whose words are at `place`, and for how long they take."""
    distance = e.sub(e.ptrtoint(place, I64), e.get(l2, LEVEL, "lines"))
    own = e.at(e.get_pointer(l2, LEVEL, "atomics"), e.shl(e.udiv(distance, constant(I64, line_words(rule.sectors))), constant(I64, 1)))
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
    held = _held(e, slot)
    latency = e.variable(constant(I64, at_hit))
    with e.if_else(e.icmp_unsigned("!=", held, constant(I64, 0))) as (hit, miss):
        with hit:
            if kind in (STORE, ATOMIC):
                with e.if_then(e.icmp_unsigned("<", held, dirty), likely=False):  # as a store to memory that is clean costs time
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
            # The words of a pair of sectors are 8 bytes each, at an even multiple of 8 and behind it.
            other = _held(e, e.inttoptr(e.xor(e.ptrtoint(slot, I64), constant(I64, 8)), POINTER))
            is_first = e.zext(e.icmp_unsigned("==", other, constant(I64, 0)), I64)
            e.bump(l2, LEVEL, f"{name}_pairs", is_first)
            latency.set(constant(I64, fetched + extra))
            latency.set(e.add(latency.get(), _wait_for_dram(e, kind, l2, time, is_first)))
            _hold(e, slot, e.or_(e.add(e.add(time, latency.get()), constant(I64, 1)), dirty))
            levels.set(e.or_(levels.get(), constant(I64, L2 if kind == STORE else DRAM)))
    return latency.get()


def _held(e: Emit, slot: Value) -> Value:
    """What the word of a sector says of its arrival."""
    return e.and_(e.load(slot, typ=I64), constant(I64, PRESENT))


def _hold(e: Emit, slot: Value, held: Value) -> None:
    """Change what the word of a sector says of its arrival."""
    e.store(e.or_(e.and_(e.load(slot, typ=I64), constant(I64, ~PRESENT)), held), slot)


def _wait_for_dram(e: Emit, kind: str, l2: Value, time: Value, is_first: Value) -> Value:
    """For how long a sector waits that L2 does not have. A store waits for what makes room for it; `is_first`: 1 if no other sector of
    its pair is there."""
    queues = e.get_pointer(l2, LEVEL, "queues")
    if kind == STORE:
        return invoke(e, wait_in, ring(e, queues, "dram"), since(e, queues, time), constant(I64, 0))
    amount = e.add(e.get(queues, QUEUES, "fetched"), cost(e, queues, "fetched_pairs", is_first))
    waited = invoke(e, wait_at_dram, queues, time, amount)
    e.put(waited, l2, LEVEL, "delay")
    return waited


def _wait(e: Emit, rule: _Rule, l2: Value, arrival: Value, time: Value, latency: int) -> Value:
    """The latency of a sector that is there or on its way: no less than `latency`, no more than a miss."""
    left = e.sub(e.sub(arrival, constant(I64, 1)), time)
    most = e.add(constant(I64, max(latency, rule.dram)), e.get(l2, LEVEL, "delay"))
    return e.intrinsic("smin", [e.intrinsic("smax", [left, constant(I64, latency)]), most])


def _note(e: Emit, latest: Any, levels: Any, level: int, latency: Value) -> None:
    latest.set(e.intrinsic("umax", [latest.get(), latency]))
    if level:
        levels.set(e.or_(levels.get(), constant(I64, level)))


def _ceiling(e: Emit, number: Value, by: int) -> Value:
    return e.udiv(e.add(number, constant(I64, by - 1)), constant(I64, by))


def _cycles(number: float) -> int:
    return max(1, round(number))


def _bits(power: int) -> int:
    return power.bit_length() - 1
