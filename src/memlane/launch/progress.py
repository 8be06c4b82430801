"""Report the progress of launches, and the long stages before and after them, to followers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from memlane.launch.kernel import Launch

Tell = Callable[[Launch, int], None]
"""Callback with a running launch and the number of its finished blocks."""
TellStage = Callable[[str], None]
"""Callback with the stage that begins, such as `compiling machine code`; empty when it is done."""
T = TypeVar("T")


class Followers(Generic[T]):
    """The present followers, in any thread."""

    def __init__(self, turn: AbstractContextManager[object] | None = None) -> None:
        """`turn`: lock under which they are added and removed; a caller that holds it never calls a removed follower. It must be
        reentrant."""
        self.present: tuple[T, ...] = ()
        self._turn = threading.RLock() if turn is None else turn

    @contextmanager
    def joined_by(self, one: T) -> Iterator[None]:
        """Add `one` inside the `with` block; nested blocks of one follower count separately."""
        with self._turn:
            self.present = (*self.present, one)
        try:
            yield
        finally:
            with self._turn:
                place = max(number for number, other in enumerate(self.present) if other is one)
                self.present = (*self.present[:place], *self.present[place + 1 :])


_of_launches: Followers[Tell] = Followers()
_of_stages: Followers[TellStage] = Followers()


def following(tell: Tell) -> AbstractContextManager[None]:
    """Call `tell` inside the `with` block periodically while a launch runs, whichever thread made it.

    Only the emulator reports progress. Calls come from the thread that made the launch; an exception of `tell` stops the launch.
    """
    return _of_launches.joined_by(tell)


def tell_progress(launch: Launch, blocks_done: int) -> None:
    """Report progress to all followers; called by targets."""
    for tell in _of_launches.present:
        tell(launch, blocks_done)


def following_stages(tell: TellStage) -> AbstractContextManager[None]:
    """Call `tell` inside the `with` block when a stage begins that may take seconds, in any thread."""
    return _of_stages.joined_by(tell)


@contextmanager
def stage(doing: str) -> Iterator[None]:
    """Report to followers what is done inside the `with` block."""
    followers = _of_stages.present
    for tell in followers:
        tell(doing)
    try:
        yield
    finally:
        for tell in followers:
            tell("")
