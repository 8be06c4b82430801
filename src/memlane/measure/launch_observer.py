"""Define the base class of this package's observers: it numbers the launches and is a context manager."""

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
    """Index among the observed launches."""
    kernel: str
    why: str
    """The first line of its error."""


class LaunchObserver(ABC):
    """Observer (see `memlane.launch.observing`) of all launches or of one of them.

    `with Tracer() as tracer:` is short for `with observing(tracer := Tracer())`: inside it observes the launches that this thread makes.
    """

    def __init__(self, only_launch: int | None = None) -> None:
        """`only_launch`: observe only the launch with this number, from 0."""
        self.seen = 0
        """Number of launches so far."""
        self.failures: list[FailedLaunch] = []
        """Launches that broke off on a target that survives it, also if the program continued: in another thread, or because it caught the
        error."""
        self.steps = Steps()
        """Launches and other steps of plans, in the order in which they were made."""
        self._only = only_launch
        self._blocks: list[AbstractContextManager[None]] = []

    def launching(self, launch: Launch) -> Launch:
        """Return the launch to execute in place of `launch`."""
        number = self.seen
        self.seen += 1
        self.steps.launching(number, launch)
        return self._replacement(number, launch) if self._only in (None, number) else launch

    def passing(self, step: BoundStep) -> None:
        """Record a copy or a host function of a plan."""
        self.steps.passing(step)

    def _on_failure(self, number: int, launch: Launch) -> Callable[[int, MemlaneError], None]:
        """Return a callback for `Layers.failed` that records that the launch broke off."""

        def failed(_: int, error: MemlaneError) -> None:
            self.failures.append(FailedLaunch(number, launch.kernel.title, str(error).partition("\n")[0]))

        return failed

    @abstractmethod
    def _replacement(self, number: int, launch: Launch) -> Launch:
        """Return the launch to execute in place of the `number`-th one; called only for observed launches."""

    def __enter__(self) -> Self:
        block = observing(self)
        block.__enter__()
        self._blocks.append(block)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._blocks.pop().__exit__(kind, error, trace)
