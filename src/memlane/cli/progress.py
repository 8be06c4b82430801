"""What a person sees while a program runs that takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from memlane.launch import Launch, observing
from memlane.record import kernel_label


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Inside the `with` block a line on the terminal names the launch that is under way; it goes when the block ends.

    `doing` is what is done to launches, for example `tracing`. Nothing is shown where standard error is no terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{doing} ...") as status, observing(_Narrator(doing, status.update)):
        yield


class _Narrator:
    """An observer that tells of each launch and changes none."""

    def __init__(self, doing: str, tell: Callable[[str], object]) -> None:
        self._doing = doing
        self._tell = tell
        self._number = 0

    def launching(self, launch: Launch) -> Launch:
        grid = "x".join(str(extent) for extent in launch.grid if extent > 1) or "1"
        self._tell(f"{self._doing} launch {self._number}: {kernel_label(launch.kernel.title)}, {grid} blocks")
        self._number += 1
        return launch
