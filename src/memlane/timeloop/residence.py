"""Set up persistent kernels on several devices: the resident blocks, the memory of their flags, and the error of a device that gave up
waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from memlane.errors import LaunchError, StencilError
from memlane.launch import DeviceArray, LoadedModule, Target
from memlane.stencils import Decomposition, Problem, Subdomain, Variant, cannot_stay
from memlane.stencils.persistent import FROM_HIGH, FROM_LOW, GAVE_UP, LOW_IS_FREE, SIGNAL_WORDS, STATE
from memlane.stencils.persistent_stage import StayingKernel
from memlane.stencils.resident import ResidentKernel
from memlane.stencils.tiles import Tile, best_tile, cannot_reside
from memlane.targets.signals import LIMIT, wait_limit_s
from memlane.timeloop.memory import zeros

_MOST_POLLS, _POLLS_A_SECOND = (1 << 31) - 1, 1_500_000
"""Approximate polls of a flag per second: one takes 0.7 us on an H200."""


@dataclass(frozen=True, eq=False)
class Residence:
    """Persistent kernel on a set of devices, with its memory."""

    kernel: StayingKernel
    targets: Sequence[Target]
    blocks: list[int]
    """Blocks that are resident at the same time on each device."""
    signals: tuple[DeviceArray, ...]
    """Memory for signals of each device."""
    arrived: tuple[DeviceArray, ...] = ()
    """Memory of each device for planes of its neighbours, where they do not store into its halo."""

    @classmethod
    def of(
        cls,
        kernel: StayingKernel,
        subdomains: Sequence[Subdomain],
        targets: Sequence[Target],
        loaded: Sequence[LoadedModule],
    ) -> Residence:
        """Return the residence of a kernel on targets that have loaded its module. Raise StencilError if all tiles cannot be resident on
        one of them at the same time."""
        threads, blocks, signals, arrived = prod(kernel.block), [], [], []
        for subdomain, target, one in zip(subdomains, targets, loaded, strict=True):
            shared_bytes = kernel.shared_bytes if isinstance(kernel, ResidentKernel) else 0
            blocks.append(target.resident_blocks(one[kernel.name], threads, shared_bytes) * target.chip.sm_count)
            signals.append(zeros(target, "signals", (kernel.signal_rows(subdomain.planes), SIGNAL_WORDS), "u4"))
            if not isinstance(kernel, ResidentKernel):
                continue
            arrived.append(zeros(target, "planes of neighbours", kernel.arrival_shape, kernel.arrival_type))
            if kernel.blocks_of(subdomain.planes) > blocks[-1]:
                raise StencilError(
                    f"{target.name} holds {blocks[-1]} blocks at the same time, and its part of the grid is "
                    f"{kernel.blocks_of(subdomain.planes)} {kernel}: use transport='flags'"
                )
        return cls(kernel, targets, blocks, tuple(signals), tuple(arrived))

    @property
    def polls(self) -> int:
        """Polls of a flag after which a device gives up. Emulated devices do not: the emulator detects endless waits itself."""
        return _MOST_POLLS if self.targets[0].modelled else min(_MOST_POLLS, int(_POLLS_A_SECOND * wait_limit_s()))

    def check(self, decomposition: Decomposition) -> None:
        """Raise LaunchError, which names the devices, if one has given up waiting for another, and reset the counts."""
        for at, memory in enumerate(self.signals):
            row = replace(memory, address=memory.address + STATE * SIGNAL_WORDS * 4, shape=(SIGNAL_WORDS,), owner=memory)
            code, seen, wanted = (int(one) for one in row.numpy()[GAVE_UP : GAVE_UP + 3])
            if not code:
                continue
            for one in (*self.signals, *self.arrived):
                one.copy_from(np.zeros(one.shape, one.dtype))
            flag = code - 1
            is_low = flag in (FROM_LOW, LOW_IS_FREE)
            pairs = decomposition.neighbours_along(0)
            other = next(low.device if is_low else high.device for low, high in pairs if (high if is_low else low).device == at)
            here, there = (f"device {number} ({self.targets[number].name})" for number in (at, other))
            for_what = "exchanges" if flag in (FROM_LOW, FROM_HIGH) else "exchanges ready for its halos"
            raise LaunchError(
                f"{here} gave up waiting for {there}, which had made {seen} {for_what} since the run began, and {wanted} were waited for. "
                f"Fields are not complete: prepare the run anew, or restore a snapshot; set {LIMIT} if steps take so long"
            )


def staying(
    problem: Problem, ways: Sequence[Decomposition], variant: Variant | str | None, targets: Sequence[Target]
) -> list[Decomposition]:
    """Return the decompositions of a grid that allow persistent kernels. Raise StencilError if there is none."""
    if len(targets) == 1:
        if tile_of(problem, ways[0], targets) is None:
            why = cannot_reside(problem) or f"the multiprocessors of {targets[0].name} do not hold its cells"
            raise StencilError(f"no kernel can stay on one device for many steps: {why}; leave out transport")
        return list(ways)
    reasons = [cannot_stay(replace(problem, cut=way.cut)) for way in ways]
    if all(reasons):
        raise StencilError(f"no kernel can stay on its device for many steps: {reasons[0]}; use transport='flags'")
    if isinstance(variant, Variant) and variant.steps > 1:
        raise StencilError(
            f"kernels that stay on their devices have no launches of several steps, and the variant is {variant}: leave it out, or use "
            "transport='flags'"
        )
    return [way for way, why in zip(ways, reasons, strict=True) if not why]


def tile_of(problem: Problem, decomposition: Decomposition, targets: Sequence[Target]) -> Tile | None:
    """Return the tile in which the multiprocessors of all devices keep the cells of their parts; None if these do not fit."""
    smallest = min(targets, key=lambda one: (one.chip.sm_count, one.chip.max_shared_bytes))
    return best_tile(replace(problem, cut=decomposition.cut), [one.planes for one in decomposition.subdomains], smallest.chip)
