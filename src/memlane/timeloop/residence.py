"""Kernels that stay on several devices for many steps: room for them, the memory in which they signal each other, and what one said that
has given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from memlane.errors import LaunchError, StencilError
from memlane.launch import DeviceArray, LoadedModule, Target
from memlane.stencils import Decomposition, PersistentKernel, Problem, Variant, cannot_stay
from memlane.stencils.persistent import GAVE_UP, SIGNAL_WORDS, STATE
from memlane.targets.signals import LIMIT, wait_limit_s

_MOST_POLLS, _POLLS_A_SECOND = (1 << 31) - 1, 1_500_000
"""Polls of a flag in a second, about: one takes 0.7 us on an H200."""


@dataclass(frozen=True, eq=False)
class Residence:
    """A kernel that stays on some devices."""

    kernel: PersistentKernel
    targets: Sequence[Target]
    blocks: list[int]
    """For each device how many blocks it has room for at the same time."""
    signals: tuple[DeviceArray, ...]
    """For each device the memory in which it is signalled."""

    @classmethod
    def of(cls, kernel: PersistentKernel, targets: Sequence[Target], loaded: Sequence[LoadedModule]) -> Residence:
        """Return the residence of a kernel on targets, on each of which its module is loaded."""
        threads = prod(kernel.block)
        blocks = [
            target.resident_blocks(one[kernel.name], threads, 0) * target.chip.sm_count for target, one in zip(targets, loaded, strict=True)
        ]
        return cls(kernel, targets, blocks, tuple(target.zeros((3, SIGNAL_WORDS), "u4") for target in targets))

    @property
    def polls(self) -> int:
        """Polls of a flag after which a device gives up; an emulated one never does, because the emulator finds endless waits itself."""
        return _MOST_POLLS if self.targets[0].modelled else min(_MOST_POLLS, int(_POLLS_A_SECOND * wait_limit_s()))

    def check(self, decomposition: Decomposition) -> None:
        """Raise LaunchError, which names the devices, if one has given up waiting for another. Counts begin anew then."""
        for at, memory in enumerate(self.signals):
            side, seen, wanted = (int(one) for one in memory.numpy()[STATE, GAVE_UP : GAVE_UP + 3])
            if not side:
                continue
            for one in self.signals:
                one.copy_from(np.zeros(one.shape, one.dtype))
            pairs = decomposition.neighbours_along(0)
            other = next(low.device if side == 1 else high.device for low, high in pairs if (high, low)[side - 1].device == at)
            here, there = (f"device {number} ({self.targets[number].name})" for number in (at, other))
            raise LaunchError(
                f"{here} gave up waiting for {there}, which had made {seen} steps since the run began, and {wanted} were waited for. "
                f"Fields are not complete: prepare the run anew, or restore a snapshot; set {LIMIT} if steps take so long"
            )


def check_stays(problem: Problem, ways: Sequence[Decomposition], variant: Variant | str | None, exchange_every: int | str) -> None:
    """Raise StencilError where no kernel can stay on the devices."""
    if why := next((why for way in ways if (why := cannot_stay(replace(problem, cut=way.cut)))), ""):
        raise StencilError(f"no kernel can stay on its device for many steps: {why}; use transport='flags'")
    if exchange_every not in (1, "auto") or (isinstance(variant, Variant) and variant.steps > 1):
        raise StencilError(
            "kernels that stay on their devices exchange after each step: leave out exchange_every and variants of several steps, or use "
            "transport='flags'"
        )
