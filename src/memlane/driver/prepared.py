"""The shortest way from Python to a kernel: arguments that were packed before, and one call of the driver."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from typing import Any

from memlane.driver.library import DeviceKernel
from memlane.driver.parameters import Parameters
from memlane.launch import Launch, Rebound, watched


class DeviceLaunch:
    """A `launch.Prepared` of a device. The call goes to the driver's library itself: `cuda.bindings` converts each argument anew each time.

    Whichever context is current, the launch happens: if it is not the kernel's, the driver refuses, and the usual way is gone, which also
    says what is wrong where something is.
    """

    def __init__(self, launch: Launch, kernel: DeviceKernel, stream: int, running: dict[str, None]) -> None:
        self._usual = Rebound(launch)
        self._running, self._title = running, launch.kernel.title
        self._parameters = Parameters([argument.data for argument in launch.arguments])
        self._first = self._parameters.first
        shape = (*launch.grid, *launch.block, launch.shared_bytes)
        self._call = _launch_kernel()
        self._arguments = (int(kernel.function), *shape, stream, self._parameters.address, None)

    def start(self, first: int) -> None:
        if watched():
            self._usual.start(first)
            return
        self._first.value = first
        if self._call(*self._arguments):
            self._usual.start(first)
        self._running[self._title] = None


@cache
def _launch_kernel() -> Any:
    """`cuLaunchKernel`."""
    call = ctypes.CDLL("nvcuda.dll" if ctypes.util.find_library("nvcuda") else "libcuda.so.1").cuLaunchKernel
    call.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call
