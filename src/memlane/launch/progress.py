"""How far a launch has come, and what is done before and after it: said by a target that can tell, heard by whoever follows."""

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


TellStage = Callable[[str], None]
"""Takes what begins now, such as `compiling machine code`; the empty string when it is done."""

_following_stages: tuple[TellStage, ...] = ()


@contextmanager
def following_stages(tell: TellStage) -> Iterator[None]:
    """Call `tell` inside the `with` block when something begins that may take seconds, whichever thread does it."""
    global _following_stages
    with _turn:
        _following_stages = (*_following_stages, tell)
    try:
        yield
    finally:
        with _turn:
            _following_stages = tuple(one for one in _following_stages if one is not tell)


@contextmanager
def stage(doing: str) -> Iterator[None]:
    """Let those who follow know what is done inside the `with` block."""
    followers = _following_stages
    for tell in followers:
        tell(doing)
    try:
        yield
    finally:
        for tell in followers:
            tell("")
