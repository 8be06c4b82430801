"""How far a launch has come, for those who wait for it: said by a target that can tell, heard by whoever follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memlane.launch.schedule import Launch

Tell = Callable[[Launch, int], None]
"""Takes a launch that is running, and how many of its blocks have ended."""

_following: tuple[Tell, ...] = ()
_turn = threading.Lock()


@contextmanager
def following(tell: Tell) -> Iterator[None]:
    """Call `tell` inside the `with` block every now and then while a launch runs, whichever thread made it.

    Only the emulator knows how far it is. Calls come from the thread that made the launch; what `tell` raises stops the launch.
    """
    global _following
    with _turn:
        _following = (*_following, tell)
    try:
        yield
    finally:
        with _turn:
            _following = tuple(one for one in _following if one is not tell)


def tell_progress(launch: Launch, blocks_done: int) -> None:
    """For targets: let those who follow know."""
    for tell in _following:
        tell(launch, blocks_done)
