"""Graphs of bound plans, which are prepared once and started many times."""

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
    """Steps of a plan as one graph for each device, which are started one after another and run side by side."""

    def __init__(self, graphs: Sequence[tuple[StepGraph, Stream]]) -> None:
        """`graphs`: each with the stream of its device."""
        self._graphs = graphs

    def replay(self, stream: Stream | None = None) -> None:
        """Start all of them, each on its own stream; `stream` has nothing to do with it."""
        for graph, own in self._graphs:
            graph.replay(own)

    def wait(self) -> None:
        """Wait for the replays so far on all devices."""
        for graph, _ in self._graphs:
            graph.wait()

    def update(self, steps: Sequence[BoundStep]) -> None:
        """Let replays from now on do the same with other memory, each device what its steps are."""
        for graph, target in zip((one for one, _ in self._graphs), dict.fromkeys(step.target for step in steps), strict=True):
            graph.update(only(steps, target))

    def times_ns(self) -> list[tuple[float, float]]:
        """Raise BadLaunch: clocks of graphs that start one after another do not fit together."""
        raise BadLaunch("graphs of several devices are not timed: BoundPlan.time times a graph of all steps")


def only(steps: Sequence[BoundStep], target: object) -> list[BoundStep]:
    """Return the steps of one device, with the order between them."""
    places: dict[int, int] = {}
    for position, step in enumerate(steps):
        if step.target is target:
            places[position] = len(places)
    return [replace(steps[position], waits=tuple(places[one] for one in steps[position].waits)) for position in places]


class PlanGraph:
    """A bound plan that is prepared to be started many times: a CUDA graph on GPUs. It keeps the memory alive that it is bound to."""

    def __init__(self, plan: Plan, targets: Sequence[Target], actions: BoundActions, prepared: StepGraph, places: Sequence[range]) -> None:
        """`places`: by execution the positions of its steps in `prepared`."""
        self.plan, self.targets, self.prepared = plan, targets, prepared
        self._actions, self._places = actions, places
        steps = prepared.steps if isinstance(prepared, EmulatedGraph) else ()
        launches = [step.action for step in steps if isinstance(step.action, BoundLaunch)]
        self._on_clock = bool(launches) and needs_clock(actions.order, targets, launches)

    @property
    def memory(self) -> dict[str, Memory]:
        """What each buffer is bound to now, by name."""
        return {buffer.name: memory for buffer, memory in self._actions.memory.items()}

    def replay(self, stream: object = None) -> None:
        """Start it on a stream of the first target or of another library, by default on the default stream; asynchronous on GPUs.

        Two replays of one graph do not overlap.
        """
        if self._on_clock and isinstance(self.prepared, EmulatedGraph):  # its kernels look at the clock of the plan
            prepared = self.prepared
            Engine(self.targets).run(self._actions.order, lambda one, clocked: prepared.execute(self._places[one.number], clocked))
            return
        self.prepared.replay(self.targets[0].stream_of(stream))

    def wait(self) -> None:
        """Wait for the replays so far, and raise what host functions raised in them."""
        with self._actions.flags.counting():
            self.prepared.wait()

    def rebind(self, bindings: Mapping[str, Memory]) -> None:
        """Let replays from now on use other memory for some buffers, which has to have the shape and the type of what they had.

        Replays under way go on with what they had, which is kept until they are done. The graph is not made anew, unless a copy of rows
        with gaps between them gets another place, which no CUDA graph can take up. Raises BadPlan, which names the buffer.
        """
        memory = rebound_memory(self.plan, self._actions.order, self.targets, self._actions.memory, bindings)
        actions = self._actions.over(memory)
        self.prepared.update(actions.steps(actions.order)[0])
        self._actions = actions
