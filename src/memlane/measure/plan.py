"""What a traced launch will leave in the trace, told before it starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from memlane.number_format import plural
from memlane.record import Sample, kernel_label

LOGGER = logging.getLogger("memlane.measure")
"""Takes the notes of each plan, as information."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The room that a launch finds in the trace buffer, and which of its warps use it."""

    kernel: str
    """Its title."""
    blocks: int
    warps_per_block: int
    chosen: int
    """Warps that are traced; where SMs are chosen, no more than that."""
    sample: Sample | None
    """Which part of the launch is traced; None for all of it."""
    records_per_warp: int
    """Records of a warp that its first lane leads."""
    others_per_warp: int
    """Records that other lanes lead, where a warp has diverged."""
    limited: bool
    """Whether a warp may make more records than it has room for. What finds no room is counted as lost, for each warp."""

    @property
    def warps(self) -> int:
        """Of the whole launch."""
        return self.blocks * self.warps_per_block

    def notes(self) -> Iterator[str]:
        """What a person should know before the launch, one sentence each."""
        name = kernel_label(self.kernel)
        if not self.chosen:
            yield (
                f"{name}: no warp of a launch of {plural(self.warps, 'warp')} is traced, because none is in {self.sample}; it has "
                f"blocks 0 to {self.blocks - 1} with warps 0 to {self.warps_per_block - 1}"
            )
        elif self.limited:
            yield (
                f"{name}: the buffer holds {plural(self.records_per_warp, 'record')} per warp; the number of records dropped "
                f"beyond that is reported"
            )

    def tell(self) -> None:
        """Send the notes to `LOGGER`."""
        for note in self.notes():
            LOGGER.info(note)
