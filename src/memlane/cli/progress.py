"""Show progress on the terminal while a program runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from memlane.cli.later import later

if TYPE_CHECKING:
    from memlane import launch as launching
    from memlane import record
    from memlane.launch import Launch
else:
    launching = later("memlane.launch")
    record = later("memlane.record")

LONG_S = 2.0
"""Seconds after which a launch's completed blocks are shown, and work on files is named."""
BAR = 24
"""Characters of a full bar."""


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show the current launch in a line on the terminal inside the `with` block, with a bar for a long one on the emulator.

    `doing` names the work, for example `tracing`. Nothing is shown if standard error is not a terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), _Bar())
    with Progress(*columns, console=console, transient=True) as display:
        narrator = _Narrator(doing, display)
        with launching.observing(narrator), launching.following(narrator.advanced), launching.following_stages(narrator.began):
            yield


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show the current work and its elapsed time in a line on the terminal inside the `with` block, once it takes long.

    It is for work without launches, which must not print to standard output. `doing` names the work, for example `reading trace.parquet`.
    Nothing is shown if standard error is not a terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    display = Progress(*columns, console=console, transient=True)
    display.add_task(f"{doing} ...", total=None)
    beginning = threading.Timer(LONG_S, display.start)
    beginning.daemon = True
    beginning.start()
    try:
        yield
    finally:
        beginning.cancel()
        beginning.join()  # Its thread may be about to draw.
        display.stop()


class _Narrator:
    """Observer that displays each launch and changes none."""

    def __init__(self, doing: str, display: Progress) -> None:
        self._doing = doing
        self._display = display
        self._text = f"{doing} ..."
        self._task = display.add_task(self._text, total=None)
        self._number = 0
        self._began = time.perf_counter()

    def launching(self, launch: Launch) -> Launch:
        grid = "x".join(str(extent) for extent in launch.grid if extent > 1) or "1"
        name = record.kernel_label(launch.kernel.title)
        self._text = f"{self._doing} launch {self._number}: {name}, {grid} {'block' if launch.blocks == 1 else 'blocks'}"
        self._display.reset(self._task, total=None, description=self._text)
        self._number += 1
        self._began = time.perf_counter()
        return launch

    def began(self, stage: str) -> None:
        """Display a stage that may take seconds; an empty one ends the stage."""
        self._display.update(self._task, description=f"{self._text}: {stage}" if stage else self._text)

    def advanced(self, launch: Launch, blocks_done: int) -> None:
        """Display the number of completed blocks."""
        if time.perf_counter() - self._began >= LONG_S:
            self._display.update(self._task, total=launch.blocks, completed=blocks_done)


class _Bar(ProgressColumn):
    """Column with the number of completed blocks; empty if it is unknown."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text()
        filled = round(BAR * task.completed / max(1, task.total))
        count = f" {task.completed:,.0f} of {task.total:,.0f} done"
        return Text.assemble(("━" * filled, "bar.complete"), ("━" * (BAR - filled), "bar.back"), count)
