"""Define a layout given by an arbitrary permutation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, table
from memlane.layout.layout import Layout
from memlane.number_format import plural


@dataclass(frozen=True)
class Gather(Layout):
    """The element with row-major index k is at indices[k]; `indices` is a permutation of 0..rows*columns-1, in any shape."""

    indices: tuple[int, ...] | npt.NDArray[np.integer] | Sequence[int]

    def check(self) -> None:
        given, count = np.asarray(self.indices), self.rows * self.columns
        if given.dtype.kind not in "iu":
            raise LayoutError(f"the indices of a gather must be integers, got an array of {given.dtype}")
        if given.size != count:
            raise LayoutError(f"a gather of {self.rows}x{self.columns} needs {plural(count, 'index')}, got {given.size}")
        flat = given.ravel().astype(np.int64)
        outside = flat[(flat < 0) | (flat >= count)]
        if outside.size:
            raise LayoutError(f"index {outside[0]} of a gather is outside 0..{count - 1}")
        repeated = np.flatnonzero(np.bincount(flat, minlength=count) > 1)
        if repeated.size:
            raise LayoutError(f"the indices of a gather must be a permutation, but {repeated[0]} occurs twice")
        object.__setattr__(self, "indices", tuple(flat.tolist()))

    def offset(self, i: Expression, j: Expression) -> Expression:
        return self.offset_of_index(i * self.columns + j)

    def offset_of_index(self, k: Expression) -> Expression:
        return table(tuple(self.indices), k)
