"""Describe which part of a launch was traced, and what it represents."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]
"""Half-open range of numbers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Part of a launch that was traced. An empty tuple of spans means all."""

    warps_in_window: int
    """Warps of the launch in the chosen blocks with the chosen numbers, on any SM."""
    warps_chosen: int
    """Warps among these that the sample of 1 in `every` drew. If SMs were chosen too, only those on them were traced."""
    blocks: tuple[Span, ...] = ()
    """Linear indices in the grid."""
    warps: tuple[Span, ...] = ()
    """Indices in the block."""
    sms: tuple[Span, ...] = ()
    executions: Span | None = None
    """Executions of each site by a thread."""
    every: int = 1
    """One of this many warps with consecutive numbers, counted through all blocks, was drawn."""
    seed: int = 0
    """Seed of the draw."""
    whole_blocks: bool = False
    """Whether blocks were drawn instead of warps, and all their warps were traced."""

    @property
    def weight(self) -> float:
        """Warps in the window per drawn warp: totals over the traced warps times this estimate totals of the window. 0 if none was
        drawn."""
        return self.warps_in_window / self.warps_chosen if self.warps_chosen else 0.0

    def __str__(self) -> str:
        """Return a description such as `1 in 32 warps (seed 0) of blocks 0-3,17, executions 10-20`, or `1 in 32 blocks (seed 0)`."""
        spans = (("block", self.blocks), ("warp", self.warps), ("SM", self.sms))
        where = [f"{name}{'s' if _several(chosen) else ''} {span_text(chosen)}" for name, chosen in spans if chosen]
        drawn = "blocks" if self.whole_blocks else "warps"
        taken = f"1 in {self.every:,} {drawn} (seed {self.seed})" if self.every > 1 else ""
        parts = [" of ".join(part for part in (taken, ", ".join(where)) if part)]
        if self.executions is not None:
            parts.append(f"execution{'s' if _several((self.executions,)) else ''} {span_text((self.executions,))}")
        return ", ".join(part for part in parts if part) or "all warps"


def span_text(spans: tuple[Span, ...]) -> str:
    """Return spans in the user's notation, both ends included: `0-3,17`."""
    return ",".join(str(first) if stop == first + 1 else f"{first}-{stop - 1}" for first, stop in spans)


def _several(spans: tuple[Span, ...]) -> bool:
    return sum(stop - first for first, stop in spans) > 1
