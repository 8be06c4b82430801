"""`with Tracer() as tracer:` and `with Counter() as counter:`, in place of `with observing(tracer)`."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from memlane.launch import Launch, observing


class Watching:
    """An observer that is its own `with` block: inside it, it sees the launches that this thread makes."""

    _blocks: ExitStack | None = None

    def launching(self, launch: Launch) -> Launch:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._blocks = self._blocks or ExitStack()
        self._blocks.enter_context(observing(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._blocks is not None:
            self._blocks.close()
