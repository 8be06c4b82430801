"""Schedules as CUDA graphs.

Nodes are added one by one with the edges that the schedule states, which needs no capture and no streams. A *timed* graph has an event
before and after each step: the GPU itself runs from event to step to event, so that times do not contain the host's calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver
from cuda.core import Device, Event, EventOptions
from cuda.core.graph import Graph, GraphDefinition

from memlane.driver.calls import done
from memlane.driver.cluster import asked_cluster, put_in_clusters
from memlane.driver.library import DeviceKernel
from memlane.driver.parameters import Parameters
from memlane.launch import Copy, Launch, Schedule, Timeline

KernelOf = Callable[[Launch], DeviceKernel]
"""Checks a launch and gives the kernel that it wants, allowed to use its shared memory."""


def build(schedule: Schedule, kernel_of: KernelOf) -> Graph:
    """An executable graph of the schedule. The context of its device must be current."""
    builder = _Builder(GraphDefinition(), kernel_of)
    ends: list[Any] = []
    for number, waits in enumerate(schedule.dependencies()):
        ends.append(builder.action(schedule.steps[number].action, [ends[index] for index in waits]))
    return builder.definition.instantiate()


@dataclass
class TimedGraph:
    """An executable graph with an event around each step, and one before all of them."""

    schedule: Schedule
    graph: Graph
    origin: Event
    events: list[tuple[Event, Event]] = field(default_factory=list)

    def timeline(self) -> Timeline:
        """When each step ran in the replay that has just finished."""
        starts = [1e6 * (start - self.origin) for start, _ in self.events]
        ends = [1e6 * (end - self.origin) for _, end in self.events]
        first = min(starts, default=0.0)
        return Timeline(self.schedule, tuple(t - first for t in starts), tuple(t - first for t in ends), modelled=False)


def build_timed(schedule: Schedule, kernel_of: KernelOf, device: Device) -> TimedGraph:
    """As `build`, with events. The clock of events has a resolution of about half a microsecond."""
    builder = _Builder(GraphDefinition(), kernel_of)
    options = EventOptions(timing_enabled=True)
    origin = device.create_event(options)
    root = builder.record(origin, [])
    events: list[tuple[Event, Event]] = []
    ends: list[Any] = []
    for number, waits in enumerate(schedule.dependencies()):
        pair = (device.create_event(options), device.create_event(options))
        start = builder.record(pair[0], [ends[index] for index in waits] or [root])
        action = builder.action(schedule.steps[number].action, [start])
        ends.append(builder.record(pair[1], [action]))
        events.append(pair)
    return TimedGraph(schedule, builder.definition.instantiate(), origin, events)


@dataclass(frozen=True)
class _Builder:
    """Adds nodes to a graph."""

    definition: GraphDefinition
    kernel_of: KernelOf

    def action(self, action: Launch | Copy, after: list[Any]) -> Any:
        return self._copy(action, after) if isinstance(action, Copy) else add_launch(self.definition, action, self.kernel_of(action), after)

    def record(self, event: Event, after: list[Any]) -> Any:
        return done(driver.cuGraphAddEventRecordNode(self.definition.handle, after, len(after), event.handle))

    def _copy(self, copy: Copy, after: list[Any]) -> Any:
        if copy.nbytes == 0:
            return done(driver.cuGraphAddEmptyNode(self.definition.handle, after, len(after)))
        node = driver.CUDA_MEMCPY3D()
        node.srcMemoryType = node.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        node.srcDevice, node.dstDevice = driver.CUdeviceptr(copy.source), driver.CUdeviceptr(copy.destination)
        node.WidthInBytes, node.Height, node.Depth = copy.nbytes, 1, 1
        context = done(driver.cuCtxGetCurrent())
        return done(driver.cuGraphAddMemcpyNode(self.definition.handle, after, len(after), node, context))


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
