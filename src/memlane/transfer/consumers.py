"""Turn the launches that `then` requests for chunks into launches of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.launch import DeviceArray, KernelCall, LoadedModule, Target
from memlane.plan import Launch, PlanBuilder, View, planned
from memlane.remap.requests import Chunk

Then = Callable[[Chunk], tuple[Any, ...] | None]
"""A function from a chunk to `kernel[grid, block]` and its arguments, or None for no launch."""


class Consumers:
    """The launches requested by `then`. Arrays among their arguments become buffers of the plan."""

    def __init__(self, target: Target, then: Then | None, host: npt.NDArray[Any]) -> None:
        self.target, self.then, self.host = target, then, host
        self.memory: dict[str, DeviceArray] = {}
        self.loaded: dict[int, LoadedModule] = {}
        self._views: dict[tuple[int, int], View] = {}

    @property
    def modules(self) -> tuple[LoadedModule, ...]:
        return tuple(self.loaded.values())

    def planned(self, chunk: Chunk) -> Launch | None:
        assert self.then is not None
        requested = self.then(chunk)
        if requested is None:
            return None
        if not isinstance(requested, tuple) or not requested or not isinstance(requested[0], KernelCall):
            raise LayoutError("then(chunk) must return a tuple of kernel[grid, block] and the kernel's arguments, or None")
        call, *arguments = requested
        arguments = [one.item() if isinstance(one, np.bool | np.integer | np.floating) else one for one in arguments]
        self.loaded[id(call.kernel.loaded)] = call.kernel.loaded
        values = [one if isinstance(one, View | int | float) else self._view(one) for one in arguments]
        touched = (chunk.data, *(one for one in values if isinstance(one, View) and one.buffer != chunk.data.buffer))
        extra = {"shared_bytes": call.shared_bytes, "cluster": call.cluster}
        return planned(call.kernel.ref, call.grid, call.block, *values, reads=touched, writes=touched, **extra)

    def _view(self, argument: object) -> View:
        if isinstance(argument, np.ndarray) and np.may_share_memory(argument, self.host):
            raise LayoutError(
                "then(chunk) passes the host's array to the kernel, which cannot access it: pass chunk.data, the chunk on the device"
            )
        array = argument if isinstance(argument, DeviceArray) else self.target.adopt(argument)
        key = array.address, array.nbytes
        if key not in self._views:
            name = f"argument {len(self._views)}"
            self.memory[name] = array
            self._views[key] = PlanBuilder().array(name, array.shape, array.dtype, 0)
        return self._views[key]
