"""Hold the process-wide request to check launches, in a module light enough to import before anything can launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """A request to check every launch on an emulator, and to make it fail if something is found."""

    seed: int | None = None
    """Seed that shuffles the order in which warps take turns; None for the usual order."""
    insist: bool = False
    """Whether a launch on a target that cannot check is an error."""
    correctness: bool = True
    """Whether to look for invalid accesses, races and barrier misuse."""
    judge: Callable[[Any, Any], None] | None = None
    """Called with each launch without another observer, and with the observation of its counts; it raises to make the launch fail."""


_requests: list[Check] = []


@contextmanager
def checking(request: Check | None) -> Iterator[None]:
    """Request checks inside the `with` block, in all threads. The latest request wins; None is a no-op."""
    if request is None:
        yield
        return
    _requests.append(request)
    try:
        yield
    finally:
        _requests.remove(request)


def requested_check() -> Check | None:
    """Return the current request to check launches; None if there is none."""
    return _requests[-1] if _requests else None
