"""The queues of what all multiprocessors share: the way to L2, the way back, L2 itself, DRAM.

    queues = Queues(chip, share=1.0)                                   # the state: nothing is under way
    cycles = invoke(e, wait_in, ring, time, cost)                      # i64: for how long something that arrives at `time` waits

A queue is a ring (`rings`) whose slots are `SLOT_CYCLES` long. What passes costs parts of a cycle: a sector of a load, at 141 sectors a
clock, 1/141. Costs are added up behind the ring, and take a slot whenever they fill one; everything waits for the first slot that is free
when it arrives. So the rate is exact, a request that arrives at an idle part waits for nothing, and one that arrives at a busy part waits
for all that came before it.

Accesses take longer even before a queue fills: they do not arrive one by one, and meet in the banks of DRAM and in the slices of L2. The
share of slots that were taken shortly before says by how much (`longer`).

A sample of multiprocessors has its `share` of each rate. A rate that the chip's file lacks costs nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, SECTOR_BYTES, Chip
from memlane.emulate.clock.rings import RING_BYTES, STEP_BYTES, first_free, reserve, taken_before
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant, vector
from memlane.emulate.runtime.helper import Helper, helper, invoke

SLOT_CYCLES = 8
BUSY_PARTS = 64
COST_BITS = 16
"""Costs are in parts of a cycle, so many bits."""
FULL_SLOT = SLOT_CYCLES << COST_BITS
WORD_SLOTS = 64
IN_COMPANY, LOADED_DRAM, LOADED_L2 = 0.06, 0.5, 1.0
"""How much longer an access to DRAM takes when others are under way, and how much longer besides when DRAM is always busy; and one to
L2 when L2 is: in proportion to the time for which it is. By `occupancy`, `copies by vector width` and `strided gathers` in
benchmarks/results/h200/predict_measured.json."""
RINGS = ("reads", "writes", "l2", "dram")
COSTS = (
    *("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "atomic"),
    *("served", "fetched", "fetched_pairs", "written_back"),
)
"""Of a sector, or a line of a request, as `Traffic` calls them; `served`: of a sector that L2 takes or gives; `atomic`:
of a sector, or of one of `BUSY_PARTS` of a clock for which a part of L2 is busy, where the chip's file says for how long it is."""
LONGER = ("l2_longer", "dram_longer")
QUEUES = np.dtype(
    [
        *((name, "u1", (STEP_BYTES,)) for name in RINGS),
        *((name, "i8") for name in COSTS),
        *((name, "i8", (1 + WORD_SLOTS,)) for name in LONGER),
    ]
)
"""`LONGER`: cycles by which an access takes longer, by how many of the last `WORD_SLOTS` slots were taken."""


class Queues:
    """The queues of one launch on a chip, or on a `share` of its multiprocessors. Keep the object while generated code has `address`."""

    def __init__(self, chip: Chip, share: float = 1.0) -> None:
        self._record: npt.NDArray[Any] = np.zeros(1, QUEUES)
        for name, cycles in costs(chip).items():
            self._record[name] = round(cycles / share * (1 << COST_BITS))
        for name, latency in zip(LONGER, (chip.latency.l2, chip.latency.dram), strict=True):
            self._record[name] = [round(latency * longer(name, taken / WORD_SLOTS)) for taken in range(1 + WORD_SLOTS)]

    @property
    def address(self) -> int:
        return int(self._record.ctypes.data)


def longer(name: str, utilization: float) -> float:
    """Return how much longer an access takes than where nothing else is under way, when DRAM or L2 is busy for so much of the time."""
    if name == "l2_longer":
        return LOADED_L2 * utilization
    return IN_COMPANY + LOADED_DRAM * utilization if utilization else 0.0


def costs(chip: Chip) -> dict[str, float]:
    """Return for how many cycles each thing of `COSTS` keeps its queue busy."""
    rates = chip.bandwidth
    ways = {"read": rates.l2_read, "read_lines": rates.l2_read_lines, "written": rates.l2_write, "written_lines": rates.l2_write_lines}
    ways |= {"partly_written": rates.l2_partial_write, "partly_written_lines": rates.l2_partial_write_lines, "atomic": rates.l2_atomic}
    found = {name: 1 / rate for name, rate in ways.items() if rate}
    if rates.atomic_packets and rates.atomic_parts:
        found["atomic"] = 1 / (BUSY_PARTS * rates.atomic_parts)
    found["served"] = found.get("read", 0.0)
    read, piece = rates.dram_read or rates.dram_mixed or chip.copy_gb_per_s or chip.dram_gb_per_s, rates.dram_piece or SECTOR_BYTES
    written = 1 / (2 / rates.dram_mixed - 1 / read) if rates.dram_mixed else rates.dram_write or read
    by_pair = piece > SECTOR_BYTES
    found["fetched_pairs" if by_pair else "fetched"] = piece * chip.clock_mhz / 1000 / read
    found["written_back"] = SECTOR_BYTES * chip.clock_mhz / 1000 / written
    return found


def ring(e: Emit, queues: Value, name: str) -> Value:
    """Return where a queue is."""
    return e.at(queues, int(QUEUES.fields[name][1]))  # type: ignore[index]


def cost(e: Emit, queues: Value, name: str, count: Value) -> Value:
    """Return what so many of something cost."""
    return e.mul(e.get(queues, QUEUES, name), count)


def owe(e: Emit, queue: Value, amount: Value) -> None:
    """Let a queue be busy for longer, from when something else arrives at it."""
    debt = e.at(queue, RING_BYTES)
    e.store(e.add(e.load(debt, typ=I64), amount), debt)


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


@cache
def wait_at(name: str) -> Helper:
    """`(queues: ptr, time: i64, amount: i64) -> i64`: as `wait_in` the queue of that name, and what accesses there take longer besides
    where it is busy."""

    def build(e: Emit, queues: Value, time: Value, amount: Value) -> None:
        queue = ring(e, queues, name)
        taken = invoke(e, taken_before, queue, e.udiv(time, constant(I64, SLOT_CYCLES)))
        e.ret(e.add(invoke(e, wait_in, queue, time, amount), e.get(queues, QUEUES, f"{name}_longer", taken)))

    return Helper(f"memlane_wait_at_{name}", I64, (POINTER, I64, I64), build)


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
