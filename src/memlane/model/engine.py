"""One clock over all devices: steps with known durations, started when what they wait for has ended and what they need is free."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from memlane.plan import Execution, Span, Timeline


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution takes: a time, during which it has some resources to itself."""

    elapsed_ns: float
    resources: tuple[Hashable, ...] = ()
    """For example a copy engine of a device. One that is held makes others wait, who come first first."""


def simulate(order: Sequence[Execution], work: Sequence[Work]) -> Timeline:
    """Return when each execution of a plan runs. `order` is that of `memlane.plan.executions`, `work[i]` belongs to `order[i]`.

    An execution is ready when all that it waits for has ended; of those that are ready and need one resource, the one that was ready first
    starts first, of equals the one that stands first in the plan.
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
        start, holder = max((free.get(one, (0.0, None)) for one in work[number].resources), key=lambda found: found[0], default=(0.0, None))
        held_by = holder if start > at else None
        start = max(start, at)
        end = start + work[number].elapsed_ns
        times[number] = start, end, held_by
        free.update(dict.fromkeys(work[number].resources, (end, number)))
        for follower in followers[number]:
            ready_ns[follower] = max(ready_ns[follower], end)
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, (ready_ns[follower], follower))
    return Timeline(tuple(Span.of(one, *time) for one, time in zip(order, times, strict=True)), is_modelled=True)
