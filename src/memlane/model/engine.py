"""Simulate a plan along one clock over all devices: a step starts when its dependencies have ended and its resources are free."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from memlane.plan import Execution, Span, Timeline

Resources = tuple[Hashable, ...]
"""Resources that an execution occupies exclusively, such as a copy engine of a device."""


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of one execution: a latency without resources, then a time in which it occupies its resources."""

    elapsed_ns: float
    """Time with the resources, without the latency."""
    resources: Resources = ()
    latency_ns: float = 0.0


def simulate(order: Sequence[Execution], work: Sequence[Work]) -> Timeline:
    """Return when each execution of a plan runs. `order` is that of `memlane.plan.executions`; `work[i]` belongs to `order[i]`."""
    return advance(order, lambda number: work[number], lambda number, start_ns: work[number].elapsed_ns)


def advance(order: Sequence[Execution], needs: Callable[[int], Work], execute: Callable[[int, float], float]) -> Timeline:
    """Return when each execution of a plan runs, if durations are known only after execution.

    When all dependencies of an execution have ended, `needs(number)` returns its latency and its resources. After the latency it starts as
    soon as all resources are free; among candidates, urgent steps go first, then the earliest request, then the first in the plan.
    `execute(number, begin_ns)` is called in the order of these starts and returns for how many ns the resources were used.
    """
    clock = _Clock(order, needs)
    while clock.catch_up():
        number = clock.next_to_begin()
        if number is not None:
            clock.begin(number, execute(number, clock.now))
    return Timeline(tuple(Span.of(one, *time) for one, time in zip(order, clock.times, strict=True)), is_modelled=True)


@dataclass
class _Clock:
    """The state of a discrete-event simulation: ended, running and waiting executions at the current time."""

    order: Sequence[Execution]
    needs: Callable[[int], Work]
    now: float = 0.0
    times: list[tuple[float, float, int | None, float]] = field(init=False)
    """Start, end, blocking execution and latency of each execution."""

    def __post_init__(self) -> None:
        count = len(self.order)
        self.times = [(0.0, 0.0, None, 0.0)] * count
        self._missing = [len(execution.waits) for execution in self.order]
        self._followers: list[list[int]] = [[] for _ in range(count)]
        for number, execution in enumerate(self.order):
            for other in execution.waits:
                self._followers[other].append(number)
        self._requests = [(0.0, 0.0, Work(0.0))] * count
        """Ready time, request time and resources of each execution."""
        self._pending_requests: list[tuple[float, int]] = []
        self._ends: list[tuple[float, int]] = []
        self._candidates: list[tuple[bool, float, int]] = []
        """Executions that have requested their resources: whether not urgent, request time, number."""
        self._parked: dict[Hashable, list[tuple[bool, float, int]]] = {}
        """Resource in use -> executions that wait for it."""
        self._users: dict[Hashable, int] = {}
        self._last: dict[Hashable, tuple[float, int]] = {}
        """Resource -> end and number of its last user."""
        for number, missing in enumerate(self._missing):
            if not missing:
                self._ready(number)

    def _ready(self, number: int) -> None:
        work = self.needs(number)
        at = self.now + work.latency_ns
        self._requests[number] = self.now, at, work
        heapq.heappush(self._pending_requests, (at, number))

    def catch_up(self) -> bool:
        """Process all events up to now, and advance to the next event if nothing can start; return False if there is none."""
        if not self._candidates:
            following = [events[0][0] for events in (self._pending_requests, self._ends) if events]
            if not following:
                return False
            self.now = max(self.now, min(following))
        while self._ends and self._ends[0][0] <= self.now:
            self._end(heapq.heappop(self._ends)[1])
        while self._pending_requests and self._pending_requests[0][0] <= self.now:
            at, number = heapq.heappop(self._pending_requests)
            heapq.heappush(self._candidates, (not self.order[number].step.is_urgent, at, number))
        return True

    def _end(self, number: int) -> None:
        for one in self._requests[number][2].resources:
            if self._users.get(one) == number:
                del self._users[one]
            self._last[one] = self.times[number][1], number
            for waiting in self._parked.pop(one, ()):
                heapq.heappush(self._candidates, waiting)
        for follower in self._followers[number]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self._ready(follower)

    def next_to_begin(self) -> int | None:
        """Return the first candidate whose resources are all free, or None; park the others at a busy resource."""
        while self._candidates:
            asked = heapq.heappop(self._candidates)
            busy = next((one for one in self._requests[asked[-1]][2].resources if one in self._users), None)
            if busy is None:
                return asked[-1]
            self._parked.setdefault(busy, []).append(asked)
        return None

    def begin(self, number: int, elapsed_ns: float) -> None:
        """Start an execution: it occupies its resources from now on."""
        ready, at, work = self._requests[number]
        start, held_by = ready, None
        if self.now > at:  # it starts as late as possible: its latency ends when its resources are free
            _, held_by = max(self._last[one] for one in work.resources if one in self._last)
            start = self.now - work.latency_ns
        self.times[number] = start, self.now + elapsed_ns, held_by, work.latency_ns
        self._users.update(dict.fromkeys(work.resources, number))
        heapq.heappush(self._ends, (self.now + elapsed_ns, number))
