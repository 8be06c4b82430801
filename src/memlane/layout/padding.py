"""Count the wavefronts of recorded accesses to an array in shared memory if its rows were padded."""

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
    """Relative lane addresses of one access, in elements from an arbitrary origin."""

    elements: npt.NDArray[np.int64]
    """int64[32]; undefined for lanes outside `lanes`."""
    lanes: int
    """Mask of the active lanes."""
    nbytes: int
    """Bytes accessed per lane."""
    kind: AccessKind = "load"
    weight: float = 1.0
    """Number of executions."""

    def wavefronts_padded(self, columns: int, pad: int, element: int, chip: Chip) -> int:
        """Return the wavefronts with rows of `columns` elements padded by `pad`; the lowest element is assumed to be in column 0."""
        active = [lane for lane in range(len(self.elements)) if self.lanes >> lane & 1]
        places = self.elements - self.elements[active].min()
        addresses = (places + pad * (places // columns)) * element
        return wavefronts(chip, np.maximum(addresses, 0).tolist(), self.lanes, self.nbytes, self.kind)


def padded_wavefronts(accesses: Sequence[LaneDistances], columns: int, pad: int, element: int, chip: Chip) -> float:
    """Return the weighted sum of the wavefronts of all accesses."""
    return sum(one.weight * one.wavefronts_padded(columns, pad, element, chip) for one in accesses)


def least_padding(accesses: Sequence[LaneDistances], columns: int, element: int, vector: int, chip: Chip) -> int:
    """Return the smallest row padding, in elements, with the fewest wavefronts; 0 if none helps.

    It is a multiple of `vector`, the elements of the widest access, and smaller than a row of banks.
    """
    most = chip.banks.banks * chip.banks.bank_bytes // element
    return min(range(0, most, vector), key=lambda pad: padded_wavefronts(accesses, columns, pad, element, chip))
