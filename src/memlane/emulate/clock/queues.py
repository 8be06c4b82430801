"""The queues of what all multiprocessors share: the way to L2, the way back, L2 itself, DRAM.

    queues = Queues(chip, share=1.0)                                   # the state: nothing is under way
    cycles = invoke(e, wait_in, ring, time, cost)                      # i64: for how long something that arrives at `time` waits

A queue is a ring (`rings`) whose slots are `SLOT_CYCLES` long. What passes costs parts of a cycle: a sector of a load, at 141 sectors a
clock, 1/141. Costs are added up behind the ring, and take a slot whenever they fill one; everything waits for the first slot that is free
when it arrives. So the rate is exact, a request that arrives at an idle part waits for nothing, and one that arrives at a busy part waits
for all that came before it.

Accesses take longer even before a queue fills: they do not arrive one by one, they meet in the slices of L2 and in the banks of DRAM, and
DRAM turns round between reads and writes. The share of slots that were taken shortly before says by how much.

A sample of multiprocessors has its `share` of each rate. A rate that the chip's file lacks costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, SECTOR_BYTES, Chip
from memlane.emulate.clock.rings import RING_BYTES, STEP_BYTES, first_free, reserve, taken_before
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant, vector
from memlane.emulate.runtime.helper import helper, invoke

SLOT_CYCLES = 8
BUSY_PARTS = 64
COST_BITS = 16
"""Costs are in parts of a cycle, so many bits."""
FULL_SLOT = SLOT_CYCLES << COST_BITS
WORD_SLOTS = 64
IN_COMPANY, MIXED, LOADED_L2 = 0.06, 1.2, 1.1
"""How much longer an access to DRAM takes when others are under way, and besides when DRAM is always busy with writes, between which it
turns round; and one to L2 when L2 is always busy: each in proportion to the time for which it is. By `occupancy`, `copies by vector width`,
`strided gathers` and `reduction ladder` in benchmarks/results/h200/predict_measured.json."""
RECENT = 512 << COST_BITS
"""Cycles for which DRAM is busy, of which it is known what share were writes: from then on earlier ones count half."""
RINGS = ("reads", "writes", "l2", "dram")
COSTS = (
    *("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "atomic"),
    *("served", "fetched", "fetched_pairs", "written_back", "turned"),
)
"""Of a sector, or a line of a request, as `Traffic` calls them; `served`: of a sector that L2 takes or gives; `turned`: of a
sector written where as much is read, because DRAM turns round between the two; `atomic`:
of a sector, or of one of `BUSY_PARTS` of a clock for which a part of L2 is busy, where the chip's file says for how long it is."""
QUEUES = np.dtype(
    [
        *((name, "u1", (STEP_BYTES,)) for name in RINGS),
        *((name, "i8") for name in (*COSTS, "in_company", "mixed", "loaded_l2", "recent", "recent_writes", "base")),
    ]
)
"""`in_company`, `mixed`, `loaded_l2`: parts of a cycle by which an access takes longer, the latter two for each of the last `WORD_SLOTS`
slots that was taken. `recent`, `recent_writes`: what DRAM did lately, and how much of that were writes, in parts of a cycle."""


class Queues:
    """The queues of one launch on a chip, or on a `share` of its multiprocessors. Keep the object while generated code has `address`."""

    def __init__(self, chip: Chip, share: float = 1.0, base: int = 0) -> None:
        """`base`: the cycle in which the launch begins, so that a launch takes as long whenever that is."""
        self._record: npt.NDArray[Any] = np.zeros(1, QUEUES)
        for name, cycles in costs(chip).items():
            self._record[name] = round(cycles / share * (1 << COST_BITS))
        self._record["base"] = base
        latency, each = chip.latency, (1 << COST_BITS) / WORD_SLOTS
        self._record["in_company"] = round(IN_COMPANY * latency.dram * (1 << COST_BITS))
        self._record["mixed"], self._record["loaded_l2"] = round(MIXED * latency.dram * each), round(LOADED_L2 * latency.l2 * each)

    @property
    def address(self) -> int:
        return int(self._record.ctypes.data)


def costs(chip: Chip) -> dict[str, float]:
    """Return for how many cycles each thing of `COSTS` keeps its queue busy."""
    rates = chip.bandwidth
    ways = {"read": rates.l2_read, "read_lines": rates.l2_read_lines, "written": rates.l2_write, "written_lines": rates.l2_write_lines}
    ways |= {"partly_written": rates.l2_partial_write, "partly_written_lines": rates.l2_partial_write_lines, "atomic": rates.l2_atomic}
    found = {name: 1 / rate for name, rate in ways.items() if rate}
    if rates.atomic_packets and rates.atomic_parts:
        found["atomic"] = 1 / (BUSY_PARTS * rates.atomic_parts)
    found["served"] = found.get("read", 0.0)
    mixed = rates.dram_mixed or chip.copy_gb_per_s or chip.dram_gb_per_s
    read, write, piece = rates.dram_read or mixed, rates.dram_write_alone or rates.dram_write or mixed, rates.dram_piece or SECTOR_BYTES
    each = chip.clock_mhz / 1000
    found["fetched_pairs" if piece > SECTOR_BYTES else "fetched"] = piece * each / read
    found["written_back"] = SECTOR_BYTES * each / write
    found["turned"] = max(0.0, SECTOR_BYTES * each * (2 / mixed - 1 / read - 1 / write))
    return found


def ring(e: Emit, queues: Value, name: str) -> Value:
    """Return where a queue is."""
    return e.at(queues, int(QUEUES.fields[name][1]))  # type: ignore[index]


def since(e: Emit, queues: Value, time: Value) -> Value:
    """Return a time as the cycles since the launch began, in which rings count."""
    return e.sub(time, e.get(queues, QUEUES, "base"))


def cost(e: Emit, queues: Value, name: str, count: Value) -> Value:
    """Return what so many of something cost."""
    return e.mul(e.get(queues, QUEUES, name), count)


def write_to_dram(e: Emit, queues: Value, sectors: Value, besides: Value) -> None:
    """Keep DRAM busy with writes of so many sectors, and with what is read for them, from when something else arrives there."""
    recent, writes = e.get(queues, QUEUES, "recent"), e.get(queues, QUEUES, "recent_writes")
    twice = e.shl(e.sub(recent, writes), constant(I64, 1))
    turned = e.intrinsic(
        "smin",
        [cost(e, queues, "turned", sectors), e.udiv(e.mul(cost(e, queues, "turned", sectors), twice), e.add(recent, constant(I64, 1)))],
    )
    amount = e.add(e.add(cost(e, queues, "written_back", sectors), turned), besides)
    debt = e.at(ring(e, queues, "dram"), RING_BYTES)
    e.store(e.add(e.load(debt, typ=I64), amount), debt)
    e.bump(queues, QUEUES, "recent", amount)
    e.bump(queues, QUEUES, "recent_writes", amount)


@helper("wait_in_queue", I64, POINTER, I64, I64)
def wait_in(e: Emit, queue: Value, time: Value, amount: Value) -> None:
    """Take what something costs that arrives at `time`; the cycles for which it waits."""
    debt, arrived = e.at(queue, RING_BYTES), e.udiv(time, constant(I64, SLOT_CYCLES))
    left, place = e.variable(e.add(e.load(debt, typ=I64), amount)), e.variable(arrived)
    with e.while_(lambda: e.icmp_signed(">=", left.get(), constant(I64, FULL_SLOT))):
        place.set(invoke(e, reserve, queue, place.get()))
        left.set(e.sub(left.get(), constant(I64, FULL_SLOT)))
    e.store(left.get(), debt)
    begins = e.mul(invoke(e, first_free, queue, place.get()), constant(I64, SLOT_CYCLES))
    e.ret(e.intrinsic("smax", [e.sub(begins, time), constant(I64, 0)]))


@helper("wait_at_l2", I64, POINTER, I64, I64)
def wait_at_l2(e: Emit, queues: Value, time: Value, amount: Value) -> None:
    """As `wait_in` the queue of L2, and what accesses to it take longer besides where it is busy."""
    longer = e.mul(_busy(e, ring(e, queues, "l2"), since(e, queues, time)), e.get(queues, QUEUES, "loaded_l2"))
    e.ret(e.add(invoke(e, wait_in, ring(e, queues, "l2"), since(e, queues, time), amount), e.lshr(longer, constant(I64, COST_BITS))))


@helper("wait_at_dram", I64, POINTER, I64, I64)
def wait_at_dram(e: Emit, queues: Value, time: Value, amount: Value) -> None:
    """As `wait_in` the queue of DRAM for something that is read, and what reads take longer besides where others are under way."""
    recent, one = e.bump(queues, QUEUES, "recent", amount), constant(I64, 1)
    with e.if_then(e.icmp_signed(">", recent, constant(I64, RECENT)), likely=False):
        for name in ("recent", "recent_writes"):
            e.put(e.lshr(e.get(queues, QUEUES, name), one), queues, QUEUES, name)
    busy = _busy(e, ring(e, queues, "dram"), since(e, queues, time))
    written = e.udiv(e.mul(busy, e.get(queues, QUEUES, "recent_writes")), e.add(e.get(queues, QUEUES, "recent"), one))
    company = e.select(e.icmp_signed(">", busy, constant(I64, 0)), e.get(queues, QUEUES, "in_company"), constant(I64, 0))
    longer = e.add(company, e.mul(written, e.get(queues, QUEUES, "mixed")))
    e.ret(e.add(invoke(e, wait_in, ring(e, queues, "dram"), since(e, queues, time), amount), e.lshr(longer, constant(I64, COST_BITS))))


def _busy(e: Emit, queue: Value, time: Value) -> Value:
    """How many of the last `WORD_SLOTS` slots were taken."""
    return invoke(e, taken_before, queue, e.udiv(time, constant(I64, SLOT_CYCLES)))


def packets(chip: Chip, operation: str) -> tuple[int, int]:
    """For how many `BUSY_PARTS` of a clock a packet keeps a part of L2 busy, and one for all bytes of a sector; 0 where it is not known."""
    rates = chip.bandwidth
    if rates.atomic_packets is None:
        return 0, 0
    if operation == "float" and rates.atomic_floats is not None:
        each = round(BUSY_PARTS / rates.atomic_floats)
        return each, each
    whole = BUSY_PARTS / (rates.atomic_whole or rates.atomic_packets)
    return round(BUSY_PARTS / rates.atomic_packets), round(2 * whole if operation == "pair" else whole)


def atomic_work(e: Emit, sizes: tuple[int, int], packet: int, whole_packet: int, lanes: Value, here: Value, nbytes: Value) -> Value:
    """For how many `BUSY_PARTS` of a clock the atomic operations of the lanes in one line keep its part of L2 busy.

    In each sector there are as many packets as lanes at the word that most lanes meet in, and as many for all of its bytes as at the word
    with the fewest.
    """
    line_bytes, sector_bytes = sizes
    words = e.and_(e.lshr(e.trunc(lanes, vector(I32)), constant(vector(I32), 2)), constant(vector(I32), line_bytes // 4 - 1))
    wide = e.zext(e.icmp_unsigned("==", nbytes, constant(I32, 8)), I32)  # operations on 8 bytes take two words
    words, total = e.lshr(words, e.splat(wide)), constant(I64, 0)
    for sector in range(line_bytes // sector_bytes):
        most, fewest = constant(I32, 0), constant(I32, LANES)
        for word in range(sector * sector_bytes // 4, (sector + 1) * sector_bytes // 4):
            at = e.icmp_unsigned("==", words, e.splat(e.lshr(constant(I32, word), wide)))
            met = e.popcount(e.and_(e.mask_of(at), here))
            most, fewest = e.intrinsic("umax", [most, met]), e.intrinsic("umin", [fewest, met])
        parts = e.mul(e.sub(most, fewest), constant(I32, packet))
        total = e.add(total, e.zext(e.add(parts, e.mul(fewest, constant(I32, whole_packet))), I64))
    return total
