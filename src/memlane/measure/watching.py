"""What all observers of this package share: they number the launches that they see, and are their own `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from memlane.errors import MemlaneError
from memlane.launch import BoundStep, Launch, observing
from memlane.measure.steps import Steps


@dataclass(frozen=True)
class FailedLaunch:
    """A launch that broke off."""

    number: int
    """Among the launches that were observed, from 0."""
    kernel: str
    why: str
    """The first line of its error."""


class Watching(ABC):
    """An observer (see `memlane.launch.observing`) of all launches or of one of them.

    `with Tracer() as tracer:` stands for `with observing(tracer := Tracer())`: inside it sees the launches that this thread makes.
    """

    def __init__(self, only_launch: int | None = None) -> None:
        """`only_launch`: watch the launch of that number, from 0, and leave the others alone."""
        self.seen = 0
        """Launches that were observed."""
        self.failures: list[FailedLaunch] = []
        """Those that broke off on a target that survives it, also where the program went on: in another thread, or because it caught the
        error."""
        self.steps = Steps()
        """The launches, and the other steps of plans, in the order in which they were made."""
        self._only = only_launch
        self._blocks: list[AbstractContextManager[None]] = []

    def launching(self, launch: Launch) -> Launch:
        """Return the launch to execute in place of `launch`."""
        number = self.seen
        self.seen += 1
        self.steps.launching(number, launch)
        return self._replaced(number, launch) if self._only in (None, number) else launch

    def passing(self, step: BoundStep) -> None:
        """Record a copy or a host function of a plan."""
        self.steps.passing(step)

    def _on_failure(self, number: int, launch: Launch) -> Callable[[int, MemlaneError], None]:
        """What remembers that the launch broke off, for `Layers.failed`."""

        def failed(_: int, error: MemlaneError) -> None:
            self.failures.append(FailedLaunch(number, launch.kernel.title, str(error).partition("\n")[0]))

        return failed

    @abstractmethod
    def _replaced(self, number: int, launch: Launch) -> Launch:
        """The launch in place of the `number`-th that was observed, one of those to be watched."""

    def __enter__(self) -> Self:
        block = observing(self)
        block.__enter__()
        self._blocks.append(block)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._blocks.pop().__exit__(kind, error, trace)
