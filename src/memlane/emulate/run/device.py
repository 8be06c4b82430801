"""The state of one emulated device: its memory, textures, caches, and its clock."""

from __future__ import annotations

import math

from memlane.chip import Chip, resident_blocks
from memlane.emulate.check.shadows import Shadows
from memlane.emulate.clock.levels import Level
from memlane.emulate.lower.variables import static_shared_bytes
from memlane.emulate.run.heap import Heap
from memlane.emulate.run.memory import Memory
from memlane.emulate.run.textures import Textures
from memlane.errors import BadLaunch
from memlane.launch import Kernel

ASSUMED_REGISTERS = 32
"""Registers per thread that occupancy is computed with: what ptxas would allot is not known from PTX."""
LAUNCH_GAP = 1000
"""Cycles between the end of a launch and the beginning of the next one, at least, where no plan says when it begins."""
LAUNCH_STEP = 960
"""Launches begin at multiples of so many cycles, which nearly every interval of a pipe divides: so a launch takes the same time again."""


class DeviceClock:
    """The modelled time of one device, on two axes: ns of the global timer, which devices of a plan share, and cycles.

    A launch begins at `now_ns` and at `cycles`, and `advance` moves both behind it. So launches follow each other; a plan lets them begin
    when it says with `move_to`.
    """

    def __init__(self, clock_mhz: int) -> None:
        self.clock_mhz = clock_mhz
        self.now_ns = 0
        """What `%globaltimer` reads when the next launch begins."""
        self.cycles = 0
        """Where the next launch begins, in cycles of the multiprocessors: a multiple of `LAUNCH_STEP`."""
        self._ended_ns = 0
        """When the last launch ended."""

    def move_to(self, ns: float) -> None:
        """Let the next launch begin at a time, which is never before the end of the launch before it."""
        self.now_ns = max(self._ended_ns, math.floor(ns))
        self.cycles = max(self.cycles, _next_step(self.now_ns * self.clock_mhz / 1000))

    def advance(self, cycles: int) -> None:
        """Note that a launch took so many cycles."""
        following = _next_step(self.cycles + cycles + LAUNCH_GAP)
        self._ended_ns = self.now_ns + cycles * 1000 // self.clock_mhz
        self.now_ns += (following - self.cycles) * 1000 // self.clock_mhz
        self.cycles = following


def _next_step(cycles: float) -> int:
    return math.ceil(cycles / LAUNCH_STEP) * LAUNCH_STEP


class DeviceState:
    """What lasts from launch to launch on one emulated device."""

    def __init__(self, chip: Chip, name: str, number: int, *, patience: int, threads: int | None, memory_bytes: int | None) -> None:
        """`number`: its number among devices that are to be peers. The others are as `Emulator` has them."""
        if threads is not None and threads < 1:
            raise BadLaunch(f"an emulator needs at least 1 thread, got threads={threads}: pass 1 or more, or leave it out")
        self.chip = chip
        self.name = name
        self.number = number
        self.patience = patience
        self.threads = threads
        self.shadows = Shadows()
        """What the checker knows of the memory between launches."""
        self.memory = Memory(self.shadows, number, chip.dram_bytes if memory_bytes is None else memory_bytes)
        self.heap = Heap(self.memory)
        self.textures = Textures()
        self.clock = DeviceClock(chip.clock_mhz)
        self._l2: Level | None = None

    @property
    def l2(self) -> Level:
        """The modelled second-level cache, which the launches share."""
        if self._l2 is None:
            self._l2 = Level(self.chip, self.chip.l2_bytes, is_far=True)
        return self._l2

    def empty_caches(self, l2_bytes: int | None = None) -> None:
        """Let the next launch with a clock find nothing in L2, which has `l2_bytes` from now on, if they are given."""
        self._l2 = None if l2_bytes is None else Level(self.chip, l2_bytes, is_far=True)

    def share_memory(self, other: DeviceState) -> None:
        """Use the memory and the textures of another device from now on."""
        self.memory, self.textures, self.shadows = other.memory, other.textures, other.shadows

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int, registers: int | None = None) -> int:
        """Return how many blocks one multiprocessor holds: by threads, blocks, shared memory and the registers of a thread, which are taken
        to be `ASSUMED_REGISTERS` where they are not given."""
        static = static_shared_bytes(kernel.module, kernel.name)
        return resident_blocks(self.chip, threads_per_block, registers or ASSUMED_REGISTERS, static + shared_bytes).blocks
