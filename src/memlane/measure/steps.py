"""Measure whole plans: one result per launch, and the copies between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np

from memlane.launch import BoundCopy, BoundStep, DeviceArray, End, Launch, Observer, has_observers, observing, suspend_observers
from memlane.record import kernel_label
from memlane.targets import BoundPlan

R = TypeVar("R")
_HOST = "host"


@dataclass(frozen=True)
class StepResult(Generic[R]):
    """One execution of a step of a plan, and its measurement."""

    kind: str
    """`launch`, `copy` or `call`."""
    name: str
    """Name of the kernel in its source; for other steps a description."""
    path: tuple[int, ...]
    """Positions of the step: in the plan, and in each enclosing repeat. Empty for a launch outside a plan."""
    turns: tuple[int, ...]
    """Turn of each enclosing repeat, the outermost first."""
    device: str
    """Name of the target that executed it, or `host`."""
    result: R | None = None
    """Measurement of a launch; None for other steps."""
    nbytes: int | None = None
    """Bytes moved by a copy; None for other steps."""
    source: str = ""
    """Memory that a copy read: the name of a target or `host`."""
    destination: str = ""

    @property
    def place(self) -> str:
        """The step and its turn, such as `3.1 turn 2`."""
        turns = f" turn {', '.join(map(str, self.turns))}" if self.turns else ""
        return f"{'.'.join(map(str, self.path))}{turns}"

    def __str__(self) -> str:
        if self.kind == "copy":
            return f"{self.place}  {self.device}  copy {self.nbytes:,} B {self.source} -> {self.destination}"
        return f"{self.place}  {self.device}  {self.name}{'' if self.result is None else f': {self.result}'}"


class PlanResult(Sequence[StepResult[R]]):
    """The executed steps of a plan in the order in which they were started. It prints as a table.

    `launches` are the steps with a result, `copies` the copies.
    """

    def __init__(self, steps: Sequence[StepResult[R]]) -> None:
        self._steps = tuple(steps)

    @overload
    def __getitem__(self, index: int) -> StepResult[R]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StepResult[R]]: ...

    def __getitem__(self, index: int | slice) -> StepResult[R] | Sequence[StepResult[R]]:
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self._steps))

    __repr__ = __str__

    @property
    def launches(self) -> tuple[StepResult[R], ...]:
        """The launches, in order."""
        return tuple(step for step in self._steps if step.kind == "launch")

    @property
    def copies(self) -> tuple[StepResult[R], ...]:
        """The copies, in order."""
        return tuple(step for step in self._steps if step.kind == "copy")


class Steps:
    """Steps of plans, and launches outside of them, in the order in which an observer saw them."""

    def __init__(self) -> None:
        self._seen: list[tuple[int | None, StepResult[Any]]] = []
        """Steps, each with the number of its launch, or None."""

    def launching(self, number: int, launch: Launch) -> None:
        """Append the launch with this number."""
        origin = launch.origin
        path, turns = (origin.path, origin.turns) if origin is not None else ((), ())
        target = launch.kernel.target.name
        self._seen.append((number, StepResult("launch", kernel_label(launch.kernel.title), path, turns, target)))

    def passing(self, step: BoundStep) -> None:
        """Append a copy or a host function."""
        assert step.origin is not None
        path, turns, target = step.origin.path, step.origin.turns, _HOST if step.target is None else step.target.name
        if isinstance(step.action, BoundCopy):
            ends = _name(step.action.source), _name(step.action.destination)
            self._seen.append((None, StepResult("copy", "copy", path, turns, target, None, step.action.nbytes, *ends)))
        else:
            self._seen.append((None, StepResult("call", step.origin.name, path, turns, _HOST)))

    @property
    def copies(self) -> list[StepResult[Any]]:
        """The copies so far."""
        return [step for _, step in self._seen if step.kind == "copy"]

    def with_results(self, results: Mapping[int, R]) -> PlanResult[R]:
        """Return the steps with the results of the launches, by their numbers."""
        return PlanResult([_with(step, None if number is None else results.get(number)) for number, step in self._seen])


def _with(step: StepResult[Any], result: R | None) -> StepResult[R]:
    """Return the step with a result."""
    fields = step.kind, step.name, step.path, step.turns, step.device, result, step.nbytes, step.source, step.destination
    return StepResult(*fields)


def _name(end: End) -> str:
    """Return the name of the target at an end of a copy, or `host`."""
    return _HOST if end.target is None else end.target.name


@contextmanager
def plan_without_observers(plan: BoundPlan) -> Iterator[None]:
    """Suspend all observers inside the `with` block, while a plan is measured; then let them observe one run of the plan.

    That run starts from the memory at the start of the block, and leaves it as the plan does.
    """
    if not has_observers():
        yield
        return
    before = {name: _copied(memory) for name, memory in plan.memory.items()}
    with suspend_observers():
        yield
    for name, memory in plan.memory.items():
        if isinstance(memory, DeviceArray):
            memory.copy_from(before[name])
        elif memory.flags.writeable:
            memory[...] = before[name]
    plan.run()


def _copied(memory: DeviceArray | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of the contents on the host."""
    return memory.numpy() if isinstance(memory, DeviceArray) else memory.copy()


@contextmanager
def observing_plan(plan: BoundPlan, *observers: Observer, serial: bool) -> Iterator[None]:
    """Run a plan once under these observers, and suspend all others until the `with` block ends."""
    with plan_without_observers(plan):
        with ExitStack() as block:
            for observer in observers:
                block.enter_context(observing(observer))
            plan.run_observed(serial=serial)
        yield
