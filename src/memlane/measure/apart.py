"""Single measurements inside a program that is being observed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memlane.launch import Launch, observed, unobserved, watched
from memlane.measure.memory import Snapshot


@contextmanager
def apart(launch: Launch) -> Iterator[None]:
    """Inside the `with` block nobody watches, for a measurement of `launch`; behind it those who watched before see that launch, once.

    So the measurement is that of the plain kernel, and so is theirs: a program under `memlane trace` that calls `trace` itself gets the
    numbers that it gets without. If they have a launch of their own made of it, that starts from the memory that the block found, and
    leaves it as the launch does.
    """
    if not watched():
        yield
        return
    target, before = launch.kernel.target, Snapshot(launch)
    with unobserved():
        yield
    theirs = observed(launch)
    if theirs is not launch:
        before.restore()
        target.launch(theirs)
        target.sync()
