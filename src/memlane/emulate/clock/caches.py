"""Model the caches behind an access to global memory: an L1 for each multiprocessor, L2 and DRAM.

    caches = Caches(chip, sm_count=4, shared_bytes=49152)              # the state; L1 is what shared memory leaves
    result = invoke(e, access_helper(chip, LOAD), caches_pointer, sm, addresses, distance, mask, nbytes, time)
    # i64: latency in cycles | levels << 32 | passes << 40             levels: L1 = 1, L2 = 2, DRAM = 4

The model
- Lines of `line_bytes` are divided into sectors of `sector_bytes`; a miss fetches only the requested sectors. Each cache is set
  associative with exact LRU (`places`): the number of sets is a power of two, with 16 to 31 ways in L1 and on average 8 to 15 in L2, fewer
  in tiny caches. These are assumptions, since NVIDIA publishes neither; simulators fitted to Volta and later use 48 ways and more in L1.
- L1 is write-through without write-allocate. A store goes to L2; sectors present in L1 are updated and stay valid. The V100 white paper and
  the Turing tuning guide say that L1 caches stores since Volta, but not which ones allocate: that none does is assumed.
- L2 is write-back and allocates stores without reading DRAM first (it has byte masks). A write-back occupies DRAM.
- Atomics and reductions are executed in L2, and their sectors are invalidated in L1.
- A sector in flight is not fetched twice: a later access waits for its arrival. Warps need not be simulated in the order of time, so the
  arrival can lie further ahead than a whole miss takes; then this access would have been the one that missed, and takes as long as a miss.
- The latency is that of the slowest sector plus one cycle for each pass after the first; a pass handles `lines_per_wavefront` tags, or the
  data of one line. An access that L1 does not serve also waits in the queues of L2, of the way there or back, and of DRAM (`queues`).
  Traffic is counted (`TRAFFIC`) for the floors of a launch (`memlane.chip.floors`). TLBs and the two halves of a large L2 are not modelled.

Launches on one device share `l2`; L1 is empty at the start of each launch, as on the hardware. Times must not restart while `l2` is in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES, Chip
from memlane.emulate.clock.levels import CACHES, LEVEL, line_words
from memlane.emulate.clock.places import Sets
from memlane.emulate.clock.queues import atomic_work, cost, packets, ring, since, wait_at_l2, wait_in
from memlane.emulate.clock.sectors import ATOMIC, L1, LOAD, LOAD_PAST_L1, STORE, Rule, access_l2, load_beyond_l1, look_in_l1
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, Variable, constant, vector
from memlane.emulate.code.sorting import before
from memlane.emulate.layout import FULL
from memlane.emulate.runtime.helper import Helper, invoke

MANY_LINES = 4
"""Lines of one access from which on prefetching their sets and places into the host's caches pays."""


def access_helper(chip: Chip, kind: str, operation: str = "") -> Helper:
    """Return the helper that serves one access of a warp to global or local memory, and returns its latency, levels and passes.

    `(caches: ptr, sm: i32, addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32, time: i64) -> i64`, packed as in the module's
    docstring, 0 without an active lane. `distance` is added to each address, accesses are naturally aligned, and the memory pipe accepts
    the access at `time`. The latency of a store or reduction is the time until L2 has it. `operation` of atomics is `float` for additions
    of floats, `pair` for operations with two operands.
    """
    latency = chip.latency
    packet, whole = packets(chip, operation) if kind == ATOMIC else (0, 0)
    return _access(
        Rule(
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
def _access(rule: Rule, kind: str) -> Helper:
    def build(e: Emit, caches: Value, sm: Value, addresses: Value, distance: Value, mask: Value, nbytes: Value, time: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret(constant(I64, 0))
        l1 = e.at(e.get_pointer(caches, CACHES, "l1"), e.mul(e.zext(sm, I64), constant(I64, LEVEL.itemsize)))
        l2 = e.get_pointer(caches, CACHES, "l2")
        lanes = e.add(e.load_lanes(addresses, I64), e.splat(distance))
        far_before, found = _of_dram(e, l2), _Found.of(e)
        lines = _Lines(e, rule, kind, lanes, mask, nbytes, found)
        if kind == LOAD:
            _load(e, rule, lines, l1, l2, time, found)
        else:
            near, far = lines.sets(l1), lines.sets(l2, is_far=True)
            with lines.if_many():
                if kind != LOAD_PAST_L1:
                    near.bring_near(lines.all.get())
                far.bring_near(lines.all.get())
                far.bring_places_near(lines.all.get())
            with e.each_lane(lines.all.get()) as lane:
                there, sectors, here = far.of(lane), lines.sectors(lane), lines.lanes(lane)
                place = e.inttoptr(constant(I64, 0), POINTER) if kind == LOAD_PAST_L1 else near.of(lane).find(allocate=False)
                busy = constant(I64, 0)
                if rule.packet:
                    busy = atomic_work(e, (rule.line_bytes, rule.sector_bytes), rule.packet, rule.whole_packet, lanes, here, nbytes)
                    found.busy.set(e.add(found.busy.get(), busy))
                allocated = e.get(l2, LEVEL, "allocated")
                arguments = (place, l2, there.number, there.mark, there.line, sectors, time, busy)
                found.serve(e, invoke(e, access_l2(rule, kind), *arguments))
                if kind == STORE:
                    brought = e.sub(e.get(l2, LEVEL, "allocated"), allocated)
                    found.add_stored(e, rule, l2, e.zext(e.popcount(sectors), I64), here, nbytes, brought)
        _count_traffic(e, kind, l1, found)
        passes = e.intrinsic("umax", [_ceiling(e, found.lines.get(), rule.lines_per_pass), _ceiling(e, found.sectors.get(), rule.sectors)])
        far = e.sub(_of_dram(e, l2), far_before)
        latency = e.add(e.add(found.latest.get(), e.sub(passes, constant(I64, 1))), _wait_for_l2(e, rule, kind, caches, found, far, time))
        e.ret(e.or_(latency, e.or_(e.shl(found.levels.get(), constant(I64, 32)), e.shl(passes, constant(I64, 40)))))

    return Helper(f"memlane_access_{kind}_{rule.name}", I64, (POINTER, I32, POINTER, I64, I32, I32, I64), build)


def _load(e: Emit, rule: Rule, lines: _Lines, l1: Value, l2: Value, time: Value, found: _Found) -> None:
    """Serve a load: look all lines up in L1 first, then fetch the sectors that L1 lacks from L2."""
    near, far, missing = lines.sets(l1), lines.sets(l2, is_far=True), e.variable(constant(I32, 0))
    with lines.if_many():
        near.bring_near(lines.all.get())
        far.bring_near(lines.all.get())
        missing.set(near.bring_places_near(lines.all.get()))
        far.bring_places_near(missing.get())
    places, words = e.local(ir.ArrayType(I64, LANES), align=64), e.local(ir.ArrayType(I64, LANES * line_words(rule.sectors)), align=64)
    beyond, in_l1 = e.variable(constant(I32, 0)), e.variable(constant(I32, 0))

    def kept(lane: Value) -> tuple[Value, Value]:
        return e.element(places, lane, I64), e.element(words, e.mul(lane, constant(I32, line_words(rule.sectors))), I64)

    with e.each_lane(lines.all.get()) as lane:
        sectors = lines.sectors(lane)
        there = look_in_l1(e, rule, near.of(lane), sectors, time, *kept(lane))
        in_l1.set(e.or_(in_l1.get(), there))
        others = e.xor(sectors, there)
        lines.set_sectors(lane, others)
        beyond.set(e.or_(beyond.get(), e.shl(e.zext(e.icmp_unsigned("!=", others, constant(I32, 0)), I32), lane)))
    hit = e.zext(e.icmp_unsigned("!=", in_l1.get(), constant(I32, 0)), I64)
    found.serve(e, e.mul(hit, constant(I64, rule.l1 | L1 << 32)))
    with lines.if_many():  # lines that are present in L1 without the requested sectors
        far.bring_places_near(e.and_(beyond.get(), e.not_(missing.get())))
    with e.each_lane(beyond.get()) as lane:
        (place, word), there = kept(lane), far.of(lane)
        arguments = (there.number, there.mark, there.line, lines.sectors(lane), time, e.load(place, typ=POINTER), word)
        served = invoke(e, load_beyond_l1(rule), l2, *arguments)
        found.serve(e, served)
        missed = e.lshr(served, constant(I64, 40))
        found.missed.set(e.add(found.missed.get(), missed))
        found.missed_lines.set(e.add(found.missed_lines.get(), e.zext(e.icmp_unsigned("!=", missed, constant(I64, 0)), I64)))


def _differs(e: Emit, lines: Value, mask: Value) -> Value:
    """Return a mask of the lanes whose line differs from that of the previous lane, or whose previous lane is inactive."""
    follows = e.and_(e.mask_of(e.icmp_unsigned("==", lines, before(e, lines))), e.shl(mask, constant(I32, 1)))
    return e.not_(follows)


class _Lines:
    """Distinct lines that an access touches, each identified by its first lane."""

    def __init__(self, e: Emit, rule: Rule, kind: str, lanes: Value, mask: Value, nbytes: Value, found: _Found) -> None:
        self._e, self._rule = e, rule
        self._lines = lines = e.lshr(lanes, constant(vector(I64), _bits(rule.line_bytes)))
        wanted = _sectors_of_lanes(e, rule, lanes, nbytes)
        self._numbers = e.local(vector(I64), align=64)
        self._sectors, self._lanes = (e.local(vector(I32), align=64) for _ in range(2))
        e.store_lanes(lines, self._numbers)
        e.store_lanes(wanted, self._sectors)
        self.all = e.variable(constant(I32, 0))
        with e.each_lane(e.and_(mask, _differs(e, lines, mask))) as lane:
            here = e.and_(e.mask_of(e.icmp_unsigned("==", lines, e.splat(self.number(lane)))), mask)
            own = e.shl(constant(I32, 1), lane)
            with e.if_then(e.icmp_unsigned("==", e.and_(here, e.sub(own, constant(I32, 1))), constant(I32, 0)), likely=True):
                self.all.set(e.or_(self.all.get(), own))
                e.store(here, e.element(self._lanes, lane, I32))
                with e.if_then(e.icmp_unsigned("!=", here, own)):
                    self.set_sectors(lane, e.reduce("or", e.select(e.lanes_of(here), wanted, constant(vector(I32), 0))))
                if rule.load_lines and kind == LOAD:
                    self.set_sectors(lane, constant(I32, (1 << rule.sectors) - 1))
                found.sectors.set(e.add(found.sectors.get(), e.zext(e.popcount(self.sectors(lane)), I64)))
        found.lines.set(e.zext(e.popcount(self.all.get()), I64))

    def number(self, lane: Value) -> Value:
        return self._e.load(self._e.element(self._numbers, lane, I64), typ=I64)

    def sectors(self, lane: Value) -> Value:
        """Return a mask of the sectors that the access touches in the line of `lane`."""
        return self._e.load(self._e.element(self._sectors, lane, I32), typ=I32)

    def set_sectors(self, lane: Value, sectors: Value) -> None:
        self._e.store(sectors, self._e.element(self._sectors, lane, I32))

    def lanes(self, lane: Value) -> Value:
        """Return a mask of the lanes that touch the line whose first lane is `lane`."""
        return self._e.load(self._e.element(self._lanes, lane, I32), typ=I32)

    def sets(self, level: Value, is_far: bool = False) -> Sets:
        """Return the sets of the lines in the cache `level`; `is_far` marks L2."""
        return Sets(self._e, self._rule.sectors, level, self._lines, is_far)

    def if_many(self) -> AbstractContextManager[None]:
        """Execute the block only if the access touches at least `MANY_LINES` lines."""
        e = self._e
        return e.if_then(e.icmp_unsigned(">=", e.popcount(self.all.get()), constant(I32, MANY_LINES)), likely=False)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Found:
    """Totals over the lines of an access, as variables of the generated code."""

    latest: Variable
    levels: Variable
    lines: Variable
    sectors: Variable
    missed: Variable
    """Sectors of a load that are absent in L1."""
    missed_lines: Variable
    whole: Variable
    """Sectors that a store writes whole; `part_lines`: lines with a partly written sector; `part_bytes`: bytes stored to such lines."""
    part_lines: Variable
    part_bytes: Variable
    busy: Variable
    """Time for which atomic operations keep a part of L2 busy, in 1 / `BUSY_PARTS` clocks."""

    @classmethod
    def of(cls, e: Emit) -> _Found:
        return cls(*(e.variable(constant(I64, 0)) for _ in fields(cls)))

    def serve(self, e: Emit, served: Value) -> None:
        """Merge the packed result of one line: the latency, and the levels << 32."""
        self.latest.set(e.intrinsic("umax", [self.latest.get(), e.and_(served, constant(I64, FULL))]))
        self.levels.set(e.or_(self.levels.get(), e.and_(e.lshr(served, constant(I64, 32)), constant(I64, 0xFF))))

    def add_stored(self, e: Emit, rule: Rule, l2: Value, sectors: Value, lanes: Value, nbytes: Value, brought: Value) -> None:
        """Add a store of `lanes` to `sectors` sectors of a line, `brought` of which it allocated in L2."""
        whole = e.intrinsic("umin", [sectors, _filled(e, rule, lanes, nbytes)])
        is_part = e.zext(e.icmp_unsigned("!=", whole, sectors), I64)
        written = e.mul(is_part, e.zext(e.mul(e.popcount(lanes), nbytes), I64))
        for total, by in ((self.whole, whole), (self.part_lines, is_part), (self.part_bytes, written)):
            total.set(e.add(total.get(), by))
        e.bump(l2, LEVEL, "part_bytes", written)
        e.bump(l2, LEVEL, "part_sectors", e.mul(is_part, brought))


def _of_dram(e: Emit, l2: Value) -> Value:
    """Return the sectors moved between L2 and DRAM: both sectors of each fetched pair, and those written back."""
    return e.add(e.shl(e.get(l2, LEVEL, "fetched_pairs"), constant(I64, 1)), e.get(l2, LEVEL, "written_back"))


def _moved(e: Emit, rule: Rule, kind: str, found: _Found) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """Return the traffic of an access between its multiprocessor and L2, by name of cost: sectors, and their lines."""
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


def _wait_for_l2(e: Emit, rule: Rule, kind: str, caches: Value, found: _Found, far: Value, time: Value) -> Value:
    """Return the cycles for which an access waits for L2 and for the way there or back; 0 if L1 serves it.

    `far` is the number of sectors that it moves between L2 and DRAM."""
    queues, waited = e.get_pointer(caches, CACHES, "queues"), e.variable(constant(I64, 0))
    asked = found.missed.get() if kind == LOAD else found.sectors.get()
    with e.if_then(e.icmp_unsigned("!=", asked, constant(I64, 0))):
        sums = (_sum(e, [cost(e, queues, name, count) for name, count in limit.items()]) for limit in _moved(e, rule, kind, found))
        way = ring(e, queues, "reads" if kind in (LOAD, LOAD_PAST_L1) else "writes")
        # A sector joins the queue of L2 after its wait for DRAM, so an access does not pay for the same busy period twice.
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
    """Add the traffic of an access to the counters of its multiprocessor."""
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


def _filled(e: Emit, rule: Rule, lanes: Value, nbytes: Value) -> Value:
    """Return the most sectors that `lanes`, with `nbytes` each, can write whole."""
    return e.zext(e.lshr(e.mul(e.popcount(lanes), nbytes), constant(I32, _bits(rule.sector_bytes))), I64)


def _sectors_of_lanes(e: Emit, rule: Rule, lanes: Value, nbytes: Value) -> Value:
    """Return a mask for each lane: bit k is set if the lane touches sector k of its line."""
    first = e.and_(
        e.lshr(e.trunc(lanes, vector(I32)), constant(vector(I32), _bits(rule.sector_bytes))), constant(vector(I32), rule.sectors - 1)
    )
    count = e.udiv(e.add(nbytes, constant(I32, rule.sector_bytes - 1)), constant(I32, rule.sector_bytes))
    return e.shl(e.splat(e.sub(e.shl(constant(I32, 1), count), constant(I32, 1))), first)


def _ceiling(e: Emit, number: Value, by: int) -> Value:
    return e.udiv(e.add(number, constant(I64, by - 1)), constant(I64, by))


def _cycles(number: float) -> int:
    return max(1, round(number))


def _bits(power: int) -> int:
    return power.bit_length() - 1
