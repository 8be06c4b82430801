"""Steps of a plan as one CUDA graph over several devices.

Nodes are added one by one with the edges that the plan states. In a *timed* graph each step has an event before and behind it, recorded on
its device, and each device an event of its own at the start: times of two devices are as far apart as these starts, some microseconds.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.core import Device, Event, EventOptions, LegacyPinnedMemoryResource
from cuda.core.graph import Graph, GraphDefinition

from memlane.driver.calls import done
from memlane.driver.cluster import asked_cluster, put_in_clusters
from memlane.driver.library import DeviceKernel
from memlane.driver.parameters import Parameters
from memlane.launch import BoundCall, BoundCopy, BoundStep, Launch, Rows, Stream

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Worker:
    """What a graph needs of one device."""

    device: Device
    context: Any
    current: Callable[[str], AbstractContextManager[None]]
    """Makes the context current in a `with` block, and turns the driver's errors into ours."""
    kernel_of: Callable[[Launch], DeviceKernel]


@dataclass
class BuiltGraph:
    """An executable graph, and what has to live as long."""

    graph: Graph
    kept: list[object] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    """What host functions raised, in the order in which they did."""
    events: list[tuple[Event, Event, Event]] = field(default_factory=list)
    """Of each step in a timed graph: the start of its device, its own start and its end."""


def build(steps: Sequence[BoundStep], worker_of: Callable[[object], Worker], first: Worker, timed: bool) -> BuiltGraph:
    """Return the graph of some steps. `worker_of` gives that of a step's target; the host's steps are recorded with `first`."""
    return _Builder(worker_of, first, timed).build(steps)


class _Builder:
    def __init__(self, worker_of: Callable[[object], Worker], first: Worker, timed: bool) -> None:
        self.worker_of, self.first, self.timed = worker_of, first, timed
        self.definition = GraphDefinition()
        self.built: list[object] = []
        self.raised: list[BaseException] = []
        self.origins: dict[int, tuple[Event, Any]] = {}

    def build(self, steps: Sequence[BoundStep]) -> BuiltGraph:
        ends: list[list[Any]] = []
        events = []
        root = []
        if self.timed:
            with self.first.current("the start of a graph"):
                root = [self._empty([])]
        for step in steps:
            worker = self.first if step.target is None else self.worker_of(step.target)
            after = [node for number in step.waits for node in ends[number]] or root
            with worker.current("a step of a plan"):
                if not self.timed:
                    ends.append(list(self._nodes(step, worker, after)))
                    continue
                origin, begun = self._origin(worker, *root)
                start, start_node = self._record(worker, [*after, begun])
                end, end_node = self._record(worker, list(self._nodes(step, worker, [start_node])))
                events.append((origin, start, end))
                ends.append([end_node])
        with self.first.current(f"a graph of {len(steps)} steps"):
            return BuiltGraph(self.definition.instantiate(), self.built, self.raised, events)

    def _nodes(self, step: BoundStep, worker: Worker, after: list[Any]) -> Iterator[Any]:
        """Add what a step consists of, all of it behind `after`."""
        action = step.action
        if isinstance(action, Launch):
            yield add_launch(self.definition, action, worker.kernel_of(action), after)
        elif isinstance(action, BoundCopy):
            ends = action.destination.is_on_host, action.source.is_on_host
            nodes = [self._rows(rows, *ends, worker, after) for rows in action.rows()]
            yield from nodes or [self._empty(after)]
        else:
            yield self._call(action, after)

    def _empty(self, after: list[Any]) -> Any:
        return done(driver.cuGraphAddEmptyNode(self.definition.handle, after, len(after)))

    def _rows(self, rows: Rows, to_host: bool, of_host: bool, worker: Worker, after: list[Any]) -> Any:
        node = driver.CUDA_MEMCPY3D()
        kinds = driver.CUmemorytype
        node.dstMemoryType = kinds.CU_MEMORYTYPE_HOST if to_host else kinds.CU_MEMORYTYPE_DEVICE
        node.srcMemoryType = kinds.CU_MEMORYTYPE_HOST if of_host else kinds.CU_MEMORYTYPE_DEVICE
        if to_host:
            node.dstHost = rows.destination
        else:
            node.dstDevice = driver.CUdeviceptr(rows.destination)
        if of_host:
            node.srcHost = rows.source
        else:
            node.srcDevice = driver.CUdeviceptr(rows.source)
        node.dstPitch, node.srcPitch = rows.destination_pitch, rows.source_pitch
        node.WidthInBytes, node.Height, node.Depth = rows.width, rows.height, 1
        return done(driver.cuGraphAddMemcpyNode(self.definition.handle, after, len(after), node, worker.context))

    def _call(self, call: BoundCall, after: list[Any]) -> Any:
        """A node that calls a function of Python. It may not use the GPU; what it raises is kept for the next one who asks."""

        def run(_: object) -> None:
            try:
                call.call()
            except BaseException as error:  # nothing may escape into the driver; the next replay or wait raises it
                self.raised.append(error)

        function = _CALL(run)
        self.built.append(function)
        node = driver.CUDA_HOST_NODE_PARAMS()
        node.fn = driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
        return done(driver.cuGraphAddHostNode(self.definition.handle, after, len(after), node))

    def _origin(self, worker: Worker, root: Any) -> tuple[Event, Any]:
        """The event at the start of a device, and its node."""
        number = worker.device.device_id
        if number not in self.origins:
            self.origins[number] = self._record(worker, [root])
        return self.origins[number]

    def _record(self, worker: Worker, after: list[Any]) -> tuple[Event, Any]:
        event = worker.device.create_event(EventOptions(timing_enabled=True))
        return event, done(driver.cuGraphAddEventRecordNode(self.definition.handle, after, len(after), event.handle))


def add_launch(definition: GraphDefinition, launch: Launch, kernel: DeviceKernel, after: list[Any]) -> Any:
    """Add a launch to a graph, behind other nodes, and return its node. The context of its device must be current."""
    parameters = Parameters([argument.data for argument in launch.arguments])
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = kernel.function
    node.gridDimX, node.gridDimY, node.gridDimZ = launch.grid
    node.blockDimX, node.blockDimY, node.blockDimZ = launch.block
    node.sharedMemBytes = launch.shared_bytes
    node.kernelParams = parameters.address
    added = done(driver.cuGraphAddKernelNode(definition.handle, after, len(after), node))
    if launch.kernel.cooperative:
        value = driver.CUkernelNodeAttrValue()
        value.cooperative = 1
        done(driver.cuGraphKernelNodeSetAttribute(added, driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))
    if cluster := asked_cluster(launch):
        put_in_clusters(added, cluster)
    return added


def single(launch: Launch, kernel: DeviceKernel) -> Graph:
    """Return an executable graph of one launch. The context of its device must be current."""
    definition = GraphDefinition()
    add_launch(definition, launch, kernel, [])
    return definition.instantiate()


@dataclass(frozen=True, eq=False)
class DeviceGraph:
    """Steps of a plan as a CUDA graph. It holds the steps, and so the arrays and modules that they use."""

    steps: tuple[BoundStep, ...]
    built: BuiltGraph
    start: Callable[[Sequence[BoundStep], Graph, Stream | None], None]
    waits: tuple[Callable[[], None], ...]
    """One for each device that works in it."""

    def replay(self, stream: Stream | None = None) -> None:
        """Start it on a stream of the device that made it, the default one if none is given. Two replays of one graph do not overlap."""
        self.start(self.steps, self.built.graph, stream)

    def wait(self) -> None:
        """Wait for the replays so far. Raises what a host function raised first in them."""
        for wait in self.waits:
            wait()
        if self.built.raised:
            error = self.built.raised[0]
            self.built.raised.clear()
            raise error

    def times_ns(self) -> list[tuple[float, float]]:
        """Wait, and return start and end of each step in the last replay, in ns from the start of its device; of a timed graph."""
        self.wait()
        return [(1e6 * (start - origin), 1e6 * (end - origin)) for origin, start, end in self.built.events]


class _Pinned:
    """Page-locked memory of the host, as an array of bytes asks for it."""

    def __init__(self, nbytes: int) -> None:
        self.buffer = LegacyPinnedMemoryResource().allocate(max(1, nbytes))
        self.__array_interface__ = {"version": 3, "data": (int(self.buffer.handle), False), "typestr": "|u1", "shape": (nbytes,)}


def pinned_array(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array in page-locked memory, which lives as long as the array does. A context must be current."""
    element, extents = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
    return np.asarray(_Pinned(math.prod(extents) * element.itemsize)).view(element).reshape(extents)


def is_pinned(address: int) -> bool:
    """Whether an address of the host is known to the driver. A context must be current."""
    code, kind = driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    return bool(code == driver.CUresult.CUDA_SUCCESS and int(kind) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST))
