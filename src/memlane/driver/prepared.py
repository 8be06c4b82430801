"""The shortest way from Python to a kernel: a graph of one launch, started by one call with two arguments instead of eleven."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from cuda.core.graph import Graph

from memlane.driver.probe import LIBRARY
from memlane.launch import Launch, PlainLaunch, watched


class DeviceLaunch:
    """A `launch.Prepared` of a device. The call goes to the driver's library itself: `cuda.bindings` would convert its arguments each time.

    Whichever context is current, the launch happens: where the driver refuses, the usual way is gone, which also says what is wrong where
    something is.
    """

    def __init__(self, launch: Launch, graph: Graph, stream: int, running: dict[str, None]) -> None:
        self._usual = PlainLaunch(launch)
        self._running, self._title = running, launch.kernel.title
        self._graph, self._call = graph, _launch_graph()
        self._handle, self._stream = int(graph.handle), stream

    def start(self) -> None:
        if watched():
            self._usual.start()
            return
        self._running[self._title] = None
        if self._call(self._handle, self._stream):
            self._usual.start()


@cache
def _launch_graph() -> Any:
    """`cuGraphLaunch`."""
    call = ctypes.CDLL(LIBRARY).cuGraphLaunch
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_int
    return call
