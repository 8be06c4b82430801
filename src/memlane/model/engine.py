"""One clock over all devices: a step starts when what it waits for has ended and what it needs is free."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from memlane.plan import Execution, Span, Timeline

Resources = tuple[Hashable, ...]
"""What one execution has to itself while it runs, for example a copy engine of a device."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution takes: a time, during which it has some resources to itself."""

    elapsed_ns: float
    resources: Resources = ()


def simulate(order: Sequence[Execution], work: Sequence[Work]) -> Timeline:
    """Return when each execution of a plan runs. `order` is that of `memlane.plan.executions`, `work[i]` belongs to `order[i]`."""
    return advance(order, lambda number: work[number].resources, lambda number, start_ns: work[number].elapsed_ns)


def advance(order: Sequence[Execution], resources: Callable[[int], Resources], execute: Callable[[int, float], float]) -> Timeline:
    """Return when each execution of a plan runs, where what it takes is known only once it has run.

    `execute(number, start_ns)` is called for each number of `order`, behind all that this execution waits for, and returns how many ns it
    took; just before, `resources(number)` returns what it needs. An execution is ready when all that it waits for has ended. Of those that
    are ready and need one resource, the one that was ready first starts first, of equals the one that stands first in the plan; so the
    executions that need a resource are called in the order of their starts.
    """
    followers: list[list[int]] = [[] for _ in order]
    missing = [len(execution.waits) for execution in order]
    for number, execution in enumerate(order):
        for other in execution.waits:
            followers[other].append(number)
    ready = [(0.0, number) for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    ready_ns = [0.0] * len(order)
    times: list[tuple[float, float, int | None]] = [(0.0, 0.0, None)] * len(order)
    free: dict[Hashable, tuple[float, int | None]] = {}
    while ready:
        at, number = heapq.heappop(ready)
        needed = resources(number)
        start, holder = max((free.get(one, (0.0, None)) for one in needed), key=lambda found: found[0], default=(0.0, None))
        held_by = holder if start > at else None
        start = max(start, at)
        end = start + execute(number, start)
        times[number] = start, end, held_by
        free.update(dict.fromkeys(needed, (end, number)))
        for follower in followers[number]:
            ready_ns[follower] = max(ready_ns[follower], end)
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (ready_ns[follower], follower))
    return Timeline(tuple(Span.of(one, *time) for one, time in zip(order, times, strict=True)), is_modelled=True)
