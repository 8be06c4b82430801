"""Make rings of addresses at each level of the memory, and launches of the chases in `kernels/chase.cu` over them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.instrument import Selection, TraceOptions
from memlane.lab.latency.places import long_stride
from memlane.launch import DeviceArray, Launch, LoadedModule, Target
from memlane.measure.instrumented_module import InstrumentedModule, probe

SOURCE = Path(__file__).parent / "kernels" / "chase.cu"
BLOCK = 256
TIMES_DTYPE = np.dtype([("begin", "u8"), ("end", "u8"), ("sm", "u8"), ("arrived", "u8")])


@dataclass(frozen=True)
class Level:
    """A ring that one level of the memory answers for."""

    name: str
    rows: int
    row_bytes: int
    warm: int
    """Loads that one warp makes alone before the timed ones."""
    steps: int
    """Timed loads of one warp alone; a ring in DRAM is never walked twice."""
    flush: bool = False
    """True if the L2 is emptied before each walk."""

    @property
    def stride(self) -> int:
        """Return the number of rows between two positions of the walk."""
        return long_stride(self.rows)


LEVELS = (
    Level("shared", 64, 256, 64, 4096),
    Level("L1", 64, 256, 64, 4096),
    Level("L2", 1 << 16, 256, 1 << 16, 4096),
    Level("DRAM", 1 << 20, 4096, 0, 4096, flush=True),
)
"""16 KiB in shared memory and in L1; 16 MiB, which L1 cannot hold and L2 can; 4 GiB, of which each line is met once, for the first time."""

QUICK_LEVELS = (
    Level("shared", 16, 256, 16, 64),
    Level("L1", 16, 256, 16, 64),
    Level("L2", 1 << 12, 256, 1 << 12, 64),
    Level("DRAM", 1 << 12, 1024, 0, 64, flush=True),
)

FLUSH_BYTES = 512 << 20
"""Bytes that are cleared to empty the L2: many times its size."""


class Chase:
    """The chases of one target, loaded."""

    def __init__(self, target: Target, flush_bytes: int = FLUSH_BYTES) -> None:
        major, minor = target.chip.compute_capability
        self.target = target
        self.loaded: LoadedModule = target.load(cuda(SOURCE, arch=f"sm_{major}{minor}"))
        self._flush_bytes = flush_bytes
        self._flusher: DeviceArray | None = None

    def ring(self, level: Level) -> DeviceArray | None:
        """Return the ring of a level, linked; None in shared memory, where the kernel links it."""
        if level.name == "shared":
            return None
        ring = self.target.empty(level.rows * level.row_bytes, "u1")
        self.loaded["link"][-(-level.rows * 32 // BLOCK), BLOCK](ring, level.row_bytes, level.rows, level.stride)
        return ring

    def launch(
        self, level: Level, ring: DeviceArray | None, position: int, *, steps: int = 0, warps: int = 1
    ) -> tuple[Launch, DeviceArray]:
        """Return a walk over `ring` from `position` on, and the array that holds `TIMES_DTYPE` after it. One warp walks with all lanes
        together, after `level.warm` loads; several warps walk with each lane on its own word, without such loads."""
        alone = warps == 1
        times = self.target.zeros((warps, 4), "u8")
        grid, block = (1, 32) if alone else (warps * 32 // BLOCK, BLOCK)
        walk = (level.rows, level.stride, position % level.rows, 0 if alone else 1, level.warm if alone else 0, steps or level.steps, 0)
        if ring is None:
            call = self.loaded["chase_shared"][grid, block, None, level.rows * 256]
            return call.bind(times, *walk), times
        return self.loaded["chase_global"][grid, block].bind(times, ring, level.row_bytes, *walk), times

    def prepare(self, level: Level) -> None:
        """Prepare the caches before each walk."""
        if level.flush:
            if self._flusher is None:
                self._flusher = self.target.empty(self._flush_bytes, "u1")
            self.target.clear(self._flusher.address, self._flusher.nbytes)
            self.target.sync()

    def probed(self, scheme: str) -> InstrumentedModule:
        """Return the chases with probes around their timed loads and no others."""
        return probe(self.loaded, self.options(scheme))

    @staticmethod
    def options(scheme: str) -> TraceOptions:
        """Return options that select the timed loads."""
        lines = SOURCE.read_text().splitlines()
        timed = {(SOURCE.name, number) for number, line in enumerate(lines, 1) if "// timed:" in line}
        return TraceOptions(scheme, Selection(lines=timed))


def read_times(times: DeviceArray) -> npt.NDArray[np.void]:
    """Return one row of `TIMES_DTYPE` for each warp."""
    return np.ascontiguousarray(times.numpy()).view(TIMES_DTYPE).reshape(-1)
