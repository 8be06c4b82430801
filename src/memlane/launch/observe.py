"""Observers: what sees, and may rewrite, every launch made through memlane, and sees the other steps of plans.

`memlane trace script.py` works through one of these: no line of the script changes. An observer is data to data: it gets the launch that
is about to happen and returns the one that shall happen instead, for example of the same kernel with probes in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol, runtime_checkable

from memlane.launch.bound import BoundStep
from memlane.launch.checked import checked
from memlane.launch.kernel import Launch
from memlane.launch.progress import Followers


class Observer(Protocol):
    """Sees every launch before it happens."""

    def launching(self, launch: Launch) -> Launch:
        """Return the launch to execute in place of `launch`; `launch` itself to leave it as it is. `launch.origin` says of which step of a
        plan it is."""
        ...


@runtime_checkable
class StepObserver(Observer, Protocol):
    """Sees the copies and the host functions of plans, too."""

    def passing(self, step: BoundStep) -> None:
        """Take note of a step of a plan that is no launch, before it happens, or before a graph is made that contains it."""
        ...


_here: ContextVar[tuple[Observer, ...]] = ContextVar("memlane_observers", default=())
"""Observers of the present thread, or task."""
_apart: ContextVar[bool] = ContextVar("memlane_apart", default=False)
"""Whether the observers of the whole process are not to see what happens here."""
_turn = threading.RLock()
"""Held while observers rewrite a launch: threads may launch at the same time, and observers need not know of it."""
_everywhere: Followers[Observer] = Followers(_turn)
"""Observers of the whole process. A thread that starts does not inherit context variables, but what it launches belongs to the program."""


@contextmanager
def observing(observer: Observer, *, everywhere: bool = False) -> Iterator[None]:
    """Let `observer` see every launch inside the `with` block, after those that are already watching: those that this thread makes, or
    with `everywhere` those of all threads of the process.
    """
    if everywhere:
        with _everywhere.joined_by(observer):
            yield
        return
    token = _here.set((*_here.get(), observer))
    try:
        yield
    finally:
        _here.reset(token)


@contextmanager
def unobserved() -> Iterator[None]:
    """Inside the `with` block no observer sees a launch, unless it begins to watch there: for the launches of those who measure."""
    here, apart = _here.set(()), _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(apart)
        _here.reset(here)


def watched() -> bool:
    """Whether an observer would see a launch that is made now."""
    return bool(_watching())


def adds_clock_reads() -> bool:
    """Whether an observer would put kernels that read a clock in the place of others: it says so by an attribute `adds_clock_reads`."""
    return any(getattr(observer, "adds_clock_reads", False) for observer in _watching())


def observed(launch: Launch, *, once: bool = False) -> Launch:
    """The launch as the observers want it, and checked where that is wished (`memlane.checks`), whether or not someone observes.

    `once`: it is put on its stream right away and never again (`Launch.runs_once`).
    """
    with _turn:
        watching = _watching()
        if watching and once:
            launch = replace(launch, runs_once=not launch.kernel.target.is_recording(launch.stream))
        for observer in watching:
            launch = observer.launching(launch)
    return checked(launch)


def show_step(step: BoundStep) -> None:
    """Show the observers a copy or a host function of a plan. Launches are rewritten, by `observed`."""
    with _turn:
        for observer in _watching():
            if isinstance(observer, StepObserver):
                observer.passing(step)


def _watching() -> tuple[Observer, ...]:
    return _here.get() if _apart.get() else (*_everywhere.present, *_here.get())
