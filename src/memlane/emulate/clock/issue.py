"""Model the issue slots, the pipes and the load-store unit of each multiprocessor.

    clock = Clock(chip)
    sms = clock.fresh(sm_count)                                        # uint8[sm_count, clock.sm_bytes], zero: nothing is reserved
    start = invoke(e, clock.issue("fma"), sm, subcore, time)           # i64: the cycle in which the instruction starts
    start = invoke(e, clock.lsu, sm, time, wavefronts)                 # i64: the cycle of the first wavefront
    timing = timing_of(chip, "fma.rn.f32", "f32")                      # while generating code: Timing(latency=4, pipe="fma", issues=1)

Every resource that takes one thing at a time (a sub-core's issue slot, a pipe of a sub-core, the load-store unit of the multiprocessor)
is a *ring* (`rings`): a bitmap of its next `SLOTS` slots, in which a request takes the first free slot at or after its time. The result
therefore hardly depends on the order in which warps are simulated: a warp that ran ahead leaves the slots between its instructions free
for later requests, which a counter of the next free cycle would not. A slot of an issue port is one cycle (more on chips whose schedulers
are slower); a slot of a pipe is the number of cycles for which one warp instruction occupies it (`Chip.issue_interval`). Instructions may
start anywhere in their slot, so neighbours can start closer together than that, while the rate over time is exact. The wavefronts of one
access need not be adjacent; the returned start is `wavefronts` slots before the end of the last one. A request that is earlier than the
latest one by more than a full ring finds no free slot before that ring.

L2, the ways to it and back, and DRAM are shared by all multiprocessors: `queues` models them, and an access that L1 does not serve waits
there for their bandwidth, which adds to its latency. Not modelled: instruction fetch, register bank conflicts, dual issue, and the depth
of queues (an access that waits never stalls the issue of the next instruction).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, Chip
from memlane.emulate.clock.rings import RING_BYTES, STEP_BYTES, bring_near, reserve, reserve_many
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant
from memlane.emulate.runtime.helper import Helper, invoke

PIPES = ("alu", "fma", "imul", "fp64", "sfu", "convert", "shuffle", "vote", "tensor")
"""Pipes of a sub-core: fields of `Throughput`."""


PORT_BYTES = STEP_BYTES * (1 + len(PIPES))
"""Bytes of the rings of one sub-core: its issue port and its pipes."""
_NEAR = (("alu", 2), ("imul", 2))
"""Pipes whose rings are worth prefetching, because nearly all warps use them, with the cycles of a slot on most chips."""


class Clock:
    """Helpers of one chip, and the layout of the state of a multiprocessor.

    The state is a sequence of rings: for each sub-core its issue port and its pipes, then the LSU and the unit that counts arrivals at
    barriers. Each ring is followed by the count of what it served."""

    def __init__(self, chip: Chip, is_counted: bool = False) -> None:
        """Lay out the rings of `chip`. With `is_counted`, each issue port and pipe counts the instructions that it serves."""
        self._is_counted = is_counted
        self._subcores = chip.schedulers
        self._issue_interval = interval_of(chip, "issue")
        self._intervals = {pipe: interval_of(chip, pipe) for pipe in PIPES}
        self._lsu_offset = PORT_BYTES * chip.schedulers
        self._barrier_offset = self._lsu_offset + STEP_BYTES
        self.sm_bytes = self._barrier_offset + STEP_BYTES
        self.wavefront_cycles = max(1, round(chip.warp_size / chip.throughput.memory))
        """Cycles for which a wavefront occupies the LSU."""
        self.lsu = _lsu(self._lsu_offset, self.wavefront_cycles)
        """Helper `(sm: ptr, time: i64, wavefronts: i32) -> i64`: the start of the first wavefront; `time` for 0 wavefronts."""

        self._barrier_rate = chip.throughput.barrier
        self.barrier: Helper | None = None
        """Helper like `lsu`, for arrivals of warps at barriers of their blocks; None where the chip's rate of arrivals is not known."""
        if chip.throughput.barrier is not None:
            self.barrier = _lsu(self._barrier_offset, max(1, round(chip.warp_size / chip.throughput.barrier)))

    def issue(self, pipe: str = "") -> Helper:
        """Return the helper `(sm: ptr, subcore: i32, time: i64) -> i64` for the start of an instruction that is ready at `time`.

        It takes an issue slot of the sub-core, and then a slot of `pipe` if one is given that an instruction occupies for more than a
        cycle."""
        interval = self._intervals[pipe] if pipe else 1
        ring = PIPES.index(pipe) + 1 if interval > 1 else 0
        return _issue(ring, interval, self._is_counted, self._issue_interval)

    def occupy(self, pipe: str) -> Helper:
        """Return a helper like that of `issue` for an instruction that has its issue slot already and occupies the pipe once more."""
        interval = self._intervals[pipe]
        return _issue(PIPES.index(pipe) + 1 if interval > 1 else 0, interval, self._is_counted, 0)

    def pass_over(self) -> Helper:
        """Return the helper `(sm: ptr, subcore: i32, time: i64, count: i32) -> i64` that issues `count` instructions in a row without a
        pipe. It returns the cycle after the last of them, or `time` if `count` is 0."""
        return _pass_over(self._is_counted, self._issue_interval)

    def fresh(self, sm_count: int) -> npt.NDArray[np.uint8]:
        """Allocate the state of `sm_count` idle multiprocessors, one row each."""
        return np.zeros((sm_count, self.sm_bytes), np.uint8)

    def wavefronts(self, state: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return the wavefronts that the LSU of each multiprocessor served; `state` is an array from `fresh`."""
        return _count_behind(state, self._lsu_offset)

    def barrier_cycles(self, state: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return the cycles for which each multiprocessor counted arrivals at barriers; 0 where their rate is not known."""
        rate = self._barrier_rate
        return _count_behind(state, self._barrier_offset) * (max(1, round(LANES / rate)) if rate else 0)

    def issued(self, state: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return the number of instructions that each sub-core issued: [multiprocessor, sub-core]; `state` is an array from `fresh`."""
        return np.stack([_count_behind(state, PORT_BYTES * subcore) for subcore in range(self._subcores)], axis=1)

    def pipe_cycles(self, state: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.int64]]:
        """Return the cycles for which each pipe was occupied, as [multiprocessor, sub-core].

        Pipes that take a new warp instruction every cycle are left out: nothing reserves them."""
        found = {}
        for number, (pipe, interval) in enumerate(self._intervals.items()):
            places = [PORT_BYTES * subcore + (1 + number) * STEP_BYTES for subcore in range(self._subcores)]
            if interval > 1:
                found[pipe] = interval * np.stack([_count_behind(state, place) for place in places], axis=1)
        return found


def bring_rings_near(e: Emit, sm: Value, subcore: Value, time: Value) -> None:
    """Prefetch into the host's caches the ring entries that a warp reads first when it goes on at about `time`."""
    port = e.at(sm, e.mul(e.zext(subcore, I64), constant(I64, PORT_BYTES)))
    bring_near(e, port, time)
    for pipe, interval in _NEAR:
        bring_near(e, e.at(port, (PIPES.index(pipe) + 1) * STEP_BYTES), e.udiv(time, constant(I64, interval)))


def _count_behind(state: npt.NDArray[np.uint8], ring: int) -> npt.NDArray[np.int64]:
    """Return the count behind the ring at byte offset `ring`, for each multiprocessor."""
    return np.ascontiguousarray(state[:, ring + RING_BYTES :][:, :8]).view(np.int64)[:, 0]


def interval_of(chip: Chip, pipe: str) -> int:
    """Return the cycles for which a warp instruction occupies `pipe`, rounded to at least 1."""
    return max(1, round(chip.issue_interval(pipe)))


@cache
def _issue(ring: int, interval: int, is_counted: bool, port_interval: int) -> Helper:
    """Build the helper that reserves a slot of the issue port and then one of a pipe.

    `ring` is the index of the pipe's ring behind the issue port, 0 for no pipe. `port_interval` is the number of cycles in a slot of the
    port, 0 for an instruction that needs no issue slot."""

    def build(e: Emit, sm: Value, subcore: Value, time: Value) -> None:
        port = e.at(sm, e.mul(e.zext(subcore, I64), constant(I64, PORT_BYTES)))
        start = time
        if port_interval:
            slot = invoke(e, reserve, port, e.udiv(time, constant(I64, port_interval)) if port_interval > 1 else time)
            start = slot if port_interval == 1 else e.intrinsic("umax", [time, e.mul(slot, constant(I64, port_interval))])
            if is_counted:
                _count_one(e, port)
        if ring:
            pipe = e.at(port, ring * STEP_BYTES)
            slot = invoke(e, reserve, pipe, e.udiv(start, constant(I64, interval)))
            if is_counted:
                _count_one(e, pipe)
            start = e.intrinsic("umax", [start, e.mul(slot, constant(I64, interval))])
        e.ret(start)

    return Helper(f"memlane_issue_{ring}_{interval}_{is_counted:d}_{port_interval}", I64, (POINTER, I32, I64), build)


@cache
def _pass_over(is_counted: bool, port_interval: int) -> Helper:
    def build(e: Emit, sm: Value, subcore: Value, time: Value, count: Value) -> None:
        port = e.at(sm, e.mul(e.zext(subcore, I64), constant(I64, PORT_BYTES)))
        cycles = constant(I64, port_interval)
        slot = e.variable(e.udiv(time, cycles) if port_interval > 1 else time)
        with e.if_then(e.icmp_unsigned("==", count, constant(I32, 0))):
            e.ret(time)
        with e.count(count):
            slot.set(e.add(invoke(e, reserve, port, slot.get()), constant(I64, 1)))
            if is_counted:
                _count_one(e, port)
        e.ret(e.mul(slot.get(), cycles))

    return Helper(f"memlane_pass_over_{is_counted:d}_{port_interval}", I64, (POINTER, I32, I64, I32), build)


def _count_one(e: Emit, ring: Value) -> None:
    passed = e.at(ring, RING_BYTES)
    e.store(e.add(e.load(passed, typ=I64), constant(I64, 1)), passed)


@cache
def _lsu(offset: int, interval: int) -> Helper:
    def build(e: Emit, sm: Value, time: Value, wavefronts: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", wavefronts, constant(I32, 0)), likely=False):
            e.ret(time)
        cycles = constant(I64, interval)
        last = invoke(e, reserve_many, e.at(sm, offset), e.udiv(time, cycles), wavefronts)
        first = e.sub(last, e.sub(e.zext(wavefronts, I64), constant(I64, 1)))
        passed = e.at(sm, offset + RING_BYTES)
        e.store(e.add(e.load(passed, typ=I64), e.zext(wavefronts, I64)), passed)
        e.ret(e.intrinsic("umax", [time, e.mul(first, cycles)]))

    return Helper(f"memlane_lsu_{offset}_{interval}", I64, (POINTER, I64, I32), build)
