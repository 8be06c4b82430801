"""Define gathers: the source row of each position, with repetitions allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.layout.layout import whole_number
from memlane.number_format import plural


@dataclass(frozen=True, eq=False)
class Selection:
    """A gather: position k of the result holds row `indices[k]` of an array of `rows` rows. Rows may be taken several times, or never.

    It is not an `ArrayLayout`, because an element may go to several positions; `inverse` exists if each row is taken exactly once.
    """

    indices: npt.NDArray[np.integer[Any]]
    rows: int

    def __post_init__(self) -> None:
        given = np.asarray(self.indices)
        if given.dtype.kind not in "iu" or given.dtype.itemsize not in (4, 8):
            raise LayoutError(f"the indices of a gather are integers of 32 or 64 bits, not an array of {given.dtype}")
        whole_number("the rows of a gather", self.rows, 0)
        object.__setattr__(self, "indices", given)

    def check(self) -> None:
        """Raise LayoutError for the first index that is out of range, with its position."""
        wrong = np.flatnonzero((self.indices < 0) | (self.indices >= self.rows))
        if wrong.size:
            raise out_of_range(int(wrong[0]), int(self.indices.flat[wrong[0]]), self.rows)

    @cached_property
    def inverse(self) -> Selection:
        """The gather that undoes this one. Raises LayoutError if a row is taken twice or never."""
        self.check()
        flat = self.indices.ravel()
        taken = np.bincount(flat, minlength=self.rows)
        if (taken > 1).any():
            row = int(np.argmax(taken > 1))
            first, second = np.flatnonzero(flat == row)[:2]
            raise LayoutError(f"the gather has no inverse: row {row} goes to positions {first} and {second}")
        if (taken == 0).any():
            raise LayoutError(f"the gather has no inverse: row {int(np.argmax(taken == 0))} goes to no position")
        places = np.empty(self.rows, flat.dtype)
        places[flat] = np.arange(self.rows, dtype=flat.dtype)
        return Selection(places, flat.size)

    def __str__(self) -> str:
        return f"gather of {self.indices.size} of {plural(self.rows, 'row')}"


def out_of_range(position: int, index: int, rows: int) -> LayoutError:
    """Return the error for a gather index outside the rows."""
    where = f"0..{rows - 1}" if rows else "an array without rows"
    return LayoutError(f"index {index} at position {position} of the gather is outside {where}: correct it, or clip the indices")
