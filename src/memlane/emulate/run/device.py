"""Hold the state of one emulated device: memory, textures, caches and clock."""

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
"""Registers per thread assumed for occupancy: the number that ptxas would allot is unknown from PTX."""
LAUNCH_GAP = 1000
"""Minimum gap in cycles between two launches, unless a plan sets when they begin."""
LAUNCH_STEP = 960
"""Granularity of launch starts in cycles, divisible by nearly every interval of a pipe, so that a launch takes the same time again."""


class DeviceClock:
    """The modelled time of one device, in ns of the global timer, which the devices of a plan share, and in cycles.

    A launch begins at `now_ns` and at `cycles`; `advance` moves both past its end, so launches follow each other. A plan sets their start
    with `move_to`.
    """

    def __init__(self, clock_mhz: int) -> None:
        self.clock_mhz = clock_mhz
        self.now_ns = 0
        """Value of `%globaltimer` when the next launch begins."""
        self.cycles = 0
        """Start of the next launch in cycles of the multiprocessors, a multiple of `LAUNCH_STEP`."""
        self._ended_ns = 0
        """End of the last launch, in ns."""

    def move_to(self, ns: float) -> None:
        """Set the start of the next launch, at the earliest the end of the launch before it."""
        self.now_ns = max(self._ended_ns, math.floor(ns))
        self.cycles = max(self.cycles, _next_step(self.now_ns * self.clock_mhz / 1000))

    def advance(self, cycles: int) -> None:
        """Move the clock past a launch that took `cycles`."""
        following = _next_step(self.cycles + cycles + LAUNCH_GAP)
        self._ended_ns = self.now_ns + cycles * 1000 // self.clock_mhz
        self.now_ns += (following - self.cycles) * 1000 // self.clock_mhz
        self.cycles = following


def _next_step(cycles: float) -> int:
    return math.ceil(cycles / LAUNCH_STEP) * LAUNCH_STEP


class DeviceState:
    """State of one emulated device that lasts from launch to launch."""

    def __init__(self, chip: Chip, name: str, number: int, *, patience: int, threads: int | None, memory_bytes: int | None) -> None:
        """Create an empty device. `number`: its number among peer devices. The other arguments are those of `Emulator`."""
        if threads is not None and threads < 1:
            raise BadLaunch(f"an emulator needs at least 1 thread, got threads={threads}: pass 1 or more, or leave it out")
        self.chip = chip
        self.name = name
        self.number = number
        self.patience = patience
        self.threads = threads
        self.shadows = Shadows()
        """The checker's record of memory, kept between launches."""
        self.memory = Memory(self.shadows, number, chip.dram_bytes if memory_bytes is None else memory_bytes)
        self.heap = Heap(self.memory)
        self.textures = Textures()
        self.clock = DeviceClock(chip.clock_mhz)
        self._l2: Level | None = None

    @property
    def l2(self) -> Level:
        """The modelled L2 cache, which all launches share."""
        if self._l2 is None:
            self._l2 = Level(self.chip, self.chip.l2_bytes, is_far=True)
        return self._l2

    def empty_caches(self, l2_bytes: int | None = None) -> None:
        """Empty L2 before the next launch with a clock, and set its size to `l2_bytes` if given."""
        self._l2 = None if l2_bytes is None else Level(self.chip, l2_bytes, is_far=True)

    def scale_l2(self, l2_bytes: int) -> None:
        """Empty L2 and set its size. Each set gets its share of the lines present now, which are those of a sample of blocks."""
        self._l2 = Level(self.chip, l2_bytes, is_far=True, sample=self.l2)

    def share_memory(self, other: DeviceState) -> None:
        """Share the memory and the textures of another device from now on."""
        self.memory, self.textures, self.shadows = other.memory, other.textures, other.shadows

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int, registers: int | None = None) -> int:
        """Return how many blocks fit on one multiprocessor: limited by threads, blocks, shared memory and registers per thread,
        `ASSUMED_REGISTERS` if not given."""
        static = static_shared_bytes(kernel.module, kernel.name)
        return resident_blocks(self.chip, threads_per_block, registers or ASSUMED_REGISTERS, static + shared_bytes).blocks
