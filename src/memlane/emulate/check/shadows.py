"""Record which bytes of each allocation were ever written, and the cells of its words in checked launches."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memlane.emulate.check.records import REGION, STAMP_SHIFT, UNWRITTEN_BITS, WORD_BYTES
from memlane.emulate.run.memory import Allocation, lazy_zeros

_MAX_PIECES = 64
"""Number of written pieces that are listed before cells replace the list."""
_MAX_FREED = 1 << 12
"""Number of freed allocations that are remembered."""
_RESET_STAMP = 1 << (STAMP_SHIFT - 1)
"""Stamp at which all histories are dropped, so that stamps never overflow."""


@dataclass
class _Shadow:
    allocation: Allocation
    pieces: list[tuple[int, int]] = field(default_factory=list)
    """Written byte ranges, (start, stop), until there are cells."""
    complete: bool = False
    """Whether every byte was written."""
    cells: npt.NDArray[np.uint64] | None = None

    def wrote(self, start: int, stop: int) -> None:
        if self.complete:
            return
        if self.cells is not None:
            _mark(self.cells, start, stop)
            return
        if self.pieces and self.pieces[-1][0] <= start <= self.pieces[-1][1]:
            start, stop = self.pieces[-1][0], max(stop, self.pieces.pop()[1])
        self.pieces.append((start, stop))
        if start == 0 and stop == self.allocation.nbytes:
            self.complete = True
            self.pieces.clear()
        elif len(self.pieces) > _MAX_PIECES:
            self.materialise()

    def materialise(self) -> npt.NDArray[np.uint64]:
        """Return the cells of the words, created on first use with the unwritten bytes and no history."""
        if self.cells is None:
            words = -(-self.allocation.nbytes // WORD_BYTES)
            self.cells = lazy_zeros(24 * words).view(np.uint64)
            if not self.complete:
                self.cells[:words] = UNWRITTEN_BITS
                for start, stop in self.pieces:
                    _mark(self.cells, start, stop)
                self.pieces.clear()
        return self.cells

    def mark_all_written(self) -> None:
        """Mark every byte as written and drop the history: earlier launches are ordered before all later ones."""
        self.complete = True
        self.pieces.clear()
        self.cells = None


def _mark(cells: npt.NDArray[np.uint64], start: int, stop: int) -> None:
    """Mark bytes `start` to `stop` as written."""
    first, last = -(-start // WORD_BYTES), stop // WORD_BYTES
    if first <= last:
        cells[first:last] &= np.uint64(~UNWRITTEN_BITS & (1 << 64) - 1)
    for byte in {*range(start, min(stop, first * WORD_BYTES)), *range(max(start, last * WORD_BYTES), stop)}:
        cells[byte // WORD_BYTES] &= np.uint64(~(1 << byte % WORD_BYTES) & (1 << 64) - 1)


@dataclass
class _Peers:
    """Devices that reach each other's memory; one sequence of stamps orders their launches."""

    members: list[Shadows]
    stamp: int = 1


class Shadows:
    """The shadows of all allocations of one emulated device.

    Threads may allocate, write and free while another one launches; the garbage collector may free an allocation in the middle of the
    methods here.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Lock that the memory also holds when it reports allocations: with two locks, two threads could hold one each and deadlock."""
        self._peers = _Peers([self])
        self.freed: deque[Allocation] = deque(maxlen=_MAX_FREED)
        """Allocations freed lately; addresses are never reused."""
        self._shadows: dict[int, _Shadow] = {}
        """Start address -> shadow. Copy it before iterating: building a tuple or list from it may run the garbage collector, which changes
        it."""
        self._table: npt.NDArray[np.void] | None = None

    @property
    def stamp(self) -> int:
        """The checker's present time; see `stamps`."""
        return self._peers.stamp

    @stamp.setter
    def stamp(self, stamp: int) -> None:
        self._peers.stamp = max(stamp, self._peers.stamp)

    def join(self, other: Shadows) -> None:
        """Make two devices, and all peers of either, peers of each other."""
        if self._peers is not other._peers:
            joined = _Peers([*self._peers.members, *other._peers.members], max(self.stamp, other.stamp))
            for member in joined.members:
                member._peers, member._table = joined, None

    def add(self, allocation: Allocation, written: bool) -> None:
        """Register a new allocation."""
        with self.lock:
            self._shadows[allocation.low] = _Shadow(allocation, complete=written)
            self._table = None

    def remove(self, allocation: Allocation) -> None:
        """Remove a freed allocation."""
        with self.lock:
            del self._shadows[allocation.low]
            self.freed.append(allocation)
            self._table = None

    def wrote(self, allocation: Allocation, offset: int, nbytes: int) -> None:
        """Record a write of the host to an allocation."""
        with self.lock:
            self._shadows[allocation.low].wrote(offset, offset + nbytes)

    def mark_all_written(self) -> None:
        """Mark all memory as written, after a launch that was not checked."""
        with self.lock:
            for shadow in self._shadows.copy().values():
                if not shadow.complete:
                    shadow.mark_all_written()
                    self._table = None

    def table(self) -> npt.NDArray[np.void]:
        """Return the allocations of this device and its peers, with their cells, for generated code: by address, after an empty first
        row."""
        if len(self._peers.members) == 1:
            return self._own_table()
        return np.sort(np.concatenate([member._own_table()[1 if number else 0 :] for number, member in enumerate(self._peers.members)]))

    def _own_table(self) -> npt.NDArray[np.void]:
        with self.lock:
            while (table := self._table) is None:
                shadows = sorted(self._shadows.copy().items())
                self._table = np.array([(0, 0, 0, 0), *(_row(shadow) for _, shadow in shadows)], REGION)
                if len(shadows) != len(self._shadows):  # one was freed meanwhile
                    self._table = None
            return table

    def begin(self) -> int:
        """Return the first stamp of a launch."""
        with self.lock:
            if self.stamp > _RESET_STAMP:
                self._peers.stamp = 1
                for shadow in [shadow for member in self._peers.members for shadow in member._shadows.copy().values()]:
                    if shadow.cells is not None:
                        words = len(shadow.cells) // 3
                        shadow.cells[:words] &= np.uint64(UNWRITTEN_BITS)
                        shadow.cells[words:] = 0
            return self.stamp + 1


def _row(shadow: _Shadow) -> tuple[int, int, int, int]:
    one = shadow.allocation
    return one.low, one.high, shadow.materialise().ctypes.data, (one.host - one.low) % (1 << 64)
