"""The heap of a device, from which kernels take memory with `malloc` and `new`.

It is one allocation in device memory, 8 MiB as CUDA has it by default, and lives as long as the device: what one kernel allocates another
one may use and free. Pieces are multiples of 16 bytes; the first gap that is large enough is taken.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort

from memlane.emulate.run.memory import Buffer, Memory
from memlane.errors import BadAccess

HEAP_BYTES = 8 << 20
"""`cudaLimitMallocHeapSize` by default."""
_UNIT = 16
"""Alignment of what `malloc` returns, in bytes."""


class Heap:
    """Pieces of memory for kernels. Several threads may use it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._buffer: Buffer | None = None
        self._pieces: dict[int, int] = {}
        """Address of each piece that is in use -> its bytes."""
        self._gaps: list[tuple[int, int]] = []
        """Address and bytes of what is free, in ascending order; no two gaps touch."""

    def prepare(self) -> None:
        """Allocate the heap, if that has not been done: a kernel that runs sees no memory that was allocated later."""
        with self._lock:
            if self._buffer is None:
                address, self._buffer = self._memory.allocate(HEAP_BYTES, "the heap of kernels")
                self._gaps = [(address, HEAP_BYTES)]

    def allocate(self, nbytes: int) -> int:
        """Return the address of a piece, or 0 where no gap is large enough, as `malloc` does."""
        needed = max(_UNIT, -(-nbytes // _UNIT) * _UNIT)
        with self._lock:
            for place, (address, room) in enumerate(self._gaps):
                if room >= needed:
                    self._gaps[place : place + 1] = [(address + needed, room - needed)] if room > needed else []
                    self._pieces[address] = needed
                    return address
        return 0

    def free(self, address: int) -> None:
        """Give a piece back; 0 is none. Raises BadAccess for what `malloc` has not returned, or what was freed already."""
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
