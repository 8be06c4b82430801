"""Launch kernels with minimal overhead, without `cuda.bindings`, which would convert all arguments each time.

A launch repeated with the same arguments is a graph, started by one call with two arguments. For varying arguments, their bytes are written
where the driver reads them, and the rest of the call is prepared.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from functools import cache, partial
from typing import Any

from cuda import core
from cuda.core.graph import Graph

from memlane.checks import requested_check
from memlane.driver.cluster import explicit_cluster
from memlane.driver.library import DeviceKernel
from memlane.driver.probe import LIBRARY
from memlane.driver.streams import Streams
from memlane.launch import DeviceArray, KernelCall, Launch, has_observers
from memlane.ptx import SCALAR_TYPES, Variable


class DeviceLaunch:
    """A launch that can be started again and again (`Launcher.prepared`).

    It calls the driver's library directly: `cuda.bindings` would convert the arguments each time. It works whichever context is current: if
    the driver refuses, it falls back to the ordinary launch, which also reports errors.
    """

    def __init__(self, launch: Launch, graph: Graph, stream: int, running: dict[str, None]) -> None:
        self._fallback = partial(launch.kernel.target.start, launch)
        self._running, self._title = running, launch.kernel.title
        self._graph, self._call = graph, _launch_graph()
        self._handle, self._stream = int(graph.handle), stream

    def __call__(self) -> None:
        if has_observers():
            self._fallback()
            return
        self._running[self._title] = None
        if self._call(self._handle, self._stream):
            self._fallback()


class QuickLaunch:
    """Launches of one configuration of a kernel on a stream: a `launch.QuickCall`."""

    def __init__(self, call: KernelCall, kernel: DeviceKernel, streams: Streams, stream: int, device: object) -> None:
        """Prepare the call. `kernel` must be allowed the configuration's shared memory, and its parameters must be numbers and pointers
        (`takes`)."""
        self._device, self._streams, self._context = device, streams, int(streams.context.handle)
        self._running, self._title = streams.context.running, call.kernel.title
        params = call.kernel.function.params
        self._kinds = tuple(_kind(param) for param in params)
        self._packer = struct.Struct("<" + "".join(f"{letter}{8 - size}x" for letter, size, *_ in self._kinds))
        self._bytes = ctypes.create_string_buffer(max(8, self._packer.size))
        base = ctypes.addressof(self._bytes)
        self._pointers = (ctypes.c_void_p * max(1, len(params)))(*(base + 8 * number for number in range(len(params))))
        shape = (*map(ctypes.c_uint, (*call.grid, *call.block, call.shared_bytes)),)
        library = _library()
        function, place = ctypes.c_void_p(int(kernel.function)), ctypes.c_void_p(stream)
        self._launch = partial(library.cuLaunchKernel, function, *shape, place, self._pointers, None)
        self._current_context = ctypes.c_void_p()
        self._get_current_context = partial(library.cuCtxGetCurrent, ctypes.byref(self._current_context))
        self._lock = threading.Lock()

    @staticmethod
    def takes(call: KernelCall) -> bool:
        """Return whether the configuration is an ordinary launch of a kernel that takes only numbers and pointers."""
        kernel = call.kernel
        plain = kernel.function.convention is None and not kernel.cooperative and explicit_cluster(call) is None
        return plain and all(param.shape is None and param.type in _LETTERS for param in kernel.function.params)

    def __call__(self, args: tuple[object, ...]) -> bool:
        """Launch and return True; return False if the ordinary launch must be used."""
        streams = self._streams
        if (
            len(args) != len(self._kinds)
            or has_observers()
            or requested_check() is not None
            or streams.kept
            or streams.unordered
            or streams.others
        ):
            return False
        values: list[int | float] = []
        for (_, _, is_pointer, least, most, mask), value in zip(self._kinds, args, strict=True):
            if type(value) is DeviceArray:
                if not is_pointer or value.target is not self._device or type(value.owner) is not core.Buffer:
                    return False
                values.append(value.address)
            elif type(value) is int and mask and least <= value < most:
                values.append(value & mask)
            elif type(value) is float and not mask and not is_pointer:
                values.append(value)
            else:
                return False
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._get_current_context() or self._current_context.value != self._context:
                return False
            self._packer.pack_into(self._bytes, 0, *values)
            self._running[self._title] = None
            return not self._launch()
        except OverflowError:  # a number is out of range: the ordinary launch reports which
            return False
        finally:
            self._lock.release()


_LETTERS = {
    **{f"{sign}{bits}": letter for sign in "usb" for bits, letter in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    "f32": "f",
    "f64": "d",
}
"""Parameter type -> `struct` format letter. Integers are reduced to their bits first."""


def _kind(param: Variable) -> tuple[str, int, bool, int, int, int]:
    """Return format letter and bytes of a parameter, whether it accepts arrays, and its integers: minimum, exclusive maximum, bit mask."""
    letter, scalar = _LETTERS[param.type], SCALAR_TYPES[param.type]
    is_pointer, is_marked = scalar.bits == 64 and scalar.kind != "f", ".ptr" in param.attributes
    if scalar.kind == "f" or is_marked:
        return letter, scalar.bits // 8, is_pointer, 0, 0, 0
    return letter, scalar.bits // 8, is_pointer, -(1 << (scalar.bits - 1)), 1 << scalar.bits, (1 << scalar.bits) - 1


@cache
def _library() -> Any:
    """Return the driver library, whose functions take arguments prepared by ctypes."""
    return ctypes.CDLL(LIBRARY)


@cache
def _launch_graph() -> Any:
    """Return `cuGraphLaunch` as a ctypes function."""
    call = ctypes.CDLL(LIBRARY).cuGraphLaunch
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call
