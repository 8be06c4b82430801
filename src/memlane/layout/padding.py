"""What longer rows of an array in shared memory would cost the accesses of a warp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.chip import Chip
from memlane.chip.access import wavefronts
from memlane.chip.model import AccessKind


@dataclass(frozen=True, eq=False)
class LaneDistances:
    """How the lanes of one access lie, in elements from any one place."""

    elements: npt.NDArray[np.int64]
    """int64[32]; meaningless for lanes that are not in `lanes`."""
    lanes: int
    """A bit for each active lane."""
    nbytes: int
    """That each lane accesses."""
    kind: AccessKind = "load"
    weight: float = 1.0
    """How often the access is made."""

    def wavefronts_padded(self, columns: int, pad: int, element: int, chip: Chip) -> int:
        """Return the wavefronts with rows of `columns` elements that are longer by `pad`. The first of its elements is taken to stand in
        the leftmost column that it touches."""
        active = [lane for lane in range(len(self.elements)) if self.lanes >> lane & 1]
        places = self.elements - self.elements[active].min()
        addresses = (places + pad * (places // columns)) * element
        return wavefronts(chip, np.maximum(addresses, 0).tolist(), self.lanes, self.nbytes, self.kind)


def padded_wavefronts(accesses: Sequence[LaneDistances], columns: int, pad: int, element: int, chip: Chip) -> float:
    """Return the wavefronts of all accesses, each as often as it is made."""
    return sum(one.weight * one.wavefronts_padded(columns, pad, element, chip) for one in accesses)


def least_padding(accesses: Sequence[LaneDistances], columns: int, element: int, vector: int, chip: Chip) -> int:
    """Return by how many elements rows should be longer for the fewest wavefronts, the least such number; 0 where none helps.

    It is a multiple of `vector`, the elements of the widest access, and smaller than all banks together.
    """
    most = chip.banks.banks * chip.banks.bank_bytes // element
    return min(range(0, most, vector), key=lambda pad: padded_wavefronts(accesses, columns, pad, element, chip))
