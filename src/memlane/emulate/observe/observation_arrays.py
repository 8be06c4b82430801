"""Set up the arrays of the counting and clock layers for one launch, and build its observation from them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, STALL_FIELDS, Events, Traffic, modelled_time
from memlane.emulate.clock.issue import Clock
from memlane.emulate.clock.levels import FAR, TRAFFIC, Caches
from memlane.emulate.layout import PATTERN, START_PARTS
from memlane.emulate.lower.kernel import CompiledKernel
from memlane.emulate.observe.examples import empty_examples, recorded_examples
from memlane.emulate.run.device import DeviceState
from memlane.emulate.run.interrupt import Halt
from memlane.launch import ACCESS_DTYPE, COUNT_FIELDS, WAIT_DTYPE, ExampleOf, Launch, Observation

PAGE_ROWS = 1 << 16
EVERY_ROW = (1 << 63) - 1


LAST_CYCLE = (1 << 62) - 1


class ObservationArrays:
    """The arrays that the layers of one launch write to, kept alive while it runs."""

    def __init__(
        self, device: DeviceState, launch: Launch, compiled: CompiledKernel, context: npt.NDArray[Any], slot_count: int, halt: Halt
    ) -> None:
        self._device, self._launch, self._compiled, self._context = device, launch, compiled, context
        self._pages: list[npt.NDArray[Any]] = []
        self._wait_pages: list[npt.NDArray[Any]] = []
        self._waits_missing = False
        layers = compiled.layers
        if layers.counts:
            self._counts = np.zeros((len(compiled.instructions), len(COUNT_FIELDS)), np.int64)
            self._tallies = np.zeros(1 + max((number for number, _ in compiled.weights), default=0), np.int64)
            context["counts"], context["executions"] = self._counts.ctypes.data, self._tallies.ctypes.data
        if layers.counts or layers.clock:
            self._patterns = np.zeros(len(compiled.instructions), PATTERN)
            context["patterns"] = self._patterns.ctypes.data
        if layers.accesses:
            self._callback = ctypes.CFUNCTYPE(None)(halt.guarded(self._new_page))
            context["new_page"] = ctypes.cast(self._callback, ctypes.c_void_p).value
            most = launch.layers.max_accesses
            self._room = EVERY_ROW if most is None else most
            context["accesses_left"] = self._room
            self._new_page()
            self._start_examples(launch.layers.example or ExampleOf())
            if layers.clock:
                self._wait_callback = ctypes.CFUNCTYPE(None)(halt.guarded(self._new_wait_page))
                context["new_wait_page"] = ctypes.cast(self._wait_callback, ctypes.c_void_p).value
                self._new_wait_page()
        if layers.clock:
            self._start_clock(slot_count)

    def _start_examples(self, wanted: ExampleOf) -> None:
        self._examples = empty_examples(len(self._compiled.instructions))
        context = self._context
        context["examples"] = self._examples.ctypes.data
        context["example_block"] = -1 if wanted.block is None else wanted.block
        context["example_warp"] = -1 if wanted.warp is None else wanted.warp
        context["example_execution"] = wanted.execution

    def _start_clock(self, slot_count: int) -> None:
        device, launch, context = self._device, self._launch, self._context
        chip = device.chip
        clock = self._clock = Clock(chip)
        warps = slot_count * launch.warps_per_block
        sms, blocks = int(context["sm_count"][0]), int(context["blocks"][0])
        per_sm = -(-slot_count // sms)
        self._sms = clock.fresh(sms)
        self._caches = Caches(chip, sms, per_sm * int(context["shared_bytes"][0]), device.l2, sms / chip.sm_count, device.clock.cycles)
        self._finishes = np.zeros(blocks, np.int64)
        self._stalls = np.zeros((len(self._compiled.instructions), len(STALL_FIELDS)), np.int64)
        self._side_by_side = np.zeros(len(self._compiled.instructions), np.uint8)
        self._side_by_side[sorted(launch.layers.side_by_side)] = 1
        self._near = np.zeros(LANES, np.uint64)
        device.l2.begin_launch()
        self._heap, self._woken = np.zeros((warps + 2, 2), np.int64), np.zeros(warps + 1, np.uint64)
        values = {
            "base": device.clock.cycles,
            "end": device.clock.cycles,
            "start_ns": device.clock.now_ns,
            "sms": self._sms.ctypes.data,
            "sm_bytes": clock.sm_bytes,
            "caches": self._caches.address,
            "heap": self._heap.ctypes.data,
            "woken": self._woken.ctypes.data,
            "next_start": device.clock.cycles * START_PARTS,
            "finishes": self._finishes.ctypes.data,
            "stalls": self._stalls.ctypes.data,
            "deadline": LAST_CYCLE if launch.layers.most_cycles is None else device.clock.cycles + launch.layers.most_cycles,
            "side_by_side": self._side_by_side.ctypes.data,
            "near_addresses": self._near.ctypes.data,
        }
        for name, value in values.items():
            context[name][0] = value

    def _new_page(self) -> None:
        """Start a new page; generated code calls this when the page is full, and drops rows if it still is afterwards."""
        self._pages.append(_page(PAGE_ROWS, ACCESS_DTYPE))
        self._context["accesses"] = self._pages[-1].ctypes.data
        self._context["access_count"], self._context["access_room"] = 0, PAGE_ROWS

    def _new_wait_page(self) -> None:
        """Start a new page of waits, unless there are as many as accesses may be kept: then all further waits are dropped."""
        if PAGE_ROWS * len(self._wait_pages) >= self._room + PAGE_ROWS:
            self._waits_missing = True
            return
        self._wait_pages.append(_page(PAGE_ROWS, WAIT_DTYPE))
        self._context["waits"] = self._wait_pages[-1].ctypes.data
        self._context["wait_count"], self._context["wait_room"] = 0, PAGE_ROWS

    def _waits(self) -> npt.NDArray[Any] | None:
        """Return the waits at barriers; None if they were not kept, or not all."""
        if not self._wait_pages or self._waits_missing:
            return None
        return np.concatenate([*self._wait_pages[:-1], self._wait_pages[-1][: int(self._context["wait_count"][0])]])

    def observation(self) -> Observation:
        """Return the observation, after the launch has ended."""
        layers, context = self._compiled.layers, self._context
        counts: dict[int, npt.NDArray[np.int64]] = {}
        executed = accesses = examples = time = events = None
        if layers.counts:
            counts = {int(index): self._counts[index] for index in np.flatnonzero(self._counts[:, 0])}
            executed = sum(int(self._tallies[number]) * weight for number, weight in self._compiled.weights)
        if layers.accesses:
            accesses = np.concatenate([*self._pages[:-1], self._pages[-1][: int(context["access_count"][0])]])
            examples = recorded_examples(self._examples, self._room, len(accesses))
        if layers.clock:
            events = self._events()
            time = modelled_time(self._device.chip, events.cycles, events.traffic)
        not_kept = int(context["accesses_not_kept"][0])
        cycles = None if time is None else time.cycles
        return Observation(
            self._launch,
            counts,
            accesses,
            not_kept,
            cycles,
            executed,
            waits=self._waits(),
            examples=examples,
            time=time,
            events=events,
        )

    def _events(self) -> Events:
        """Return the modelled events of the launch, and the time of its warps."""
        l1, (l2,) = self._caches.l1.records, self._device.l2.records
        moved = {name: l1[name].tolist() for name in TRAFFIC}
        moved["wavefronts"] = self._clock.wavefronts(self._sms).tolist()
        far = {name: int(l2[name]) for name in FAR}
        traffic = Traffic(moved, **far, wavefront_cycles=self._clock.wavefront_cycles)
        launch, context, sms = self._launch, self._context, len(self._sms)
        return Events(
            launch.blocks,
            launch.threads_per_block,
            self._device.resident_blocks(launch.kernel, launch.threads_per_block, launch.shared_bytes, launch.layers.registers),
            sms,
            np.sort(self._finishes) - int(context["base"][0]),
            self._clock.issued(self._sms),
            self._clock.pipe_cycles(self._sms),
            traffic,
            self._device.l2.lines,
            self._device.l2.atomic_cycles(),
            self._clock.barrier_cycles(self._sms),
            int(context["lives"][0]),
            self._stalls if self._compiled.layers.predicts else None,
        )


def _page(rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.zeros(rows, dtype)
