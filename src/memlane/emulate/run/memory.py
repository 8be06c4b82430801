"""Emulate device memory: NumPy buffers at device addresses that are never reused."""

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
"""Alignment of every allocation in bytes, that of the CUDA driver."""
GUARD = 4096
"""Minimum gap between two allocations in bytes, which is never mapped."""


class Buffer:
    """The host bytes of one allocation, freed when the last reference is gone."""

    def __init__(self, nbytes: int, cleared: bool = False) -> None:
        try:
            self.bytes: npt.NDArray[np.uint8] = lazy_zeros(nbytes) if cleared else np.full(nbytes, POISON, np.uint8)
        except (MemoryError, OSError) as error:
            raise DeviceError(f"not enough host memory for an allocation of {plural(nbytes, 'byte')}") from error


_IN_SMALL_PAGES = 1 << 22
"""Size in bytes below which NumPy requests no huge pages anyway."""


def lazy_zeros(nbytes: int) -> npt.NDArray[np.uint8]:
    """Return zeros that take physical memory only where touched, in small pages where the system allows that.

    Huge pages would commit much memory for few bytes, and clearing them would take longer than most launches.
    """
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
    """Device addresses `low` to `high` (exclusive), and their place on the host."""

    low: int
    high: int
    host: int
    label: str = ""
    """Name in messages, such as that of a variable."""

    @property
    def nbytes(self) -> int:
        return self.high - self.low


class AllocationObserver(Protocol):
    """Observer of allocations, frees and host writes."""

    @property
    def lock(self) -> threading.RLock:
        """Lock that is held during the calls."""

    def add(self, allocation: Allocation, written: bool) -> None:
        """Register a new allocation; `written`: it was cleared."""

    def remove(self, allocation: Allocation) -> None:
        """Remove an allocation that was freed."""

    def wrote(self, allocation: Allocation, offset: int, nbytes: int) -> None:
        """Record a write of the host."""


class Memory:
    """The allocations of one emulated device, sorted by address; thread-safe.

    Each device has its own address range, so an address identifies its device. Kernels can access this memory and that of `peers`.
    """

    def __init__(self, observer: AllocationObserver, device: int, capacity: int) -> None:
        """Create an empty memory. `device`: its number. `capacity`: its size in bytes."""
        if not 0 <= device < MOST_DEVICES:
            raise DeviceError(f"there is no emulated device {device}: their numbers are 0 to {MOST_DEVICES - 1}")
        self._observer = observer
        self._lock = observer.lock
        self._allocations: list[Allocation] = []
        self._next = FIRST_ADDRESS + device * DEVICE_BYTES
        self._end = self._next + DEVICE_BYTES
        self._capacity, self._used = capacity, 0
        self._version = 0
        """Number of changes to the list of allocations."""
        self._table: tuple[tuple[int, ...], npt.NDArray[np.void]] | None = None
        """The address table for generated code, and the versions of this memory and of its peers that it reflects."""
        self.peers: tuple[Memory, ...] = ()

    def allocate(self, nbytes: int, label: str = "", cleared: bool = False) -> tuple[int, Buffer]:
        """Allocate memory filled with a fixed pattern, or with zeros; return its device address and the buffer that keeps it alive."""
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
            self._observer.add(allocation, cleared)
            self._version += 1
        weakref.finalize(buffer, self._free, allocation).atexit = False
        return low, buffer

    @property
    def free_bytes(self) -> int:
        """Bytes of this device that are not allocated."""
        return max(0, self._capacity - self._used)

    def _check_room(self, nbytes: int) -> None:
        if nbytes > self.free_bytes:
            raise DeviceError(
                f"not enough free device memory for {plural(nbytes, 'byte')}: {self.free_bytes:,} of {plural(self._capacity, 'byte')} are "
                "free; free arrays, or allocate less"
            )

    def _free(self, allocation: Allocation) -> None:
        """Free an allocation; the garbage collector may call this in the middle of other methods, which keep the list that they began
        with."""
        with self._lock:
            self._allocations = [other for other in self._allocations if other is not allocation]
            self._observer.remove(allocation)
            self._used -= allocation.nbytes
            self._version += 1

    def table(self) -> npt.NDArray[np.void]:
        """Return the allocations of this memory and of its peers as generated code looks them up: sorted, after an empty first row."""
        with self._lock:
            memories = (self, *self.peers)
            versions = tuple(memory._version for memory in memories)  # read first: one may be freed meanwhile
            if self._table is None or self._table[0] != versions:
                allocations = sorted(allocation for memory in memories for allocation in memory._allocations)
                rows = [(0, 0, 0), *((a.low, a.high, (a.host - a.low) % (1 << 64)) for a in allocations)]
                self._table = versions, np.array(rows, ALLOCATION)
            return self._table[1]

    def view(self, address: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return the host bytes of a device address range. Raises DeviceError outside an allocation."""
        found = self.at(address)
        if found is None or address + nbytes > found.high:
            raise DeviceError(f"{plural(nbytes, 'byte')} at {address:#x} do not lie in an allocation of this emulator")
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(found.host + address - found.low))

    def wrote(self, address: int, nbytes: int) -> None:
        """Record that the host has written to an allocation of this device or of a peer."""
        with self._lock:
            found = self.at(address)
            assert found is not None
            owner = next(memory for memory in (self, *self.peers) if found in memory._allocations)
            owner._observer.wrote(found, address - found.low, nbytes)

    def at(self, address: int) -> Allocation | None:
        """Return the allocation, here or on a peer, that contains an address; None if there is none."""
        for memory in (self, *self.peers):
            allocations = memory._allocations
            index = bisect_right(allocations, address, key=lambda allocation: allocation.low)
            if index and address < allocations[index - 1].high:
                return allocations[index - 1]
        return None

    def neighbour(self, address: int) -> Allocation | None:
        """Return the allocation nearest to an address; None if there is none."""

        def distance(allocation: Allocation) -> int:
            return max(allocation.low - address, address - allocation.high + 1, 0)

        return min(self._allocations, key=distance, default=None)
