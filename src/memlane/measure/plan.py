"""State before a traced launch starts which part of it is traced and how many records it can keep."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from memlane.number_format import plural
from memlane.record import Sample, kernel_label

LOGGER = logging.getLogger("memlane.measure")
"""Logger of the notes of each plan, at level INFO."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Capacity of a launch in the trace buffer, and which of its warps use it."""

    kernel: str
    """Title of the kernel."""
    blocks: int
    warps_per_block: int
    chosen: int
    """Traced warps; an upper bound if SMs are chosen."""
    sample: Sample | None
    """Which part of the launch is traced; None for all of it."""
    records_per_warp: int
    """Records per warp led by lane 0."""
    others_per_warp: int
    """Records per warp led by other lanes, when the warp has diverged."""
    limited: bool
    """Whether a warp may make more records than it can keep. The number dropped is counted per warp."""

    @property
    def warps(self) -> int:
        """Warps of the whole launch."""
        return self.blocks * self.warps_per_block

    def notes(self) -> Iterator[str]:
        """Yield the sentences that the user should read before the launch."""
        name = kernel_label(self.kernel)
        if not self.chosen:
            yield (
                f"{name}: no warp of a launch of {plural(self.warps, 'warp')} is traced, because none is in {self.sample}; it has "
                f"blocks 0 to {self.blocks - 1} with warps 0 to {self.warps_per_block - 1}"
            )
        elif self.limited:
            yield (
                f"{name}: the buffer holds {plural(self.records_per_warp, 'record')} per warp, and a warp may make more; the report "
                f"says how many were lost"
            )

    def tell(self) -> None:
        """Log the notes to `LOGGER`."""
        for note in self.notes():
            LOGGER.info(note)
