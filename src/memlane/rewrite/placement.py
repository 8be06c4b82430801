"""Map byte offsets of an array by a layout: constant offsets, accesses that the layout splits, and the size it needs."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from memlane.errors import RelayoutError
from memlane.layout import Layout
from memlane.layout.expression import name
from memlane.layout.program import Program
from memlane.number_format import plural

ELEMENT_BYTES = (1, 2, 4, 8, 16)


class Placement:
    """Bytes of `tiles` consecutive tiles, each laid out by `layout` in elements of `element` bytes."""

    def __init__(self, layout: Layout, element: int, tiles: int) -> None:
        if not layout.is_injective:
            raise RelayoutError(f"{layout} puts two elements at the same offset; an array needs a layout that keeps them apart")
        self.layout, self.element, self.tiles = layout, element, tiles
        self._count = layout.rows * layout.columns

    @property
    def nbytes(self) -> int:
        """Bytes of the array as the kernel sees it."""
        return self._count * self.tiles * self.element

    @property
    def room(self) -> int:
        """Bytes that the laid out array takes."""
        return self.layout.size * self.tiles * self.element

    @cached_property
    def table(self) -> npt.NDArray[np.int64]:
        """Place of each element, in elements: int64[elements]."""
        one = self.layout.table.ravel()
        return np.concatenate([one + tile * self.layout.size for tile in range(self.tiles)])

    def of(self, offset: int) -> int:
        """Return the place of the byte at `offset`."""
        return int(self.table[offset // self.element]) * self.element + offset % self.element

    def program(self, nbytes: int) -> Program:
        """Return the map of the byte offsets at which an access of `nbytes` may begin; their name is `b`."""
        b = name("b", self.nbytes)
        element = b // self.element
        place = self.layout.offset_of_index(element % self._count) + element // self._count * self.layout.size
        return Program(place * self.element + (b % self.element if nbytes % self.element else 0))

    def program_of_elements(self) -> Program:
        """Return the map of element indices to byte offsets; their name is `k`."""
        k = name("k", self._count * self.tiles)
        return Program((self.layout.offset_of_index(k % self._count) + k // self._count * self.layout.size) * self.element)

    def torn_at(self, nbytes: int) -> int | None:
        """Return the first offset at which the layout splits or misaligns an aligned access of this size; None if there is none."""
        if nbytes <= self.element:
            return 0 if self.element % nbytes else None
        vector = nbytes // self.element
        if nbytes % self.element or len(self.table) % vector:
            return 0
        groups = self.table.reshape(-1, vector)
        torn = (groups[:, 0] % vector != 0) | (groups != groups[:, :1] + np.arange(vector)).any(axis=1)
        return int(np.flatnonzero(torn)[0]) * nbytes if torn.any() else None

    def distance(self, by: int, nbytes: int, start: int, multiple: int) -> int | None:
        """Return the new distance of two bytes whose old distance is `by`, if it is the same wherever accesses of `nbytes` begin; else
        None.

        Both bytes lie in the array. The offset of the first is `start` plus a multiple of `multiple`, a power of two.
        """
        if by % self.element or start % self.element:
            return None
        step, apart = max(1, nbytes // self.element), by // self.element
        if apart % step or abs(apart) >= len(self.table):
            return None
        begin = 0
        if multiple // self.element > step:
            step = multiple // self.element
            begin = start // self.element % step
        first = np.arange(begin, len(self.table), step)
        first = first[(first + apart >= 0) & (first + apart < len(self.table))]
        far = self.table[first + apart] - self.table[first]
        return int(far[0]) * self.element if len(far) and (far == far[0]).all() else None


def element_bytes(layout: Layout, nbytes: int, scalar: int, given: int | None, title: str) -> tuple[int, int]:
    """Return the bytes per element and the number of tiles of an array of `nbytes`, which is accessed by scalars of up to `scalar` bytes.

    Raises RelayoutError if the layout does not fit the array.
    """
    elements = layout.rows * layout.columns
    if given is not None and given not in ELEMENT_BYTES:
        raise RelayoutError(f"elements have 1, 2, 4, 8 or 16 bytes, got {given}")
    whole = nbytes // elements if elements and nbytes % elements == 0 else 0
    element = given or (min(whole, scalar) if whole in ELEMENT_BYTES else scalar)
    if nbytes % (elements * element):
        raise RelayoutError(
            f"{title} has {plural(nbytes, 'byte')}, but {layout} is a layout of {plural(elements, 'element')} of "
            f"{plural(element, 'byte')}: choose a layout for all its elements, or for an equal part of them"
        )
    return element, nbytes // (elements * element)
