"""Virtual device memory: NumPy buffers at device addresses that are never used twice."""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memlane.emulate.layout import ALLOCATION, DEVICE_BYTES, FIRST_ADDRESS, MOST_DEVICES
from memlane.emulate.runtime.schedule import POISON
from memlane.errors import DeviceError
from memlane.number_format import plural

ALIGNMENT = 256
"""Of every allocation, as the CUDA driver aligns."""
GUARD = 4096
"""Bytes at least between two allocations, that belong to nobody."""


class Buffer:
    """The host bytes of one allocation. When nobody refers to it any more, the memory is freed."""

    def __init__(self, nbytes: int, cleared: bool = False) -> None:
        try:
            self.bytes: npt.NDArray[np.uint8] = untouched(nbytes) if cleared else np.full(nbytes, POISON, np.uint8)
        except (MemoryError, OSError) as error:
            raise DeviceError(f"not enough host memory for an allocation of {plural(nbytes, 'byte')}") from error


_IN_SMALL_PAGES = 1 << 22
"""Bytes below which NumPy asks for no large pages anyway."""


def untouched(nbytes: int) -> npt.NDArray[np.uint8]:
    """Zeros that take memory only where they are touched, in small pages where the system lets us choose: large ones would make much of a
    little, and clearing them would take longer than most launches."""
    if nbytes < _IN_SMALL_PAGES:
        return np.zeros(nbytes, np.uint8)
    try:
        pages = mmap.mmap(-1, nbytes)
    except OSError as error:
        raise MemoryError(f"{plural(nbytes, 'byte')}") from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)[:nbytes]


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """Device addresses `low` to `high` (exclusive), and where they lie on the host."""

    low: int
    high: int
    host: int
    label: str = ""
    """What it is called in messages, for example the name of a variable."""

    @property
    def nbytes(self) -> int:
        return self.high - self.low


class Watcher(Protocol):
    """Wants to know what becomes of allocations."""

    @property
    def lock(self) -> threading.RLock:
        """To be held while it is told."""

    def add(self, allocation: Allocation, written: bool) -> None:
        """There is a new one; `written` if it is cleared."""

    def remove(self, allocation: Allocation) -> None:
        """It was freed."""

    def wrote(self, allocation: Allocation, offset: int, nbytes: int) -> None:
        """The host wrote to it."""


class Memory:
    """The allocations of one emulated device, in the order of their addresses. Several threads may use it.

    Each device has a range of addresses of its own, so an address tells its device. Kernels reach what lies here, and in the memory of
    `peers`.
    """

    def __init__(self, watcher: Watcher, device: int, capacity: int) -> None:
        """`device`: its number. `capacity`: how many bytes it has."""
        if not 0 <= device < MOST_DEVICES:
            raise DeviceError(f"there is no emulated device {device}: their numbers are 0 to {MOST_DEVICES - 1}")
        self._watcher = watcher
        self._lock = watcher.lock
        self._allocations: list[Allocation] = []
        self._next = FIRST_ADDRESS + device * DEVICE_BYTES
        self._end = self._next + DEVICE_BYTES
        self._capacity, self._used = capacity, 0
        self._version = 0
        """How often allocations were made or freed."""
        self._table: tuple[tuple[int, ...], npt.NDArray[np.void]] | None = None
        """The table that generated code looks addresses up in, and the versions of this memory and of its peers that it shows."""
        self.peers: tuple[Memory, ...] = ()

    def allocate(self, nbytes: int, label: str = "", cleared: bool = False) -> tuple[int, Buffer]:
        """Fresh memory filled with a fixed pattern, or with zeros: its device address, and what keeps it alive."""
        self._check_room(nbytes)
        buffer = Buffer(nbytes, cleared)
        with self._lock:
            self._check_room(nbytes)
            low = self._next
            if low + nbytes > self._end:
                raise DeviceError(
                    f"no addresses left for {plural(nbytes, 'byte')}: an emulated device has {DEVICE_BYTES >> 30} GiB of address space"
                )
            self._next = -(-(low + nbytes + GUARD) // ALIGNMENT) * ALIGNMENT
            allocation = Allocation(low, low + nbytes, buffer.bytes.ctypes.data, label)
            self._allocations.append(allocation)
            self._used += nbytes
            self._watcher.add(allocation, cleared)
            self._version += 1
        weakref.finalize(buffer, self._free, allocation).atexit = False
        return low, buffer

    @property
    def free_bytes(self) -> int:
        """How many bytes of this device are not allocated."""
        return max(0, self._capacity - self._used)

    def _check_room(self, nbytes: int) -> None:
        if nbytes > self.free_bytes:
            raise DeviceError(
                f"not enough free device memory for {plural(nbytes, 'byte')}: {self.free_bytes:,} of {plural(self._capacity, 'byte')} are "
                "free; free arrays, or allocate less"
            )

    def _free(self, allocation: Allocation) -> None:
        """Happens wherever the garbage collector strikes, also amid the other methods: they keep to the list that they began with."""
        with self._lock:
            self._allocations = [other for other in self._allocations if other is not allocation]
            self._watcher.remove(allocation)
            self._used -= allocation.nbytes
            self._version += 1

    def table(self) -> npt.NDArray[np.void]:
        """The allocations as generated code looks them up, those of peers too: sorted, behind an empty first row."""
        with self._lock:
            memories = (self, *self.peers)
            versions = tuple(memory._version for memory in memories)  # read first: one may be freed meanwhile
            if self._table is None or self._table[0] != versions:
                allocations = sorted(allocation for memory in memories for allocation in memory._allocations)
                rows = [(0, 0, 0), *((a.low, a.high, (a.host - a.low) % (1 << 64)) for a in allocations)]
                self._table = versions, np.array(rows, ALLOCATION)
            return self._table[1]

    def view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """The host bytes behind device addresses; DeviceError outside an allocation."""
        found = self.at(address)
        if found is None or address + nbytes > found.high:
            raise DeviceError(f"{plural(nbytes, 'byte')} at {address:#x} do not lie in an allocation of this emulator")
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(found.host + address - found.low))

    def wrote(self, address: int, nbytes: int) -> None:
        """The host has written to an allocation of this device or of a peer."""
        with self._lock:
            found = self.at(address)
            assert found is not None
            owner = next(memory for memory in (self, *self.peers) if found in memory._allocations)
            owner._watcher.wrote(found, address - found.low, nbytes)

    def at(self, address: int) -> Allocation | None:
        """The allocation that holds an address, also one of a peer."""
        for memory in (self, *self.peers):
            allocations = memory._allocations
            index = bisect_right(allocations, address, key=lambda allocation: allocation.low)
            if index and address < allocations[index - 1].high:
                return allocations[index - 1]
        return None

    def neighbour(self, address: int) -> Allocation | None:
        """The allocation nearest to an address."""

        def distance(allocation: Allocation) -> int:
            return max(allocation.low - address, address - allocation.high + 1, 0)

        return min(self._allocations, key=distance, default=None)
