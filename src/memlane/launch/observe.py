"""Define observers, which see and may rewrite every launch made through memlane, and see the other steps of plans.

`memlane trace script.py` uses one: the script stays unchanged. An observer gets the launch that is about to start and returns the launch to
start instead, for example of the same kernel with probes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol, runtime_checkable

from memlane.launch.bound_steps import BoundStep
from memlane.launch.checking import with_checker
from memlane.launch.kernel import Launch
from memlane.launch.progress import Followers


class Observer(Protocol):
    """Sees every launch before it starts."""

    def launching(self, launch: Launch) -> Launch:
        """Return the launch to execute in place of `launch`; `launch` itself to leave it unchanged. `launch.origin` is its step of a
        plan."""
        ...


@runtime_checkable
class StepObserver(Observer, Protocol):
    """Sees the copies and host functions of plans, too."""

    def passing(self, step: BoundStep) -> None:
        """Observe a step of a plan that is not a launch, before it starts, or before a graph that contains it is made."""
        ...


_of_thread: ContextVar[tuple[Observer, ...]] = ContextVar("memlane_observers", default=())
"""Observers of the current thread or task."""
_suspended: ContextVar[bool] = ContextVar("memlane_apart", default=False)
"""Whether process-wide observers are suspended in the current thread or task."""
_turn = threading.RLock()
"""Held while observers rewrite a launch: threads may launch concurrently, and observers need no locks of their own."""
_of_process: Followers[Observer] = Followers(_turn)
"""Process-wide observers. A new thread does not inherit context variables, but its launches belong to the program."""


@contextmanager
def observing(observer: Observer, *, everywhere: bool = False) -> Iterator[None]:
    """Let `observer` see every launch inside the `with` block, after earlier observers.

    These are the launches of this thread, or with `everywhere` those of all threads of the process.
    """
    if everywhere:
        with _of_process.joined_by(observer):
            yield
        return
    token = _of_thread.set((*_of_thread.get(), observer))
    try:
        yield
    finally:
        _of_thread.reset(token)


@contextmanager
def suspend_observers() -> Iterator[None]:
    """Suspend all observers inside the `with` block, except those that are added there: for the launches of a measurement."""
    here, apart = _of_thread.set(()), _suspended.set(True)
    try:
        yield
    finally:
        _suspended.reset(apart)
        _of_thread.reset(here)


def has_observers() -> bool:
    """Return whether an observer would see a launch that is made now."""
    return bool(_present_observers())


def adds_clock_reads() -> bool:
    """Return whether an observer would substitute kernels that read a clock, according to its attribute `adds_clock_reads`."""
    return any(getattr(observer, "adds_clock_reads", False) for observer in _present_observers())


def apply_observers(launch: Launch, *, once: bool = False) -> Launch:
    """Return the launch as rewritten by the observers, and checked on request (`memlane.checks`), whether or not there are observers.

    `once`: it is put on its stream immediately and never again (`Launch.runs_once`).
    """
    with _turn:
        present = _present_observers()
        if present and once:
            launch = replace(launch, runs_once=not launch.kernel.target.is_recording(launch.stream))
        for observer in present:
            launch = observer.launching(launch)
    return with_checker(launch)


def show_step(step: BoundStep) -> None:
    """Show a copy or a host function of a plan to the observers. Launches are rewritten by `apply_observers` instead."""
    with _turn:
        for observer in _present_observers():
            if isinstance(observer, StepObserver):
                observer.passing(step)


def _present_observers() -> tuple[Observer, ...]:
    """Return the observers that see the launches of the current thread."""
    return _of_thread.get() if _suspended.get() else (*_of_process.present, *_of_thread.get())
