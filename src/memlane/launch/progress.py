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


class _Followers(Generic[T]):
    """Those who follow at present, in whichever thread they are."""

    def __init__(self) -> None:
        self.present: tuple[T, ...] = ()
        self._turn = threading.Lock()

    @contextmanager
    def joined_by(self, tell: T) -> Iterator[None]:
        with self._turn:
            self.present = (*self.present, tell)
        try:
            yield
        finally:
            with self._turn:
                self.present = tuple(one for one in self.present if one is not tell)


_of_launches: _Followers[Tell] = _Followers()
_of_stages: _Followers[TellStage] = _Followers()


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
