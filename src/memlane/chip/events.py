"""Hold the events of a launch that models of its time need: instructions, traffic, and the cycles of blocks and warps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlane.chip.floors import Traffic

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STALL_FIELDS = ("issued", "dependency", "contention")
"""Counters of each instruction: times that warps issued it, cycles of waiting for its operands, and then for an issue slot and a pipe."""


@dataclass(frozen=True, eq=False)
class Events:
    """Events that the clock layer recorded of a launch, or of a sample of its blocks."""

    blocks: int
    """Blocks of the whole grid."""
    threads_per_block: int
    resident_blocks: int
    """Blocks that a multiprocessor holds."""
    sms: int
    """Simulated multiprocessors: those of the chip, or of the sample."""
    finishes: npt.NDArray[np.int64]
    """Cycle, from the start of the launch, in which each simulated block ended; in the order of completion."""
    issued: npt.NDArray[np.int64]
    """Instructions that warps issued: [multiprocessor, scheduler]."""
    pipe_cycles: Mapping[str, npt.NDArray[np.int64]]
    """Cycles for which each pipe was occupied, by name: [multiprocessor, scheduler]."""
    traffic: Traffic
    l2_lines: int
    """Lines in L2 at the end of the launch."""
    atomic_cycles: tuple[float, float]
    """Cycles for which the atomic operations of the busiest group of lines occupy their part of L2, and cycles for which all atomic
    operations would occupy one part."""
    barrier_cycles: npt.NDArray[np.int64]
    """Cycles for which each multiprocessor counted arrivals at barriers."""
    warp_cycles: int
    """Sum of the lifetimes of all warps in cycles."""
    stalls: npt.NDArray[Any] | None = None
    """`STALL_FIELDS` of each instruction; None if not recorded."""

    @property
    def cycles(self) -> int:
        """Return the cycles until the last block ended; 0 if none ran."""
        return int(self.finishes[-1]) if len(self.finishes) else 0

    @property
    def fraction(self) -> float:
        """Return the share of the grid's blocks that were simulated."""
        return len(self.finishes) / self.blocks
