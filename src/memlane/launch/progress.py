"""How far a launch has come, and what is done before and after it: said by a target that can tell, heard by whoever follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from memlane.launch.kernel import Launch

Tell = Callable[[Launch, int], None]
"""Takes a launch that is running, and how many of its blocks have ended."""
TellStage = Callable[[str], None]
"""Takes what begins now, such as `compiling machine code`; the empty string when it is done."""
T = TypeVar("T")


class Followers(Generic[T]):
    """Those who follow something at present, in whichever thread they are."""

    def __init__(self, turn: AbstractContextManager[object] | None = None) -> None:
        """`turn`: a lock under which they join and leave, for those who hold it while they call them: who has left is not called any more.
        It may be entered again by the thread that holds it."""
        self.present: tuple[T, ...] = ()
        self._turn = threading.RLock() if turn is None else turn

    @contextmanager
    def joined_by(self, one: T) -> Iterator[None]:
        """Let `one` follow inside the `with` block; two blocks of one follower are two."""
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
    """Call `tell` inside the `with` block every now and then while a launch runs, whichever thread made it.

    Only the emulator knows how far it is. Calls come from the thread that made the launch; what `tell` raises stops the launch.
    """
    return _of_launches.joined_by(tell)


def tell_progress(launch: Launch, blocks_done: int) -> None:
    """For targets: let those who follow know."""
    for tell in _of_launches.present:
        tell(launch, blocks_done)


def following_stages(tell: TellStage) -> AbstractContextManager[None]:
    """Call `tell` inside the `with` block when something begins that may take seconds, whichever thread does it."""
    return _of_stages.joined_by(tell)


@contextmanager
def stage(doing: str) -> Iterator[None]:
    """Let those who follow know what is done inside the `with` block."""
    followers = _of_stages.present
    for tell in followers:
        tell(doing)
    try:
        yield
    finally:
        for tell in followers:
            tell("")
