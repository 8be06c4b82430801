"""The clock layer's view of a multiprocessor: who may issue when, and how long results take.

    clock = Clock(chip)
    sms = clock.fresh(sm_count)                                        # uint8[sm_count, clock.sm_bytes], zero: nothing is reserved
    start = invoke(e, clock.issue("fma"), sm, subcore, time)           # i64: the cycle in which the instruction starts
    start = invoke(e, clock.lsu, sm, time, wavefronts)                 # i64: the cycle of the first wavefront
    timing = timing_of(chip, "fma.rn.f32", "f32")                      # while generating code: Timing(latency=4, pipe="fma", issues=1)

Every resource that takes one thing at a time (a sub-core's issue slot, a pipe of a sub-core, the load-store unit of the multiprocessor)
is a *ring*: a bitmap of its next `SLOTS` slots, in which a request takes the first free one at or after its time. So the outcome hardly
depends on the order in which warps are simulated: a warp that ran ahead leaves the slots between its instructions to those that come
after it, which a counter of the next free cycle would not. A slot is one cycle of an issue port (more on chips whose
schedulers are slower than that), and as many cycles of a pipe as one warp
instruction occupies it (`Chip.issue_interval`); instructions may start anywhere in their slot, so neighbours can start closer together
than that, while the rate over time is exact. Wavefronts of one access need not be adjacent; the start that is returned is such that the
last one is over after `wavefronts` slots. Requests earlier than a full ring before the latest one find nothing free before that ring.

What is not modelled: instruction fetch, register bank conflicts, dual issue, the depth of queues (an access never stalls the issue of the
next one). What all multiprocessors share is in `queues`.
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
"""From the issue port of a sub-core, with its pipes, to the next."""
_NEAR = (("alu", 2), ("imul", 2))
"""Pipes that nearly all warps use, with the cycles of a slot on most chips."""


class Clock:
    """The helpers of one chip, and the layout of the state of a multiprocessor: rings, by sub-core the issue port and then the pipes;
    last the LSU and what counts arrivals at barriers. Behind each ring stands the count of what passed."""

    def __init__(self, chip: Chip, is_counted: bool = False) -> None:
        """`is_counted`: whether each issue port and pipe counts what it passes."""
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
        """`(sm: ptr, time: i64, wavefronts: i32) -> i64`: when the first wavefront starts; `time` for 0 wavefronts."""

        self._barrier_rate = chip.throughput.barrier
        self.barrier: Helper | None = None
        """As `lsu`: when a warp arrives at a barrier of its block; None where nobody measured how many do at a time."""
        if chip.throughput.barrier is not None:
            self.barrier = _lsu(self._barrier_offset, max(1, round(chip.warp_size / chip.throughput.barrier)))

    def issue(self, pipe: str = "") -> Helper:
        """`(sm: ptr, subcore: i32, time: i64) -> i64`: when an instruction that is ready at `time` starts: it takes an issue slot of its
        sub-core, and then of the pipe if that is given and is occupied for more than a cycle."""
        interval = self._intervals[pipe] if pipe else 1
        ring = PIPES.index(pipe) + 1 if interval > 1 else 0
        return _issue(ring, interval, self._is_counted, self._issue_interval)

    def occupy(self, pipe: str) -> Helper:
        """As `issue`, for an instruction that has its issue slot and takes the pipe once more."""
        interval = self._intervals[pipe]
        return _issue(PIPES.index(pipe) + 1 if interval > 1 else 0, interval, self._is_counted, 0)

    def pass_over(self) -> Helper:
        """`(sm: ptr, subcore: i32, time: i64, count: i32) -> i64`: the cycle behind so many instructions in a row that only take issue
        slots; `time` for none."""
        return _pass_over(self._is_counted, self._issue_interval)

    def fresh(self, sm_count: int) -> npt.NDArray[np.uint8]:
        """The state of `sm_count` idle multiprocessors, a row each."""
        return np.zeros((sm_count, self.sm_bytes), np.uint8)

    def wavefronts(self, state: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """What the LSU of each multiprocessor passed, given what `fresh` made."""
        return _count_behind(state, self._lsu_offset)

    def barrier_cycles(self, state: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Cycles for which each multiprocessor counted arrivals at barriers."""
        rate = self._barrier_rate
        return _count_behind(state, self._barrier_offset) * (max(1, round(LANES / rate)) if rate else 0)

    def issued(self, state: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Instructions that each sub-core of each multiprocessor issued, given what `fresh` made: [multiprocessor, sub-core]."""
        return np.stack([_count_behind(state, PORT_BYTES * subcore) for subcore in range(self._subcores)], axis=1)

    def pipe_cycles(self, state: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[np.int64]]:
        """Cycles for which each pipe that takes more than one for an instruction was occupied: [multiprocessor, sub-core]."""
        found = {}
        for number, (pipe, interval) in enumerate(self._intervals.items()):
            places = [PORT_BYTES * subcore + (1 + number) * STEP_BYTES for subcore in range(self._subcores)]
            if interval > 1:
                found[pipe] = interval * np.stack([_count_behind(state, place) for place in places], axis=1)
        return found


def bring_rings_near(e: Emit, sm: Value, subcore: Value, time: Value) -> None:
    """Fetch the reservations that a warp will first meet, at about `time`, into the host's own caches."""
    port = e.at(sm, e.mul(e.zext(subcore, I64), constant(I64, PORT_BYTES)))
    bring_near(e, port, time)
    for pipe, interval in _NEAR:
        bring_near(e, e.at(port, (PIPES.index(pipe) + 1) * STEP_BYTES), e.udiv(time, constant(I64, interval)))


def _count_behind(state: npt.NDArray[np.uint8], ring: int) -> npt.NDArray[np.int64]:
    """What the ring at an offset passed, for each multiprocessor."""
    return np.ascontiguousarray(state[:, ring + RING_BYTES :][:, :8]).view(np.int64)[:, 0]


def interval_of(chip: Chip, pipe: str) -> int:
    """Whole cycles for which a warp instruction occupies its pipe."""
    return max(1, round(chip.issue_interval(pipe)))


@cache
def _issue(ring: int, interval: int, is_counted: bool, port_interval: int) -> Helper:
    """`ring` is the place of the pipe's ring behind the issue port, 0 for no pipe. `port_interval`: cycles that a slot of the port takes, 0
    for an instruction that needs none."""

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
