"""Run one launch: set up the records for generated code, start the workers, and return the observation or raise the fault."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES
from memlane.emulate.check.launch import Checked
from memlane.emulate.clock.timeline import begin_timeline, run_timeline
from memlane.emulate.code.build import VOID
from memlane.emulate.layout import ALLOCATION, BACK_EDGE_BUDGET, BLOCK_BYTES, BROKEN, CONTEXT, PAUSED, START_PARTS, STOPPED, WORKERS
from memlane.emulate.lower.kernel import CompiledKernel, segments_of
from memlane.emulate.lower.variables import parameter_offsets
from memlane.emulate.observe.observation_arrays import ObservationArrays
from memlane.emulate.run.cores import usable_cores
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.faults import raise_fault
from memlane.emulate.run.host import Host
from memlane.emulate.run.interrupt import Halt
from memlane.emulate.run.partners import current_partner
from memlane.emulate.run.progress import Progress
from memlane.emulate.runtime.helper import Helper, address_of
from memlane.emulate.runtime.schedule import prepare_slot, run
from memlane.errors import BadLaunch, CheckFailed, MemlaneError
from memlane.launch import Dim3, Launch, Observation, Report, cluster_of

SHUFFLES = 64
"""Number of different warp orders in a launch with a seed."""
TURN_DIVISOR = 16
"""Factor by which warps get shorter turns with several workers: a warp that polls for another worker's write should soon let other blocks
of its worker run."""
SPINS_BEFORE_SLEEP, SLEEP_S = 16, 5e-5
"""Fruitless polling rounds over all blocks of a worker before it sleeps, and for how many seconds: the thread that it waits for may need
the processor."""
WORK_PER_WORKER = 1 << 17
"""Work per worker, in static instructions times threads, from which one more worker pays: about a tenth of a millisecond without loops."""


def execute(device: DeviceState, launch: Launch, compiled: CompiledKernel, symbols: dict[str, int], number: int) -> Observation:
    """Run a launch to its end. Raises BadAccess, Deadlock, KernelTrap or CheckFailed."""
    state = _State(device, launch, compiled, symbols, number)
    halt = Halt(state.workers, state.context, state.slots)
    observed = ObservationArrays(device, launch, compiled, state.context, state.slot_count, halt)
    checked = Checked(device, launch, compiled, state.context, state.slot_count) if compiled.layers.check else None
    host = Host(device, compiled, state.context, halt)
    progress = Progress(launch, state.context)
    status = halt.run(_workers(state, compiled, halt, progress), progress.tell)
    host.print()
    reports = None if checked is None else checked.finish()
    if status == BROKEN:
        device.empty_caches()  # L2 timestamps lie after the abort
    if halt.error is not None:
        with suppress(MemlaneError):  # an error of the report's receiver; the error that ended the launch comes first
            _report(launch, reports)
        raise halt.error
    if status == BROKEN:
        context = state.context[max(0, int(state.workers[0]["faulting_worker"]) - 1)]
        _report(launch, reports)
        if context["fault"] == STOPPED and reports:
            raise CheckFailed(str(reports[0]))
        raise_fault(device, launch, compiled, context, state.slots, host.assertions)
    observation = observed.observation()
    if observation.cycles is not None:
        device.clock.advance(observation.cycles)
    return replace(observation, reports=reports, grid=number)


def _report(launch: Launch, reports: tuple[Report, ...] | None) -> None:
    """Report the checker's findings of a launch that was aborted."""
    if reports and launch.layers.report is not None:
        launch.layers.report(Observation(launch, {}, reports=reports, broke_off=True))


def _workers(state: _State, compiled: CompiledKernel, halt: Halt, progress: Progress) -> list[Callable[[], int]]:
    """Return the main function of each worker: it runs blocks until none is left and returns FINISHED or BROKEN."""
    contexts = [state.context.ctypes.data + number * state.context.strides[0] for number in range(len(state.context))]
    if compiled.layers.clock:
        _function(begin_timeline)(contexts[0])
        advance = _function(run_timeline)
    else:
        prepare = _function(prepare_slot)
        slot_bytes, blocks_per_cluster = (int(state.context[0][name]) for name in ("slot_bytes", "cluster_blocks"))
        for number, context in enumerate(contexts):
            for slot in range(number * blocks_per_cluster, (number + 1) * blocks_per_cluster):
                prepare(context, state.slots.ctypes.data + slot * slot_bytes)
        advance = _function(run)

    def work(number: int) -> int:
        while (status := advance(contexts[number], compiled.code.address)) == PAUSED:
            # Generated code returns here regularly, so that Python can raise errors in this thread.
            if halt.is_alone:
                progress.tell()
            if (len(contexts) > 1 or state.partners.has_others) and state.context[number]["idle_spins"] > SPINS_BEFORE_SLEEP:
                time.sleep(SLEEP_S)
        return int(status)

    return [partial(work, number) for number in range(len(contexts))]


@cache
def _function(helper: Helper) -> Any:
    """Return a runtime helper that takes pointers as a function callable from Python."""
    result = None if helper.result == VOID else ctypes.c_uint32
    return ctypes.CFUNCTYPE(result, *[ctypes.c_uint64] * len(helper.arguments))(address_of(helper))


@dataclass(frozen=True)
class _MemoryLayout:
    """The memory layout of a launch: slots for resident blocks, which workers go through."""

    cluster: Dim3 | None
    blocks_per_cluster: int
    """Blocks per cluster, in neighbouring slots; 1 without clusters."""
    shared_bytes: int
    """Shared memory of a block, static and dynamic."""
    arrivals: int
    """Bytes before shared memory for the arrival times of what barriers there count; 0 without the clock layer."""
    shared_offset: int
    """Offset of shared memory in a slot, after the records of the block and its warps, and after the arrivals."""
    local_offset: int
    slot_bytes: int
    slots: int
    workers: int

    @classmethod
    def of(cls, device: DeviceState, launch: Launch, compiled: CompiledKernel) -> _MemoryLayout:
        """Compute the layout of a launch. Raises BadLaunch for a grid that is not a multiple of its clusters."""
        frame, warps = compiled.frame, launch.warps_per_block
        shared = frame.static_shared_bytes + launch.shared_bytes
        arrivals = _round_up(shared) if compiled.layers.clock and compiled.has_mbarriers else 0
        shared_offset = _round_up(BLOCK_BYTES + warps * compiled.warp_bytes) + arrivals
        local_offset = shared_offset + _round_up(shared)
        slot_bytes = local_offset + _round_up(frame.local_bytes * warps * LANES)
        cluster = cluster_of(launch.kernel, launch.cluster)
        blocks_per_cluster = math.prod(cluster or ())
        if any(extent % size for extent, size in zip(launch.grid, cluster or (1, 1, 1), strict=True)):
            raise BadLaunch(
                f"the grid {launch.grid} of {launch.kernel.title} is not a multiple of its cluster size {cluster}: launch whole clusters"
            )
        resident = max(1, device.resident_blocks(launch.kernel, launch.threads_per_block, launch.shared_bytes, launch.layers.registers))
        sample = launch.layers.sample
        blocks, sms = (launch.blocks, device.chip.sm_count) if sample is None else (sample.blocks, sample.sms)
        slots = min(blocks, max(1, resident * sms // blocks_per_cluster) * blocks_per_cluster)
        workers = min(slots // blocks_per_cluster, _worker_count(device, launch, compiled))
        return cls(cluster, blocks_per_cluster, shared, arrivals, shared_offset, local_offset, slot_bytes, slots, workers)


class _State:
    """The memory of a launch while it runs."""

    def __init__(self, device: DeviceState, launch: Launch, compiled: CompiledKernel, symbols: dict[str, int], number: int) -> None:
        room = _MemoryLayout.of(device, launch, compiled)
        self.slot_count = room.slots
        # Slots that are never used are never touched, so they take no physical memory.
        self.slots = _aligned(room.slots * room.slot_bytes)
        self.params = _parameters(launch)
        self.symbols = np.array([symbols[name] for name in compiled.frame.symbols] or [0], np.uint64)
        self.sites = np.zeros((room.workers, max(1, len(compiled.instructions))), ALLOCATION)
        self.table = device.memory.table()
        self.texture_count, self.textures = device.textures.count, device.textures.table()
        self.orders = _orders(launch.warps_per_block, launch.layers.seed)
        self.context = _contexts(room.workers)
        self.workers = np.zeros(1, WORKERS)
        taken = room.slots if compiled.layers.clock else room.workers * room.blocks_per_cluster
        self.partners = current_partner()
        self.workers[0] = (0, taken, 0, room.workers, self.context.ctypes.data, *self.context.strides, *self.partners.pool_fields)
        first = self.context[0]
        for name, value in (
            self._arrays() | _launch_fields(device, launch, compiled, room) | self.partners.context_fields | {"grid_id": number}
        ).items():
            first[name] = value
        for worker in range(1, room.workers):
            self.context[worker] = first
            self.context[worker]["number"] = worker
            self.context[worker]["sites"] = self.sites[worker].ctypes.data

    def _arrays(self) -> dict[str, int]:
        """Return the context fields that hold the addresses and lengths of the arrays here."""
        return {
            "workers": self.workers.ctypes.data,
            "params": self.params.ctypes.data,
            "symbols": self.symbols.ctypes.data,
            "sites": self.sites.ctypes.data,
            "allocations": self.table.ctypes.data,
            "allocation_count": len(self.table),
            "textures": self.textures.ctypes.data,
            "texture_count": self.texture_count,
            "slots": self.slots.ctypes.data,
            "orders": self.orders.ctypes.data,
            "order_mask": len(self.orders) - 1,
        }


def _launch_fields(device: DeviceState, launch: Launch, compiled: CompiledKernel, room: _MemoryLayout) -> dict[str, object]:
    """Return the other fields of a context: properties of the launch, its kernel and the chip."""
    sample = launch.layers.sample
    waits_for_others = room.workers > 1 or current_partner().has_others
    patience = device.patience * TURN_DIVISOR if waits_for_others else device.patience
    most = launch.layers.most_cycles
    if most is not None and not any(one.polls for one in segments_of(launch.kernel.module, launch.kernel.function, compiled.layers)):
        patience = min(patience, max(1, most // BACK_EDGE_BUDGET))  # a loop that an assembler removes takes iterations, but no time
    return {
        "parallel": room.workers > 1,
        "working": True,
        "params_bytes": compiled.frame.params_bytes,
        "grid": launch.grid,
        "block": launch.block,
        "blocks": launch.blocks if sample is None else sample.blocks,
        "cluster": room.cluster or (1, 1, 1),
        "cluster_blocks": room.blocks_per_cluster,
        "explicit_cluster": room.cluster is not None,
        "threads": launch.threads_per_block,
        "warps": launch.warps_per_block,
        "warp_bytes": compiled.warp_bytes,
        "warps_offset": BLOCK_BYTES,
        "arrivals": room.arrivals,
        "shared_offset": room.shared_offset,
        "local_offset": room.local_offset,
        "shared_bytes": room.shared_bytes,
        "dynamic_shared_bytes": launch.shared_bytes,
        "local_bytes": compiled.frame.local_bytes,
        "sm_count": device.chip.sm_count if sample is None else sample.sms,
        "block_interval": _block_interval(device, launch),
        "sample_sms": 0 if sample is None else sample.sms,
        "sample_group": device.chip.sm_count,
        "sample_waves": 1 if sample is None else sample.waves,
        "sample_stride": 0 if sample is None else sample.stride,
        "clock_mhz": device.chip.clock_mhz,
        "subcores": device.chip.schedulers,
        "slot_bytes": room.slot_bytes,
        "slot_count": room.slots,
        "budget": BACK_EDGE_BUDGET // TURN_DIVISOR if waits_for_others else BACK_EDGE_BUDGET,
        "patience": patience,
        "patience_left": patience,
    }


def _block_interval(device: DeviceState, launch: Launch) -> int:
    """Return the minimum interval between block starts, in fractions of a cycle (`START_PARTS`), where times are predicted; else 0."""
    rate, sample = device.chip.bandwidth.blocks, launch.layers.sample
    if not launch.layers.prediction or rate is None:
        return 0
    share = 1.0 if sample is None else sample.sms / device.chip.sm_count
    return round(START_PARTS / (rate * share))


def _worker_count(device: DeviceState, launch: Launch, compiled: CompiledKernel) -> int:
    """Return the number of threads for a launch; 1 if it is observed, which requires a reproducible order."""
    layers = compiled.layers
    if layers.counts or layers.accesses or layers.clock or layers.check or launch.layers.seed is not None:
        return 1
    if device.threads is not None:
        return device.threads
    work = launch.blocks * launch.threads_per_block * len(compiled.instructions)
    paying = work // WORK_PER_WORKER
    return min(usable_cores(), paying) if paying > 1 else 1


def _contexts(count: int) -> npt.NDArray[Any]:
    """Return a zeroed context for each worker, padded so that no two share a cache line."""
    step = -(-CONTEXT.itemsize // 128) * 128
    memory = _aligned(count * step)
    memory[:] = 0
    return np.ndarray((count,), CONTEXT, memory.data, strides=(step,))


def _orders(warps: int, seed: int | None) -> npt.NDArray[np.uint32]:
    """Return warp orders of a block, one row per sweep; the number of rows is a power of two."""
    if seed is None:
        return np.arange(warps, dtype=np.uint32).reshape(1, warps)
    random = np.random.default_rng(seed)
    return np.stack([random.permutation(warps).astype(np.uint32) for _ in range(SHUFFLES)])


def _round_up(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised bytes aligned to 64, not yet touched."""
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def _parameters(launch: Launch) -> npt.NDArray[np.uint8]:
    """Return the parameter memory, with each argument at its offset."""
    params = launch.kernel.function.params
    offsets = parameter_offsets(params)
    memory = np.zeros(max(8, *(offset + len(a.data) for offset, a in zip(offsets, launch.arguments, strict=True)), 8), np.uint8)
    for offset, argument in zip(offsets, launch.arguments, strict=True):
        memory[offset : offset + len(argument.data)] = np.frombuffer(argument.data, np.uint8)
    return memory
