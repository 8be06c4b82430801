"""What all observers of this package share: they number the launches that they see, and are their own `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from memlane.launch import Launch, observing


class Watching(ABC):
    """An observer (see `memlane.launch.observing`) of all launches or of one of them.

    `with Tracer() as tracer:` stands for `with observing(tracer := Tracer())`: inside it sees the launches that this thread makes.
    """

    def __init__(self, only_launch: int | None = None) -> None:
        """`only_launch`: watch the launch of that number, from 0, and leave the others alone."""
        self.seen = 0
        """Launches that were observed."""
        self._only = only_launch
        self._blocks: list[AbstractContextManager[None]] = []

    def launching(self, launch: Launch) -> Launch:
        """The launch to execute in place of `launch`."""
        number = self.seen
        self.seen += 1
        return self._replaced(number, launch) if self._only in (None, number) else launch

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
