"""What a launch did, as models of its time need it: instructions, wavefronts, sectors, and how long its warps took for themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlane.chip.floors import Traffic

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STALL_FIELDS = ("issued", "dependency", "contention")
"""What is added up for each instruction: how often warps issued it, and the cycles that they waited for its operands, and then for an issue
slot and a pipe."""


@dataclass(frozen=True, eq=False)
class Events:
    """What the clock layer saw of a launch, or of the blocks of it that are a sample."""

    blocks: int
    """Of the whole grid."""
    threads_per_block: int
    resident_blocks: int
    """Blocks that a multiprocessor holds."""
    sms: int
    """Multiprocessors that ran: those of the chip, or of the sample."""
    finishes: npt.NDArray[np.int64]
    """The cycle in which each of the blocks that ran ended, in that order, from the beginning of the launch."""
    issued: npt.NDArray[np.int64]
    """Instructions that warps issued: [multiprocessor, scheduler]."""
    pipe_cycles: Mapping[str, npt.NDArray[np.int64]]
    """By pipe, the cycles for which it was occupied: [multiprocessor, scheduler]."""
    traffic: Traffic
    l2_lines: int
    """Lines that L2 held at the end."""
    atomic_cycles: tuple[float, float]
    """For how long atomic operations keep the part of L2 busy that does those of the busiest lines, by these alone; and for how long they
    would in all, if one part did them all."""
    barrier_cycles: npt.NDArray[np.int64]
    """Cycles for which each multiprocessor counted arrivals at barriers."""
    warp_cycles: int
    """Cycles that warps lived, summed."""
    stalls: npt.NDArray[Any] | None = None
    """`STALL_FIELDS` by instruction, where they were asked for."""

    @property
    def cycles(self) -> int:
        """Until the last block ended."""
        return int(self.finishes[-1]) if len(self.finishes) else 0

    @property
    def fraction(self) -> float:
        """Blocks that ran over those of the grid."""
        return len(self.finishes) / self.blocks
