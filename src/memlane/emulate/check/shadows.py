"""Which bytes of each allocation were ever written, and the cells of its words while launches are checked."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memlane.emulate.check.records import REGION, STAMP_SHIFT, UNWRITTEN_BITS, WORD_BYTES
from memlane.emulate.run.memory import Allocation, untouched

_KEPT_APART = 64
"""Pieces that are remembered one by one before the cells take over."""
_REMEMBERED = 1 << 12
"""Allocations that are still known when they have been freed."""
_OLDEST = 1 << (STAMP_SHIFT - 1)
"""Stamp at which the histories of all words are dropped, so that stamps never run out."""


@dataclass
class _Shadow:
    allocation: Allocation
    pieces: list[tuple[int, int]] = field(default_factory=list)
    """Bytes that were written, from and to, until there are cells."""
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
        elif len(self.pieces) > _KEPT_APART:
            self.materialise()

    def materialise(self) -> npt.NDArray[np.uint64]:
        """The cells of the words, made now if need be: without a history, and with the bytes that were never written."""
        if self.cells is None:
            words = -(-self.allocation.nbytes // WORD_BYTES)
            self.cells = untouched(24 * words).view(np.uint64)
            if not self.complete:
                self.cells[:words] = UNWRITTEN_BITS
                for start, stop in self.pieces:
                    _mark(self.cells, start, stop)
                self.pieces.clear()
        return self.cells

    def trust(self) -> None:
        """Count every byte as written. There is no history to keep: what launches did before is ordered."""
        self.complete = True
        self.pieces.clear()
        self.cells = None


def _mark(cells: npt.NDArray[np.uint64], start: int, stop: int) -> None:
    """Bytes `start` to `stop` were written."""
    first, last = -(-start // WORD_BYTES), stop // WORD_BYTES
    if first <= last:
        cells[first:last] &= np.uint64(~UNWRITTEN_BITS & (1 << 64) - 1)
    for byte in {*range(start, min(stop, first * WORD_BYTES)), *range(max(start, last * WORD_BYTES), stop)}:
        cells[byte // WORD_BYTES] &= np.uint64(~(1 << byte % WORD_BYTES) & (1 << 64) - 1)


@dataclass
class _Peers:
    """Devices that reach each other's memory: one sequence of stamps orders what their launches did to it."""

    members: list[Shadows]
    stamp: int = 1


class Shadows:
    """The shadows of all allocations of one emulated device.

    Threads may allocate, write and free while another one launches; and an allocation may be freed wherever the garbage collector strikes,
    also amid the methods here.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held by the memory too when it tells of allocations: were there two locks, two threads could hold one each."""
        self._peers = _Peers([self])
        self.freed: deque[Allocation] = deque(maxlen=_REMEMBERED)
        """What was freed lately: addresses are never used twice."""
        self._shadows: dict[int, _Shadow] = {}
        """To be copied before it is walked through: making a tuple or a list of what is in it may call the garbage collector halfway."""
        self._table: npt.NDArray[np.void] | None = None

    @property
    def stamp(self) -> int:
        """The present of the checker; see `stamps`."""
        return self._peers.stamp

    @stamp.setter
    def stamp(self, stamp: int) -> None:
        self._peers.stamp = max(stamp, self._peers.stamp)

    def join(self, other: Shadows) -> None:
        """Make two devices peers, and so all that are peers of theirs."""
        if self._peers is not other._peers:
            joined = _Peers([*self._peers.members, *other._peers.members], max(self.stamp, other.stamp))
            for member in joined.members:
                member._peers, member._table = joined, None

    def add(self, allocation: Allocation, written: bool) -> None:
        """There is a new allocation."""
        with self.lock:
            self._shadows[allocation.low] = _Shadow(allocation, complete=written)
            self._table = None

    def remove(self, allocation: Allocation) -> None:
        """An allocation was freed."""
        with self.lock:
            del self._shadows[allocation.low]
            self.freed.append(allocation)
            self._table = None

    def wrote(self, allocation: Allocation, offset: int, nbytes: int) -> None:
        """The host wrote to an allocation."""
        with self.lock:
            self._shadows[allocation.low].wrote(offset, offset + nbytes)

    def trust(self) -> None:
        """A launch that was not checked may have written anywhere."""
        with self.lock:
            for shadow in self._shadows.copy().values():
                if not shadow.complete:
                    shadow.trust()
                    self._table = None

    def table(self) -> npt.NDArray[np.void]:
        """The allocations with their cells as generated code looks them up, those of peers too: by address, behind an empty first row."""
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
        """The first stamp of a launch."""
        with self.lock:
            if self.stamp > _OLDEST:
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
