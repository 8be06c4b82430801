"""Observers: what sees, and may rewrite, every launch made through memlane.

`memlane trace script.py` works through one of these: no line of the script changes. An observer is data to data: it gets the launch that
is about to happen and returns the one that shall happen instead, for example of the same kernel with probes in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from memlane.launch.schedule import Launch


class Observer(Protocol):
    """Sees every launch before it happens."""

    def launching(self, launch: Launch) -> Launch:
        """The launch to execute in place of `launch`; `launch` itself to leave it as it is."""
        ...


_observers: ContextVar[tuple[Observer, ...]] = ContextVar("memlane_observers", default=())


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Let `observer` see every launch inside the `with` block, after those that are already watching."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


@contextmanager
def unobserved() -> Iterator[None]:
    """Inside the `with` block no observer sees a launch: for the launches that observers themselves make."""
    token = _observers.set(())
    try:
        yield
    finally:
        _observers.reset(token)


def observed(launch: Launch) -> Launch:
    """The launch as the observers want it."""
    for observer in _observers.get():
        launch = observer.launching(launch)
    return launch
