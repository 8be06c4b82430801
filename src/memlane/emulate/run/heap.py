"""Allocate memory for kernels that call `malloc` and `new`, from a heap in device memory.

The heap is one allocation of 8 MiB, the default of CUDA, and lives as long as the device: one kernel may use and free the allocations of
another. Sizes are multiples of 16 bytes; the first gap that is large enough is taken (first fit).
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort

from memlane.emulate.run.memory import Buffer, Memory
from memlane.errors import BadAccess

HEAP_BYTES = 8 << 20
"""Size of the heap, the default of `cudaLimitMallocHeapSize`."""
_UNIT = 16
"""Alignment of pointers returned by `malloc`, in bytes."""


class Heap:
    """A thread-safe first-fit allocator for kernels."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._buffer: Buffer | None = None
        self._pieces: dict[int, int] = {}
        """Address of each allocated piece -> its bytes."""
        self._gaps: list[tuple[int, int]] = []
        """Address and bytes of each free gap, in ascending order; no two gaps touch."""

    def prepare(self) -> None:
        """Allocate the heap on first use, before a launch: a running kernel does not see later allocations."""
        with self._lock:
            if self._buffer is None:
                address, self._buffer = self._memory.allocate(HEAP_BYTES, "the heap of kernels")
                self._gaps = [(address, HEAP_BYTES)]

    def allocate(self, nbytes: int) -> int:
        """Return the address of a new piece, or 0 if no gap is large enough, as `malloc` does."""
        needed = max(_UNIT, -(-nbytes // _UNIT) * _UNIT)
        with self._lock:
            for place, (address, room) in enumerate(self._gaps):
                if room >= needed:
                    self._gaps[place : place + 1] = [(address + needed, room - needed)] if room > needed else []
                    self._pieces[address] = needed
                    return address
        return 0

    def free(self, address: int) -> None:
        """Free a piece; address 0 is ignored. Raises BadAccess for an address that `malloc` has not returned, or that was freed already."""
        if address == 0:
            return
        with self._lock:
            nbytes = self._pieces.pop(address, 0)
            if not nbytes:
                raise BadAccess(f"a kernel frees {address:#x}, which `malloc` did not return or which is already freed")
            place = bisect_left(self._gaps, (address, nbytes))
            if place < len(self._gaps) and self._gaps[place][0] == address + nbytes:
                nbytes += self._gaps.pop(place)[1]
            if place and sum(self._gaps[place - 1]) == address:
                before, room = self._gaps.pop(place - 1)
                address, nbytes = before, room + nbytes
            insort(self._gaps, (address, nbytes))
