"""Run several launches on the emulator: graphs of bound steps, and launches with modelled times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from memlane.errors import BadLaunch
from memlane.launch import BoundCall, BoundCopy, BoundStep, Launch, LaunchTime, Stream, Target, same_kinds


def timed_launches(target: Target, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
    """Execute launches with the clock layer, one after another, and return their modelled times.

    Caches are empty at the beginning, whatever ran before, so that the same launches take the same time again; the launches share L2.
    """
    target.empty_caches()
    return tuple(_timed(target, launch) for launch in launches)


def _timed(target: Target, launch: Launch) -> LaunchTime:
    observation = target.launch(replace(launch, layers=replace(launch.layers, clock=True)))
    assert observation is not None
    assert observation.time is not None
    return LaunchTime(observation.time.cycles * 1000 / target.chip.clock_mhz, observation.time)


@dataclass(eq=False)
class EmulatedGraph:
    """A sequence of bound steps that can be replayed. It holds the steps, and so the arrays that they use."""

    target: Target
    steps: tuple[BoundStep, ...]
    _groups: tuple[range, ...] = field(init=False)
    """Positions of steps that run concurrently."""

    def __post_init__(self) -> None:
        firsts = [position for position, step in enumerate(self.steps) if not step.beside]
        self._groups = tuple(range(*pair) for pair in pairwise([*firsts, len(self.steps)]))

    def replay(self, stream: Stream | None = None) -> None:
        """Execute all steps; returns after the last has ended."""
        for group in self._groups:
            self.execute(group)

    def execute(self, positions: range, through: Callable[[Launch], Launch] = lambda launch: launch) -> None:
        """Execute consecutive steps: one or more, or launches that run concurrently. Each launch is first mapped by `through`."""
        steps = self.steps[positions.start : positions.stop]
        launches = [through(step.action) for step in steps if isinstance(step.action, Launch)]
        if len(launches) > 1:
            self.target.launch_together(launches)
        elif launches:
            launches[0].kernel.target.launch(launches[0])
        for step in steps:
            if isinstance(step.action, BoundCopy):
                self.target.copy(step.action)
            elif isinstance(step.action, BoundCall):
                step.action.call()

    def wait(self) -> None:
        """Do nothing: `replay` returns after the last step has ended."""

    def update(self, steps: Sequence[BoundStep]) -> None:
        """Replace the steps by others of the same kinds. Raises BadLaunch for different kinds."""
        if not same_kinds(self.steps, steps):
            raise BadLaunch("a graph can be updated only with steps of the same kinds in the same order: prepare another graph")
        self.steps = tuple(steps)

    def times_ns(self) -> list[tuple[float, float]]:
        """Raise BadLaunch: replays are not timed."""
        raise BadLaunch(f"replays on {self.target.name} are not timed: BoundPlan.time models when steps run")
