"""Handle progress and interrupts of a long run: a progress line, and Ctrl-C that waits for a complete step."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LONG_S = 2.0
"""Seconds after which a run shows its progress."""


class Interruption:
    """State of Ctrl-C. The first one is only recorded, so that the steps in flight complete; a second one ends the program."""

    def __init__(self) -> None:
        self.asked = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Defer Ctrl-C inside the `with` block, where the caller checks for it between steps. Works only in the main thread."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = signal.signal(signal.SIGINT, interruption._note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, before)


class ProgressLine:
    """Line with a bar on the terminal, which appears once a run has taken long and is removed at its end."""

    def __init__(self, name: str, steps: int, shown: bool | None) -> None:
        self.name, self.steps, self.shown = name, steps, shown
        self.began = time.monotonic()
        self.display: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> ProgressLine:
        return self

    def advanced(self, done: int) -> None:
        """Show the number of completed steps."""
        if self.shown is False or (self.display is None and time.monotonic() - self.began < LONG_S):
            return
        if self.display is None:
            console = Console(stderr=True)
            self.shown = console.is_terminal if self.shown is None else self.shown
            if not self.shown:
                return
            columns: tuple[Any, ...] = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,.0f} / {task.total:,.0f} steps"),
            )
            self.display = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self.display.start()
            self.task = self.display.add_task(self.name, total=self.steps)
        assert self.task is not None
        self.display.update(self.task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self.display is not None:
            self.display.stop()
