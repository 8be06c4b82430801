"""Whether all launches are to be checked: said here before anything is loaded that could make one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """A wish to have every launch on an emulator checked, and to have it fail if something is found."""

    seed: int | None = None
    """Shuffles the order in which warps take their turns."""
    insist: bool = False
    """Whether a launch on a target that cannot check is an error."""
    correctness: bool = True
    """Whether to look for what no kernel may do."""
    judge: Callable[[Any, Any], None] | None = None
    """Called with each launch that nobody else observes, and with the observation of what it counted; it raises what is to fail it."""


_wishes: list[Check] = []


@contextmanager
def checking(wish: Check | None) -> Iterator[None]:
    """Inside the `with` block, in all threads. Of several wishes the last counts; None is no wish."""
    if wish is None:
        yield
        return
    _wishes.append(wish)
    try:
        yield
    finally:
        _wishes.remove(wish)


def wished() -> Check | None:
    """How launches are to be checked now; None: not at all."""
    return _wishes[-1] if _wishes else None
