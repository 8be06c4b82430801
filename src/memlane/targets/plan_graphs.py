"""Build graphs of bound plans, prepared once and started many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memlane.emulate.engine import Engine, needs_clock
from memlane.emulate.run.steps import EmulatedGraph
from memlane.errors import BadLaunch
from memlane.launch import BoundStep, StepGraph, Stream, Target
from memlane.launch import Launch as BoundLaunch
from memlane.plan import Plan
from memlane.targets.binding import Memory, rebound_memory
from memlane.targets.bound_actions import BoundActions


class SeparateGraphs:
    """Steps of a plan as one graph per device; the graphs are started one after another and run concurrently."""

    def __init__(self, graphs: Sequence[tuple[StepGraph, Stream]]) -> None:
        """Take the graphs, each with the stream of its device."""
        self._graphs = graphs

    def replay(self, stream: Stream | None = None) -> None:
        """Start all graphs, each on its own stream; `stream` is ignored."""
        for graph, own in self._graphs:
            graph.replay(own)

    def wait(self) -> None:
        """Wait for the replays so far on all devices."""
        for graph, _ in self._graphs:
            graph.wait()

    def update(self, steps: Sequence[BoundStep]) -> None:
        """Replace the steps for later replays by others of the same kinds, split by device."""
        for graph, target in zip((one for one, _ in self._graphs), dict.fromkeys(step.target for step in steps), strict=True):
            graph.update(steps_of_device(steps, target))

    def times_ns(self) -> list[tuple[float, float]]:
        """Raise BadLaunch: graphs started one after another have no common time base."""
        raise BadLaunch("graphs of several devices are not timed: BoundPlan.time times a graph of all steps")


def steps_of_device(steps: Sequence[BoundStep], target: object) -> list[BoundStep]:
    """Return the steps of one device, with the dependencies between them."""
    places: dict[int, int] = {}
    for position, step in enumerate(steps):
        if step.target is target:
            places[position] = len(places)
    return [replace(steps[position], waits=tuple(places[one] for one in steps[position].waits)) for position in places]


class PlanGraph:
    """A bound plan prepared for repeated starts: a CUDA graph on GPUs. It keeps its memory alive."""

    def __init__(self, plan: Plan, targets: Sequence[Target], actions: BoundActions, prepared: StepGraph, places: Sequence[range]) -> None:
        """Take the prepared graph. `places`: positions of each execution's steps in `prepared`."""
        self.plan, self.targets, self.prepared = plan, targets, prepared
        self._actions, self._places = actions, places
        steps = prepared.steps if isinstance(prepared, EmulatedGraph) else ()
        launches = [step.action for step in steps if isinstance(step.action, BoundLaunch)]
        self._on_clock = bool(launches) and needs_clock(actions.order, targets, launches)

    @property
    def memory(self) -> dict[str, Memory]:
        """Current memory of each buffer, by name."""
        return {buffer.name: memory for buffer, memory in self._actions.memory.items()}

    def replay(self, stream: object = None) -> None:
        """Start the graph on a stream of the first target or of another library, by default the default stream; asynchronous on GPUs.

        Replays of one graph do not overlap.
        """
        if self._on_clock and isinstance(self.prepared, EmulatedGraph):  # its kernels read the clock of the plan
            prepared = self.prepared
            Engine(self.targets).run(self._actions.order, lambda one, clocked: prepared.execute(self._places[one.number], clocked))
            return
        self.prepared.replay(self.targets[0].stream_of(stream))

    def wait(self) -> None:
        """Wait for the replays so far, and raise the exceptions of their host functions."""
        with self._actions.flags.counting():
            self.prepared.wait()

    def rebind(self, bindings: Mapping[str, Memory]) -> None:
        """Use other memory of the same shape and type for some buffers in later replays.

        Running replays continue with the former memory, which is kept alive until they end. The graph is not rebuilt, unless a copy of rows
        with gaps gets another address, which CUDA graphs cannot update. Raises BadPlan, naming the buffer.
        """
        memory = rebound_memory(self.plan, self._actions.order, self.targets, self._actions.memory, bindings)
        actions = self._actions.over(memory)
        self.prepared.update(actions.steps(actions.order)[0])
        self._actions = actions
