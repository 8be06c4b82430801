"""Measure single launches inside a program that is itself being observed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memlane.launch import Launch, apply_observers, has_observers, suspend_observers
from memlane.measure.memory import Snapshot


@contextmanager
def without_observers(launch: Launch) -> Iterator[None]:
    """Suspend all observers while `launch` is measured; then show them that launch once, as the plain kernel.

    So the measurement is of the plain kernel, and so is theirs: a program under `memlane trace` that calls `trace` itself gets the same
    numbers as without. If an observer substitutes a launch of its own, that launch starts from the memory at the start of the block, and
    leaves memory as the plain launch does.
    """
    if not has_observers():
        yield
        return
    target, before = launch.kernel.target, Snapshot(launch)
    with suspend_observers():
        yield
    theirs = apply_observers(launch)
    if theirs is not launch:
        before.restore()
        target.launch(theirs)
        target.sync()
