"""Why a step is as quick as it is: what its launches do, counted on the emulator."""

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
    """Of a sum of so many elements, all launches together."""

    elements: int
    block: int
    launches: int
    blocks: int
    """Of the first launch."""
    divergent_branches: int
    """Branches of a warp whose lanes went two ways."""
    excess_wavefronts: int
    """Passes through the banks of shared memory beyond those that would do."""
    wavefronts: int
    instructions: int
    """PTX instructions of all threads."""
    idle_lanes: float | None
    """The share of lanes that had no part in the mean access of the tree to shared memory, 0 to 1; None where it is not there."""
    barriers: int
    """That a block meets, by its text."""
    sectors: int
    """That the accesses to global memory moved."""

    @property
    def per_block(self) -> dict[str, float]:
        """What is said of a block of the first launch, about: all launches over its blocks."""
        names = ("divergent_branches", "excess_wavefronts", "wavefronts", "instructions", "sectors")
        return {name: getattr(self, name) / self.blocks for name in names}


def reasons(target: Target, step: Step, n: int, block: int) -> Reasons:
    """Count a step on a target that observes. Grids that fit on the chip are made so small that a thread takes `TURNS` turns, as with many
    more elements."""
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
