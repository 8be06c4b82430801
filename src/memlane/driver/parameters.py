"""Pack kernel arguments for the driver: an array of pointers, each to the bytes of one argument."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

_ALIGNMENT = 16
"""Maximum alignment of a parameter type, in bytes."""


class Parameters:
    """Arguments of one launch in host memory. The driver copies them during the call, so they need not live longer."""

    def __init__(self, arguments: Sequence[bytes]) -> None:
        offsets, size = [], 0
        for data in arguments:
            offsets.append(size)
            size += -(-len(data) // _ALIGNMENT) * _ALIGNMENT
        self._bytes = ctypes.create_string_buffer(max(1, size))
        base = ctypes.addressof(self._bytes)
        for offset, data in zip(offsets, arguments, strict=True):
            ctypes.memmove(base + offset, data, len(data))
        self._pointers = (ctypes.c_void_p * max(1, len(offsets)))(*(base + offset for offset in offsets))

    @property
    def address(self) -> int:
        """Address of the array of pointers, the `kernelParams` of `cuLaunchKernel`."""
        return ctypes.addressof(self._pointers)
