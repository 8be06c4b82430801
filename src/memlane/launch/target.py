"""Define the interface between memlane and what runs kernels: an emulator, a GPU, a fake in a test."""

from __future__ import annotations

from collections.abc import Iterable

from memlane.errors import BadLaunch
from memlane.launch.bound_steps import Graphs, StepGraph, chained
from memlane.launch.kernel import Launch
from memlane.launch.memory import Memory
from memlane.launch.observe import apply_observers
from memlane.launch.texture import Images


class Target(Images, Graphs):
    """A device that runs kernels: a GPU, or the emulator. `ml.target` returns one.

    target = ml.target()
    a, out = target.array(host), target.empty((1024, 1024), "f4")
    kernels = target.load(ml.cuda("transpose.cu"))
    kernels["naive"][(32, 32), (32, 32)](out, a, 1024)
    target.sync()                                       # raises errors of earlier launches

    It consists of small interfaces, so that functions can require only what they use: `Memory`, `Streams`, `Images`, `TensorMaps`,
    `Loader`, `Timer`, `Launcher`, `Copies` and `Graphs`. Subclasses implement the abstract methods; the others are defined in terms of
    those.
    """

    def start(self, launch: Launch) -> None:
        """Start one launch, after passing it to the installed observers, which may replace it."""
        self.launch(apply_observers(launch, once=True))

    def graph(self, launches: Iterable[Launch]) -> StepGraph:
        """Return consecutive launches as a graph that can be started repeatedly (a CUDA graph on a GPU).

        Observers see the launches once, in this call. For copies, host functions and other orders write a plan:
        `ml.BoundPlan(plan).graph()`.
        """
        return self.graph_of_steps(chained([apply_observers(launch) for launch in launches]))


def whole_target(part: Memory) -> Target:
    """Return the target that has the memory of an array or runs a kernel, with its full interface: `whole_target(array.target)`.

    Raises BadLaunch if it only holds memory.
    """
    if not isinstance(part, Target):
        raise BadLaunch(f"{part.name} only holds memory and cannot run kernels: use a target that ml.target returns")
    return part
