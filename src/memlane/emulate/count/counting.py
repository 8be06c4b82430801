"""What a warp access costs, counted by generated code: the functions of `memlane.chip.access` at some hundred cycles a call.

    costs = counting(chip)
    cost = invoke(e, costs.sectors, addresses, distance, mask, constant(I32, 4))       # i64: sectors | ideal << 32
    cost = invoke(e, costs.wavefronts, addresses, distance, mask, constant(I32, 4))    # i64: wavefronts | ideal << 32

`addresses` points to 32 x i64 in bytes, `distance` is added to each (what inactive lanes hold is ignored), `mask` has bit i for lane i,
`nbytes` is what one lane asks for: 1, 2, 4, 8 or 16. An access without an active lane costs 0. The functions are generated from the rules
of the chip; chips with equal rules share them.
"""

from __future__ import annotations

from dataclasses import dataclass

from memlane.chip import Chip
from memlane.emulate.count.banks import wavefronts_helper
from memlane.emulate.count.coalescing import sectors_helper
from memlane.emulate.runtime.helper import Helper


@dataclass(frozen=True)
class Counting:
    """The counting functions of a chip, all `(addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32) -> i64`."""

    sectors: Helper
    """Global-like memory: sectors that move, and `ideal << 32`."""
    wavefronts: Helper
    """Shared memory: wavefronts, and `ideal << 32`."""


def counting(chip: Chip) -> Counting:
    """The counting functions that follow the rules of `chip`."""
    return Counting(sectors_helper(chip), wavefronts_helper(chip))
