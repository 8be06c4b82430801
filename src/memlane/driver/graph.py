"""Build one CUDA graph over several devices from the steps of a plan.

Nodes are added one by one, with the edges of the plan. In a *timed* graph each step has an event before and after it, recorded on its
device, and each device has an event at the start: times of two devices are offset by the skew of these starts, some microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver
from cuda.core import Device, Event, EventOptions, LegacyPinnedMemoryResource, StreamOptions
from cuda.core.graph import Graph, GraphDefinition

from memlane.driver.calls import CallError, checked
from memlane.driver.cluster import explicit_cluster, set_cluster
from memlane.driver.context import Context
from memlane.driver.library import DeviceKernel
from memlane.driver.parameters import Parameters
from memlane.driver.streams import Streams
from memlane.errors import BadLaunch, MemlaneError
from memlane.launch import BoundCall, BoundCopy, BoundEnqueue, BoundStep, Launch, Rows, Stream, same_kinds
from memlane.number_format import plural

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Worker:
    """One device of a graph, with the functions that the graph calls on it."""

    device: Device
    context: Any
    current: Callable[[str], AbstractContextManager[None]]
    """Returns a `with` block in which the context is current and the driver's errors become memlane's."""
    kernel_of: Callable[[Launch], DeviceKernel]
    streams: Streams


@dataclass
class BuiltGraph:
    """An executable graph, and the objects that must outlive it."""

    graph: Graph
    definition: GraphDefinition
    """Definition whose nodes identify those of the executable graph."""
    nodes: list[list[Any]]
    """Nodes that do the work of each step."""
    workers: list[Worker]
    """Worker of each step."""
    others: list[Streams]
    """Streams of the other devices in the graph."""
    functions: dict[int, object] = field(default_factory=dict)
    """Step number -> host function that the driver calls."""
    titles: dict[str, None] = field(default_factory=dict)
    """Titles of its kernels, as an ordered set."""
    raised: list[BaseException] = field(default_factory=list)
    """Exceptions raised by host functions, in order."""
    events: list[tuple[Event, Event, Event]] = field(default_factory=list)
    """Events of each step in a timed graph: start of its device, own start, own end."""

    def set_step(self, number: int, step: BoundStep) -> None:
        """Replace a step of the executable graph by another of the same kind. Raises CallError if the driver cannot."""
        action, worker, executable = step.action, self.workers[number], self.graph.handle
        if isinstance(action, Launch):
            node, _kept = _kernel_node(action, worker.kernel_of(action))
            checked(driver.cuGraphExecKernelNodeSetParams(executable, self.nodes[number][0], node))
        elif isinstance(action, BoundCopy):
            ends = action.destination.is_on_host, action.source.is_on_host
            for node, rows in zip(self.nodes[number], action.rows(), strict=False):  # an empty copy has an empty node and no rows
                checked(driver.cuGraphExecMemcpyNodeSetParams(executable, node, _copy_node(rows, *ends), worker.context))
        elif isinstance(action, BoundEnqueue):
            raise CallError("the driver cannot change work that another library has enqueued")
        else:
            function, node = _call_node(action, self.raised)
            checked(driver.cuGraphExecHostNodeSetParams(executable, self.nodes[number][0], node))
            self.functions[number] = function


def build(steps: Sequence[BoundStep], worker_of: Callable[[object], Worker], first: Worker, timed: bool) -> BuiltGraph:
    """Return the graph of some steps. `worker_of` returns the worker of a step's target; host steps are recorded with `first`."""
    return _Builder(worker_of, first, timed).build(steps)


class _Builder:
    def __init__(self, worker_of: Callable[[object], Worker], first: Worker, timed: bool) -> None:
        self.worker_of, self.first, self.timed = worker_of, first, timed
        self.definition = GraphDefinition()
        self.functions: dict[int, object] = {}
        self.raised: list[BaseException] = []
        self.origins: dict[int, tuple[Event, Any]] = {}

    def build(self, steps: Sequence[BoundStep]) -> BuiltGraph:
        ends: list[list[Any]] = []
        events = []
        root = []
        if self.timed:
            with self.first.current("the start of a graph"):
                root = [self._empty([])]
        nodes: list[list[Any]] = []
        workers: list[Worker] = []
        for number, step in enumerate(steps):
            worker = self.first if step.target is None else self.worker_of(step.target)
            workers.append(worker)
            after = [node for earlier in step.waits for node in ends[earlier]] or root
            with worker.current("a step of a plan"):
                if not self.timed:
                    nodes.append(list(self._nodes(number, step, worker, after)))
                    ends.append(nodes[-1])
                    continue
                origin, begun = self._origin(worker, *root)
                start, start_node = self._record(worker, [*after, begun])
                nodes.append(list(self._nodes(number, step, worker, [start_node])))
                end, end_node = self._record(worker, nodes[-1])
                events.append((origin, start, end))
                ends.append([end_node])
        titles = {step.action.kernel.title: None for step in steps if isinstance(step.action, Launch)}
        with self.first.current(f"a graph of {plural(len(steps), 'step')}"):
            executable, others = self.definition.instantiate(), self._others(workers)
        return BuiltGraph(
            executable, self.definition, nodes, workers, others, self.functions, titles=titles, raised=self.raised, events=events
        )

    def _others(self, workers: Sequence[Worker]) -> list[Streams]:
        found = {id(worker.streams): worker.streams for worker in workers}
        return [streams for streams in found.values() if streams is not self.first.streams]

    def _nodes(self, number: int, step: BoundStep, worker: Worker, after: list[Any]) -> Iterator[Any]:
        """Add the nodes of a step after `after`, and yield them."""
        action = step.action
        if isinstance(action, Launch):
            node = add_launch(self.definition, action, worker.kernel_of(action), after)
            if step.is_urgent:
                _set_urgent(node)
            yield node
        elif isinstance(action, BoundCopy):
            ends = action.destination.is_on_host, action.source.is_on_host
            nodes = [self._rows(rows, *ends, worker, after) for rows in action.rows()]
            yield from nodes or [self._empty(after)]
        elif isinstance(action, BoundEnqueue):
            yield self._captured(action, worker, after)
        else:
            yield self._call(number, action, after)

    def _empty(self, after: list[Any]) -> Any:
        return checked(driver.cuGraphAddEmptyNode(self.definition.handle, after, len(after)))

    def _rows(self, rows: Rows, to_host: bool, from_host: bool, worker: Worker, after: list[Any]) -> Any:
        node = _copy_node(rows, to_host, from_host)
        return checked(driver.cuGraphAddMemcpyNode(self.definition.handle, after, len(after), node, worker.context))

    def _call(self, number: int, call: BoundCall, after: list[Any]) -> Any:
        self.functions[number], node = _call_node(call, self.raised)
        return checked(driver.cuGraphAddHostNode(self.definition.handle, after, len(after), node))

    def _captured(self, action: BoundEnqueue, worker: Worker, after: list[Any]) -> Any:
        """Add the work that a function enqueues, as a graph inside the graph. Its kernels are urgent: other devices wait for them."""
        _, urgent = checked(driver.cuCtxGetStreamPriorityRange())
        stream = worker.device.create_stream(options=StreamOptions(nonblocking=True, priority=int(urgent)))
        # In this mode the function may call what a capture otherwise forbids, such as the allocation of memory of its own.
        checked(driver.cuStreamBeginCapture(stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            action.enqueue(int(stream.handle))
        except BaseException:  # including Ctrl-C: a stream that captures for ever is of no use
            driver.cuStreamEndCapture(stream.handle)
            raise
        graph = checked(driver.cuStreamEndCapture(stream.handle))
        node = checked(driver.cuGraphAddChildGraphNode(self.definition.handle, after, len(after), graph))  # a copy of the graph
        checked(driver.cuGraphDestroy(graph))
        return node

    def _origin(self, worker: Worker, root: Any) -> tuple[Event, Any]:
        """Return the start event of a device, and its node."""
        number = worker.device.device_id
        if number not in self.origins:
            self.origins[number] = self._record(worker, [root])
        return self.origins[number]

    def _record(self, worker: Worker, after: list[Any]) -> tuple[Event, Any]:
        event = worker.device.create_event(EventOptions(timing_enabled=True))
        return event, checked(driver.cuGraphAddEventRecordNode(self.definition.handle, after, len(after), event.handle))


def _copy_node(rows: Rows, to_host: bool, from_host: bool) -> Any:
    node = driver.CUDA_MEMCPY3D()
    kinds = driver.CUmemorytype
    node.dstMemoryType = kinds.CU_MEMORYTYPE_HOST if to_host else kinds.CU_MEMORYTYPE_DEVICE
    node.srcMemoryType = kinds.CU_MEMORYTYPE_HOST if from_host else kinds.CU_MEMORYTYPE_DEVICE
    if to_host:
        node.dstHost = rows.destination
    else:
        node.dstDevice = driver.CUdeviceptr(rows.destination)
    if from_host:
        node.srcHost = rows.source
    else:
        node.srcDevice = driver.CUdeviceptr(rows.source)
    node.dstPitch, node.srcPitch = rows.destination_pitch, rows.source_pitch
    node.WidthInBytes, node.Height, node.Depth = rows.width, rows.height, 1
    return node


def start_copy(copy: BoundCopy, stream: Any) -> None:
    """Enqueue a copy on a stream. The context of its device must be current."""
    for rows in copy.rows():
        if rows.height == 1:
            checked(driver.cuMemcpyAsync(rows.destination, rows.source, rows.width, stream))
        else:
            checked(driver.cuMemcpy3DAsync(_copy_node(rows, copy.destination.is_on_host, copy.source.is_on_host), stream))


def _call_node(call: BoundCall, raised: list[BaseException]) -> tuple[object, Any]:
    """Return a callback for the driver, and its node. The callback must not use the GPU; its exceptions are kept until the next wait."""

    def run(_: object) -> None:
        try:
            call.call()
        except BaseException as error:  # nothing may escape into the driver; the next replay or wait raises it
            raised.append(error)

    function = _CALL(run)
    node = driver.CUDA_HOST_NODE_PARAMS()
    node.fn = driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
    return function, node


def _kernel_node(launch: Launch, kernel: DeviceKernel) -> tuple[Any, object]:
    """Return the node parameters of a launch, and the memory that they point to, which must outlive the call that uses them."""
    parameters = Parameters([argument.data for argument in launch.arguments])
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = kernel.function
    node.gridDimX, node.gridDimY, node.gridDimZ = launch.grid
    node.blockDimX, node.blockDimY, node.blockDimZ = launch.block
    node.sharedMemBytes = launch.shared_bytes
    node.kernelParams = parameters.address
    return node, parameters


def add_launch(definition: GraphDefinition, launch: Launch, kernel: DeviceKernel, after: list[Any]) -> Any:
    """Add a launch to a graph after other nodes, and return its node. The context of its device must be current."""
    node, _kept = _kernel_node(launch, kernel)
    added = checked(driver.cuGraphAddKernelNode(definition.handle, after, len(after), node))
    if launch.kernel.cooperative:
        value = driver.CUkernelNodeAttrValue()
        value.cooperative = 1
        checked(driver.cuGraphKernelNodeSetAttribute(added, driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))
    if cluster := explicit_cluster(launch):
        set_cluster(added, cluster)
    return added


def _set_urgent(node: Any) -> None:
    """Give a launch of a graph the highest priority. The context of its device must be current."""
    value = driver.CUkernelNodeAttrValue()
    _, value.priority = checked(driver.cuCtxGetStreamPriorityRange())
    checked(driver.cuGraphKernelNodeSetAttribute(node, driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_PRIORITY, value))


def single_launch_graph(launch: Launch, kernel: DeviceKernel) -> Graph:
    """Return an executable graph of one launch. The context of its device must be current."""
    definition = GraphDefinition()
    add_launch(definition, launch, kernel, [])
    return definition.instantiate()


class Owner(Protocol):
    """The device that made a graph, as far as the graph uses it."""

    context: Context
    streams: Streams

    def start_graph(self, steps: Sequence[BoundStep], built: BuiltGraph, stream: Stream | None) -> None: ...
    def build_graph(self, steps: Sequence[BoundStep], timed: bool) -> BuiltGraph: ...


class DeviceGraph:
    """Steps of a plan as a CUDA graph. It holds the steps, and so their arrays and modules, until the last replay has ended."""

    def __init__(self, owner: Owner, steps: Sequence[BoundStep], timed: bool) -> None:
        self.owner, self.steps, self._timed = owner, tuple(steps), timed
        self.built = owner.build_graph(self.steps, timed)
        self._last: Stream | None = None
        self._is_under_way = False

    def replay(self, stream: Stream | None = None) -> None:
        """Start the graph on a stream of the device that made it, by default the default stream. Replays of one graph do not overlap."""
        self.owner.start_graph(self.steps, self.built, stream)
        self._last, self._is_under_way = stream, True

    def wait(self) -> None:
        """Wait for all replays so far. Raises the first exception of their host functions."""
        if self._is_under_way:
            self.owner.streams.wait_on(self._last)
            self._is_under_way = False
        if self.built.raised:
            error = self.built.raised[0]
            self.built.raised.clear()
            raise error

    def update(self, steps: Sequence[BoundStep]) -> None:
        """Replace the steps by others of the same kinds for later replays. If the driver cannot change a node, the graph is rebuilt."""
        if not same_kinds(self.steps, steps):
            raise BadLaunch("a graph can be updated only with steps of the same kinds in the same order: prepare another graph")
        changed = [number for number, (before, after) in enumerate(zip(self.steps, steps, strict=True)) if before.action != after.action]
        self._retire()
        with self.owner.context.translated_errors(f"other memory for a graph of {plural(len(steps), 'step')}"):
            try:
                if any(_has_pitch(steps[number]) for number in changed):
                    raise CallError("the driver cannot change the addresses of copies of rows")
                for number in changed:
                    with self.built.workers[number].current("a step of a plan"):
                        self.built.set_step(number, steps[number])
            except (CallError, MemlaneError):
                raised = self.built.raised
                self.built = self.owner.build_graph(steps, self._timed)
                self.built.raised[:0] = raised
        self.steps = tuple(steps)

    def _retire(self) -> None:
        """Keep the objects that running replays use until they have ended."""
        if self._is_under_way:
            self.owner.streams.keep(self._last, (self.steps, self.built, dict(self.built.functions)))

    def __del__(self) -> None:
        if getattr(self, "_is_under_way", False) and not sys.is_finalizing():
            with contextlib.suppress(MemlaneError):  # a failed context runs nothing
                self._retire()

    def times_ns(self) -> list[tuple[float, float]]:
        """Wait, and return start and end of each step in the last replay of a timed graph, in ns from the start of its device."""
        self.wait()
        return [(1e6 * (start - origin), 1e6 * (end - origin)) for origin, start, end in self.built.events]


def _has_pitch(step: BoundStep) -> bool:
    return isinstance(step.action, BoundCopy) and any(rows.height > 1 for rows in step.action.rows())


class _Pinned:
    """Page-locked host memory with NumPy's array interface."""

    def __init__(self, nbytes: int) -> None:
        self.buffer = LegacyPinnedMemoryResource().allocate(max(1, nbytes))
        self.__array_interface__ = {"version": 3, "data": (int(self.buffer.handle), False), "typestr": "|u1", "shape": (nbytes,)}


def pinned_array(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in page-locked memory, which is freed with it. A context must be current."""
    element, extents = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
    return np.asarray(_Pinned(math.prod(extents) * element.itemsize)).view(element).reshape(extents)


def is_pinned(address: int) -> bool:
    """Return whether the driver knows a host address as page-locked. A context must be current."""
    code, kind = driver.cuPointerGetAttribute(driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    return bool(code == driver.CUresult.CUDA_SUCCESS and int(kind) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST))
