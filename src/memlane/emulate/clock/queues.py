"""Model the queues of the resources that all multiprocessors share: the ways to L2 and back, L2 itself, and DRAM.

    queues = Queues(chip, share=1.0)                                   # the state: all queues are empty
    cycles = invoke(e, wait_in, ring, time, cost)                      # i64: cycles for which a request that arrives at `time` waits

A queue is a ring (`rings`) whose slots are `SLOT_CYCLES` long. Each request costs fractions of a cycle: a sector of a load, at 141 sectors
a clock, 1/141. Costs accumulate behind the ring and take a slot whenever they fill one; every request waits for the first slot that is free
when it arrives. So the rate is exact: a request to an idle resource does not wait, and a request to a busy one waits for all earlier work.

Accesses slow down even before a queue fills: they arrive in bursts, collide in the slices of L2 and the banks of DRAM, and DRAM turns round
between reads and writes. The share of slots taken shortly before determines by how much.

A simulated sample of the multiprocessors gets its `share` of each rate. A rate that is missing in the chip's file costs nothing.
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
"""Fraction bits of a cost: costs are fixed-point numbers of cycles."""
FULL_SLOT = SLOT_CYCLES << COST_BITS
WORD_SLOTS = 64
IN_COMPANY, MIXED, LOADED_L2 = 0.06, 1.2, 1.1
"""Extra latency under load, as shares of the unloaded latency.

`IN_COMPANY`: of a DRAM access when DRAM was used shortly before; `MIXED`: of a DRAM access, in addition, when DRAM was fully busy with
writes, because it turns round between the two; `LOADED_L2`: of an L2 access when L2 was fully busy. The latter two scale with the share of
busy slots. Fitted to `occupancy`, `copies by vector width`, `strided gathers` and `reduction ladder` in
benchmarks/results/h200/predict_measured.json."""
RECENT = 512 << COST_BITS
"""Busy time of DRAM, in cost units, over which the share of writes is tracked: both sums are halved whenever it is exceeded."""
RINGS = ("reads", "writes", "l2", "dram")
COSTS = (
    *("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "atomic"),
    *("served", "fetched", "fetched_pairs", "written_back", "turned"),
)
"""Names of costs: of a sector, or of a line of a request, as `Traffic` names them.

`served`: of a sector that L2 gives or takes, on the side of the multiprocessors or of DRAM; `turned`: the extra cost of a written sector
when as much is read, because DRAM turns round between the two; `atomic`: of a sector, or of 1 / `BUSY_PARTS` clocks for which a part of L2
is busy, where the chip's file gives that time."""
QUEUES = np.dtype(
    [
        *((name, "u1", (STEP_BYTES,)) for name in RINGS),
        *((name, "i8") for name in (*COSTS, "in_company", "mixed", "loaded_l2", "recent", "recent_writes", "base")),
    ]
)
"""Record of the queues of a launch; all costs and times are in units of 1 / 2^`COST_BITS` cycles, except `base`, a cycle.

`in_company`, `mixed`, `loaded_l2`: extra latency of an access, the latter two per busy slot among the last `WORD_SLOTS`. `recent`,
`recent_writes`: recent busy time of DRAM, and the part of it that was writes."""


class Queues:
    """Queues of one launch on a chip, or on a `share` of its multiprocessors.

    Generated code gets `address`; keep the object alive while such code may run."""

    def __init__(self, chip: Chip, share: float = 1.0, base: int = 0) -> None:
        """Start with empty queues, which count time from `base`, the cycle in which the launch begins."""
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
    """Return the cycles for which one unit of each of `COSTS` keeps its queue busy; costs without a known rate are absent."""
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
    """Return the address of the ring called `name`, one of `RINGS`."""
    return e.at(queues, int(QUEUES.fields[name][1]))  # type: ignore[index]


def since(e: Emit, queues: Value, time: Value) -> Value:
    """Convert a cycle to cycles since the launch began, the time base of the rings."""
    return e.sub(time, e.get(queues, QUEUES, "base"))


def cost(e: Emit, queues: Value, name: str, count: Value) -> Value:
    """Return the cost of `count` units of `name`, one of `COSTS`."""
    return e.mul(e.get(queues, QUEUES, name), count)


def write_to_dram(e: Emit, queues: Value, sectors: Value, besides: Value) -> None:
    """Charge DRAM for writing `sectors`, plus the cost `besides` of reads that these need. The next request that arrives pays for it."""
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
    """Reserve the slots for a request of cost `amount` that arrives at `time`, and return the cycles for which it waits."""
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
    """Reserve `amount` in the queue of L2, and return the cycles of waiting plus the extra latency of a busy L2."""
    longer = e.mul(_busy(e, ring(e, queues, "l2"), since(e, queues, time)), e.get(queues, QUEUES, "loaded_l2"))
    e.ret(e.add(invoke(e, wait_in, ring(e, queues, "l2"), since(e, queues, time), amount), e.lshr(longer, constant(I64, COST_BITS))))


@helper("wait_at_dram", I64, POINTER, I64, I64)
def wait_at_dram(e: Emit, queues: Value, time: Value, amount: Value) -> None:
    """Reserve `amount` of reading in the queue of DRAM, and return the cycles of waiting plus the extra latency of a busy DRAM."""
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
    """Return how many of the last `WORD_SLOTS` slots before the word of `time` were taken."""
    return invoke(e, taken_before, queue, e.udiv(time, constant(I64, SLOT_CYCLES)))


def packets(chip: Chip, operation: str) -> tuple[int, int]:
    """Return the time for which a packet of `operation` keeps a part of L2 busy, and a packet that covers a whole sector.

    Both are in units of 1 / `BUSY_PARTS` clocks, and 0 where the chip's file has no rate of packets."""
    rates = chip.bandwidth
    if rates.atomic_packets is None:
        return 0, 0
    if operation == "float" and rates.atomic_floats is not None:
        each = round(BUSY_PARTS / rates.atomic_floats)
        return each, each
    whole = BUSY_PARTS / (rates.atomic_whole or rates.atomic_packets)
    return round(BUSY_PARTS / rates.atomic_packets), round(2 * whole if operation == "pair" else whole)


def atomic_work(e: Emit, sizes: tuple[int, int], packet: int, whole_packet: int, lanes: Value, here: Value, nbytes: Value) -> Value:
    """Return the time for which the atomic operations of the lanes `here` in one line keep its part of L2 busy, in 1 / `BUSY_PARTS` clocks.

    Each sector needs as many packets as there are lanes at its most contended word; as many of these as there are lanes at its least
    contended word cover the whole sector.
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
