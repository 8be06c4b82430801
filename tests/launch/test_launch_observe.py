"""Observers see each launch, in order, and say what happens instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from memlane.launch import Launch, LoadedModule, has_observers, observing, suspend_observers
from tests.launch.fake_target import FakeTarget


@dataclass
class Adding:
    """Adds to the dynamic shared memory of a launch, so that the order of observers shows."""

    extra: int
    factor: int = 1

    def launching(self, launch: Launch) -> Launch:
        return replace(launch, shared_bytes=launch.shared_bytes * self.factor + self.extra)


def test_observers_rewrite_in_the_order_in_which_they_came(kernels: LoadedModule, target: FakeTarget) -> None:
    with observing(Adding(1)), observing(Adding(0, factor=10)):
        kernels["plain"][1, 1]()
    kernels["plain"][1, 1]()
    assert [launch.shared_bytes for launch in target.launches] == [10, 0]


def test_unobserved_launches_are_left_alone(kernels: LoadedModule, target: FakeTarget) -> None:
    with observing(Adding(1)):
        with suspend_observers():
            kernels["plain"][1, 1]()
        kernels["plain"][1, 1]()
    assert [launch.shared_bytes for launch in target.launches] == [0, 1]


def test_an_observer_is_gone_after_an_error(kernels: LoadedModule, target: FakeTarget) -> None:
    try:
        with observing(Adding(1)):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        kernels["plain"][1, 1]()
    assert target.launches[0].shared_bytes == 0


def test_launches_of_a_graph_are_observed_once_and_timed_ones_never(kernels: LoadedModule, target: FakeTarget) -> None:
    launch = kernels["plain"][1, 1].bind()
    with observing(Adding(5)):
        target.graph([launch, launch])
        target.time_launches([launch])
    (steps,) = target.graphs
    assert [(step.action.shared_bytes, step.waits) for step in steps if isinstance(step.action, Launch)] == [(5, ()), (5, (0,))]
    assert target.launches == [launch]


def in_a_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_an_observer_sees_other_threads_only_if_it_watches_everywhere(kernels: LoadedModule, target: FakeTarget) -> None:
    with observing(Adding(1), everywhere=True), observing(Adding(10)):
        kernels["plain"][1, 1]()
        in_a_thread(kernels["plain"][1, 1])
    in_a_thread(kernels["plain"][1, 1])
    assert [launch.shared_bytes for launch in target.launches] == [11, 1, 0]


def test_a_thread_can_leave_those_who_watch_everywhere(kernels: LoadedModule, target: FakeTarget) -> None:
    with observing(Adding(1), everywhere=True):
        with suspend_observers():
            assert not has_observers()
            with observing(Adding(10)):
                assert has_observers()
                kernels["plain"][1, 1]()
            in_a_thread(kernels["plain"][1, 1])
        assert has_observers()
    assert not has_observers()
    assert [launch.shared_bytes for launch in target.launches] == [10, 1]


def test_an_observer_of_all_threads_that_has_left_is_not_called_any_more(kernels: LoadedModule) -> None:
    """Its block ends only when a launch of another thread is rewritten that had begun to be."""
    begun, left = threading.Event(), threading.Event()
    after: list[bool] = []

    class Slow:
        def launching(self, launch: Launch) -> Launch:
            begun.set()
            after.append(left.wait(0.2))
            return launch

    with observing(Slow(), everywhere=True):
        thread = threading.Thread(target=lambda: kernels["plain"][1, 1]())
        thread.start()
        begun.wait()
    left.set()
    thread.join()
    kernels["plain"][1, 1]()
    assert after == [False]


def test_an_observer_that_joins_twice_leaves_once_with_each_block(kernels: LoadedModule, target: FakeTarget) -> None:
    one = Adding(1)
    with observing(one, everywhere=True):
        with observing(one, everywhere=True):
            kernels["plain"][1, 1]()
        kernels["plain"][1, 1]()
    kernels["plain"][1, 1]()
    assert [launch.shared_bytes for launch in target.launches] == [2, 1, 0]
