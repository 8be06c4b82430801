"""Time chains of copies and of launches, and streams of reads and writes, as plans."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from memlane.driver import Device, probe
from memlane.emulate import Emulator
from memlane.emulate.layout import MOST_DEVICES
from memlane.errors import DeviceError
from memlane.launch import LoadedModule, Target
from memlane.plan import Home, Plan, PlanBuilder, StepRef
from memlane.ptx import parse
from memlane.targets import BoundPlan, target

Way = tuple[Home, Home]
"""Destination and source of a copy."""
THREADS, LOADS, LANE_BYTES = 256, 8, 16
SMALL_BYTES = 1 << 12
SHARED_BYTES = 1 << 24
"""Least size of copies that share a link, in bytes."""


def _stream(name: str, access: str, use: str = "") -> str:
    """Return the PTX of a kernel that makes `passes` passes over memory, each with `rounds` times `LOADS` accesses of 16 bytes per thread.

    `shift` is 0: the addresses of a pass depend on it, so that no assembler merges two passes.
    """
    registers = [f"%a{number}" for number in range(4 * LOADS)]
    lanes = [", ".join(registers[4 * number : 4 * number + 4]) for number in range(LOADS)]
    steps = [f"    {access.format(f'{{{each}}}')}\n    add.u64 %at, %at, %step;" for each in lanes]
    body = "\n".join([*steps, *(f"    {use.format(register)}" for register in registers if use)])  # all in flight before one is used
    given = " ".join(f"mov.u32 {register}, %t;" for register in registers)
    return f"""
.visible .entry {name}(.param .u64 data, .param .u32 rounds, .param .u32 passes, .param .u64 shift)
{{
    .reg .pred %more, %never; .reg .b32 %t, %n, %i, %j, %rounds, %a<{4 * LOADS}>, %s; .reg .b64 %base, %at, %step, %shift, %data;
    ld.param.u64 %data, [data]; ld.param.u32 %rounds, [rounds]; ld.param.u32 %j, [passes]; ld.param.u64 %shift, [shift];
    mov.u32 %t, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %i, %tid.x; mad.lo.u32 %t, %t, %n, %i;
    mov.u32 %i, %nctaid.x; mul.lo.u32 %n, %n, %i;
    mul.wide.u32 %step, %n, {LANE_BYTES}; mul.wide.u32 %base, %t, {LANE_BYTES}; add.u64 %base, %base, %data; mov.u32 %s, %t;
    {given}
PASS:
    mov.u64 %at, %base; mov.u32 %i, %rounds;
ROUND:
{body}
    sub.u32 %i, %i, 1; setp.ne.u32 %more, %i, 0; @%more bra ROUND;
    add.u64 %base, %base, %shift; sub.u32 %j, %j, 1; setp.ne.u32 %more, %j, 0; @%more bra PASS;
    setp.eq.u32 %never, %s, 0x9d2c5681; @%never st.global.u32 [%data], %s;
    ret;
}}
"""


KERNELS = (
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n"
    + _stream("reads", "ld.global.cg.v4.u32 {}, [%at];", "xor.b32 %s, %s, {};")
    + _stream("writes", "st.global.v4.u32 [%at], {};")
)


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of one number."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        """The least and the most, for a source: `least 54.9, most 55.6 of 10`."""
        return f"least {min(self.values):.4g}, most {max(self.values):.4g} of {len(self.values)}"


@dataclass(frozen=True)
class Effort:
    """Amount of measurement: bytes of large copies, lengths of the two chains, and number of repetitions."""

    large_bytes: int
    copies: tuple[int, int]
    launches: tuple[int, int]
    rounds: int


FULL = Effort(1 << 26, (4, 16), (50, 150), 10)
QUICK = Effort(1 << 22, (2, 6), (10, 30), 3)
MODELLED = Effort(1 << 20, (2, 6), (4, 12), 1)
"""Effort for a model: its results do not vary, and small copies have the same rate."""


class Meter:
    """A target with its peer devices, and the kernels of this lab."""

    def __init__(self, measured: Target, quick: bool) -> None:
        self.targets = with_peers(measured)
        self.chip = measured.chip
        self.effort = MODELLED if measured.modelled else QUICK if quick else FULL
        self._kernels: LoadedModule = measured.load(parse(KERNELS, "bandwidth.ptx"))
        self._is_modelled = measured.modelled

    # -- copies ------------------------------------------------------------------------------------------------------------------

    def link(self, way: Way) -> tuple[Samples, Samples]:
        """Return latency in us and rate in GB/s of copies in one direction."""
        rates, small = self._rates((way,), SMALL_BYTES, self.effort.large_bytes)
        return Samples(tuple(max(0.0, took - SMALL_BYTES / rate / 1e3) for took, rate in zip(small, rates, strict=True))), Samples(
            tuple(rates)
        )

    def shared_link(self, *ways: Way) -> Samples:
        """Return the rate in GB/s of each of several concurrent copies.

        They are large, so that the latency of one is hidden behind the others as far as possible.
        """
        large = max(self.effort.large_bytes, SHARED_BYTES)
        return Samples(tuple(self._rates(ways, large // 4, large)[0]))

    def small_copies_us(self, *ways: Way) -> Samples:
        """Return the time of one more small copy in one of several concurrent chains."""
        return Samples(tuple(self._copy_us(ways, SMALL_BYTES)))

    def _rates(self, ways: Sequence[Way], small: int, large: int) -> tuple[list[float], list[float]]:
        """Return rates in GB/s, from the extra time of more bytes, and the times of small copies in us."""
        times = self._copy_us(ways, small)
        return [(large - small) / (most - least) / 1e3 for least, most in zip(times, self._copy_us(ways, large), strict=True)], times

    def _copy_us(self, ways: Sequence[Way], nbytes: int) -> list[float]:
        """Return the time of one more copy of each way, from chains of two lengths."""
        memory = {f"of{number}": self._memory(of, nbytes) for number, (_, of) in enumerate(ways)}
        counts = self.effort.copies
        with self._timed(*(self._copies(ways, nbytes, count) for count in counts), memory=memory) as (short, long):
            return [(most - least) / (counts[1] - counts[0]) for least, most in zip(short, long, strict=True)]

    def _copies(self, ways: Sequence[Way], nbytes: int, count: int) -> Plan:
        b = PlanBuilder()
        ends = [
            (b.array(f"to{number}", nbytes, "u1", to), b.array(f"of{number}", nbytes, "u1", of)) for number, (to, of) in enumerate(ways)
        ]
        for _ in range(count):
            for number, (to_view, of_view) in enumerate(ends):
                b.copy(to_view, of_view, queue=number)
        return b.plan()

    def _memory(self, home: Home, nbytes: int) -> Any:
        if isinstance(home, int):
            return self.targets[home].zeros(nbytes, "u1")
        host = self.targets[0].pinned(nbytes, "u1") if home == "pinned" else np.empty(nbytes, "u1")
        host[...] = 1
        return host

    # -- launches ----------------------------------------------------------------------------------------------------------------

    def launches_us(self, queues: int, *, chains: int = 1) -> Samples:
        """Return the time of one more kernel without instructions, each waiting for the one before.

        The kernels of a chain alternate between `queues` queues; `chains` chains run at the same time.
        """
        counts = self.effort.launches
        with self._timed(*(self._launches(count, queues, chains) for count in counts)) as (short, long):
            return Samples(tuple((most - least) / (counts[1] - counts[0]) for least, most in zip(short, long, strict=True)))

    def flag_us(self) -> Samples:
        """Return the latency of a flag to another device: the time of one more put and its wait, the launch of the put subtracted.

        Two devices raise flags for each other in turn.
        """
        counts, launch = self.effort.launches, self.launches_us(1).median
        with self._timed(*(self._flags(count) for count in counts)) as (short, long):
            return Samples(tuple((most - least) / (counts[1] - counts[0]) - launch for least, most in zip(short, long, strict=True)))

    def _flags(self, count: int) -> Plan:
        b = PlanBuilder()
        for number in range(count):
            of, to = number % 2, 1 - number % 2
            flag = b.flag(f"flag {number}", to)
            put = b.put([], [flag], device=of)
            b.wait([flag], device=to, after=[put])
        return b.plan()

    def graph_us(self) -> Samples:
        """Return the overhead of a graph of one kernel: until it starts and until its end is seen."""
        each = self.launches_us(1).median
        with self._timed(self._launches(1, 1)) as (alone,):
            return Samples(tuple(max(0.0, took - each) for took in alone))

    def events_us(self) -> Samples:
        """Return the time that the two events around a step of a timed graph add to it."""
        counts = self.effort.launches
        plain = self.launches_us(1).median
        times = [[self._bound(self._launches(count, 1)).time().elapsed_ns / 1e3 for count in counts] for _ in range(self.effort.rounds)]
        return Samples(tuple((most - least) / (counts[1] - counts[0]) - plain for least, most in times))

    def _launches(self, count: int, queues: int, chains: int = 1) -> Plan:
        b = PlanBuilder()
        last: list[list[StepRef]] = [[] for _ in range(chains)]
        for number in range(count):
            for chain in range(chains):
                queue = chain * queues + number % queues
                last[chain] = [b.launch(self._kernels["nothing"].ref, 1, 1, device=0, queue=queue, after=last[chain])]
        return b.plan()

    # -- streams -----------------------------------------------------------------------------------------------------------------

    def stream(self, kernel: str) -> Samples:
        """Return the rate in GB/s at which a kernel reads or writes DRAM: from the extra time of bytes that exceed L2."""
        each = self._round_bytes(8)
        times = 16  # times the size of L2
        if self._is_modelled:  # caches start empty, and written data leaves L2 only when it is full
            times = 0 if kernel == "reads" else 3
        least = 2 + times * self.chip.l2_bytes // each
        rounds = least, least + (4 if self._is_modelled else 2 * least)
        return self._rate(kernel, 8, [(one, 1) for one in rounds], each * (rounds[1] - rounds[0]))

    def cached_stream(self) -> Samples:
        """Return the rate in GB/s of reads that L2 serves: from the extra time of more passes over about an eighth of it."""
        passes = (4, 12) if self._is_modelled else (50, 250)
        return self._rate("reads", 2, [(1, one) for one in passes], self._round_bytes(2) * (passes[1] - passes[0]))

    def _blocks(self, each: int) -> int:
        """Return the number of blocks of a stream: one per multiprocessor where time is modelled, as threads cost host time there."""
        return self.chip.sm_count * (1 if self._is_modelled else each)

    def _round_bytes(self, each: int) -> int:
        return self._blocks(each) * THREADS * LOADS * LANE_BYTES

    def _rate(self, kernel: str, each: int, settings: Sequence[tuple[int, int]], more_bytes: int) -> Samples:
        nbytes = self._round_bytes(each) * max(rounds for rounds, _ in settings)
        plans = []
        for rounds, passes in settings:
            b = PlanBuilder()
            data = b.array("data", nbytes, "u1", 0)
            b.launch(self._kernels[kernel].ref, self._blocks(each), THREADS, data, rounds, passes, 0)
            plans.append(b.plan())
        with self._timed(*plans, memory={"data": self.targets[0].zeros(nbytes, "u1")}) as (less, more):
            return Samples(tuple(more_bytes / (most - least) / 1e3 for least, most in zip(less, more, strict=True)))

    # -- timing ------------------------------------------------------------------------------------------------------------------

    def _bound(self, plan: Plan, memory: Mapping[str, Any] | None = None) -> BoundPlan:
        return BoundPlan(plan, memory or {}, targets=self.targets[: max(plan.devices, default=0) + 1], modules=[self._kernels])

    @contextmanager
    def _timed(self, *plans: Plan, memory: Mapping[str, Any] | None = None) -> Iterator[list[list[float]]]:
        """Yield the times of some plans in us, measured in turn; on a GPU, replays of their graphs between two events."""
        bound = [self._bound(plan, memory) for plan in plans]
        if self._is_modelled:
            yield [[one.time().elapsed_ns / 1e3] for one in bound]
            return
        graphs = [one.graph() for one in bound]
        for graph in graphs:
            graph.replay()
            graph.wait()
        rounds = [[self.targets[0].elapsed_ns(graph.replay) / 1e3 for graph in graphs] for _ in range(self.effort.rounds)]
        yield [list(times) for times in zip(*rounds, strict=True)]


def with_peers(measured: Target) -> tuple[Target, ...]:
    """Return a target and up to two peers that it can copy to: other GPUs of the machine, or emulated devices of the same chip."""
    others: list[Target] = []
    if isinstance(measured, Device):
        names = [f"cuda:{number}" for number in range(len(probe().devices))]
        others = [target(name) for name in names if name != measured.name][:2]
    elif isinstance(measured, Emulator) and measured.modelled:
        others = [Emulator(measured.chip, device=(measured.device + more) % MOST_DEVICES) for more in (1, 2)]
    found = (measured, *others)
    for one in found:
        for other in found:
            with suppress(DeviceError):
                one.enable_peer(other)
    return found
