"""Explain the speed of a step by counting its launches on the emulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlane.chip import LANES
from memlane.lab.reduction.ladder import Step, passes
from memlane.launch import Target, apply_observers, observing
from memlane.measure import Counter

TURNS = 16


@dataclass(frozen=True)
class Reasons:
    """Counts of a sum, all launches together."""

    elements: int
    block: int
    launches: int
    blocks: int
    """Number of blocks of the first launch."""
    divergent_branches: int
    """Branches of a warp at which its lanes diverged."""
    excess_wavefronts: int
    """Wavefronts of shared memory above the fewest possible."""
    wavefronts: int
    instructions: int
    """PTX instructions of all threads."""
    idle_lanes: float | None
    """Mean share of idle lanes in the tree's accesses to shared memory, 0 to 1; None if the tree is not there."""
    barriers: int
    """Barriers that a block executes, by its source."""
    sectors: int
    """Sectors moved by accesses to global memory."""

    @property
    def per_block(self) -> dict[str, float]:
        """Approximate counts per block of the first launch: all launches divided by its blocks."""
        names = ("divergent_branches", "excess_wavefronts", "wavefronts", "instructions", "sectors")
        return {name: getattr(self, name) / self.blocks for name in names}


def reasons(target: Target, step: Step, n: int, block: int) -> Reasons:
    """Count a step on a target that observes.

    A grid that fits on the chip is made small enough for a thread to make `TURNS` iterations, as with many more elements.
    """
    array = target.array(np.ones(n, np.int32))
    found, counter = passes(step, array, block, max(1, n // (2 * block * TURNS))), Counter()
    with observing(counter):
        for one in found.launches:
            target.launch(apply_observers(one))
    counts = counter.finish()
    totals = [one.total() for one in counts]
    shared = [site for one in counts for site in one.sites if site.site.space == "shared"]
    requests = sum(site.requests for site in shared)
    return Reasons(
        n,
        block,
        len(found.launches),
        found.launches[0].grid[0],
        sum(one.divergent_branches for one in totals),
        sum(one.wavefronts - one.ideal_wavefronts for one in totals),
        sum(one.wavefronts for one in totals),
        sum(one.thread_instructions or 0 for one in counts),
        1 - sum(site.lanes for site in shared) / (LANES * requests) if requests and step.tree_in_shared else None,
        step.barriers(block),
        sum(one.sectors for one in totals),
    )
