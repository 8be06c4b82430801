"""Provide the counting functions of a chip: the cost rules of `memlane.chip.access` in generated code, some hundred cycles per call.

    costs = counting(chip, "load")
    cost = invoke(e, costs.sectors, addresses, distance, mask, constant(I32, 4))       # i64: sectors | ideal << 32
    cost = invoke(e, costs.wavefronts, addresses, distance, mask, constant(I32, 4))    # i64: wavefronts | cycles << 16 | ideal << 32
    met = invoke(e, equal_lanes, addresses, mask)                                      # i64: distinct addresses | most lanes at one << 32

`addresses` points to 32 x i64 in bytes, `distance` is added to each (values of inactive lanes are ignored), `mask` has bit i for lane i,
`nbytes` is the size of one lane's access: 1, 2, 4, 8 or 16. An access without an active lane costs 0. The functions are generated from the
chip's rules; chips with equal rules share them. Copies from global to shared memory have both addresses: `copies`.
"""

from __future__ import annotations

from dataclasses import dataclass

from memlane.chip import AccessKind, Chip
from memlane.emulate.count.banks import wavefronts_helper
from memlane.emulate.count.coalescing import sectors_helper
from memlane.emulate.count.equal_lanes import equal_lanes
from memlane.emulate.count.local_memory import local_helper
from memlane.emulate.runtime.helper import Helper

__all__ = ["Counting", "counting", "equal_lanes"]


@dataclass(frozen=True)
class Counting:
    """The counting functions of a chip, all `(addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32) -> i64`."""

    sectors: Helper
    """Global-like memory: sectors that move, and `ideal << 32`."""
    wavefronts: Helper
    """Shared memory: wavefronts, `cycles << 16` that the banks are busy, and `ideal << 32`."""
    local: Helper
    """Local memory, with addresses inside a lane's own copy: sectors that move, and `ideal << 32`."""


def counting(chip: Chip, kind: AccessKind = "load") -> Counting:
    """Return the counting functions for accesses of one kind on `chip`."""
    return Counting(sectors_helper(chip, kind), wavefronts_helper(chip, kind), local_helper(chip))
