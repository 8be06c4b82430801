"""Kernel arguments as the driver wants them: an array of pointers, each to the bytes of one argument."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

_ALIGNMENT = 16
"""No parameter type asks for more."""


class Parameters:
    """The arguments of one launch in host memory. The driver copies them during the call, so they must live only that long."""

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
        """Address of the array of pointers: what `cuLaunchKernel` calls `kernelParams`."""
        return ctypes.addressof(self._pointers)
