"""Random plans of copies, launches and host calls, and what they mean by definition: every execution, every byte, every pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from memlane.plan import Buffer, Copy, HostCall, KernelRef, Launch, Plan, Repeat, Scalar, Step, Touch, View

KERNEL = KernelRef("module", "work")


@st.composite
def views(draw: st.DrawFn, buffers: Sequence[Buffer], size: int | None = None) -> View:
    """A strided view of some elements of a buffer, forwards or backwards."""
    buffer = draw(st.sampled_from(buffers))
    elements = buffer.nbytes // 2
    count = draw(st.integers(1, 3)) if size is None else size
    step = draw(st.integers(1, max(1, min(3, (elements - 1) // max(1, count - 1))))) if count > 1 else 1
    first = draw(st.integers(0, elements - 1 - (count - 1) * step))
    if draw(st.booleans()):
        return View(buffer, "i2", (count,), (2 * step,), 2 * first)
    return View(buffer, "i2", (count,), (-2 * step,), 2 * (first + (count - 1) * step))


@st.composite
def steps(draw: st.DrawFn, buffers: Sequence[Buffer], position: int, devices: int, in_repeat: int) -> Step:
    device = draw(st.integers(0, devices - 1))
    queue = draw(st.integers(0, 1))
    after = tuple(draw(st.sets(st.integers(0, position - 1), max_size=2))) if position else ()
    carried = tuple(draw(st.sets(st.integers(0, in_repeat - 1), max_size=1))) if in_repeat else ()
    kind = draw(st.sampled_from(["launch", "copy", "call"]))
    if kind == "copy":
        size = draw(st.integers(1, 3))
        source = draw(views(buffers, size))
        target = draw(views(buffers, size).filter(lambda view: not view.overlaps(source)))
        return Step(Copy(target, source), device, queue, after, carried)
    reachable = [buffer for buffer in buffers if buffer.is_on_host == (kind == "call")]
    if not reachable:
        return Step(Launch(KERNEL, (1, 1, 1), (1, 1, 1), reads=(), writes=()), device, queue, after, carried)
    reads = tuple(draw(st.lists(views(reachable), max_size=2)))
    writes = tuple(draw(st.lists(views(reachable), max_size=1)))
    if kind == "call":
        return Step(HostCall("math:sqrt", (), reads, writes), None, queue, after, carried)
    number = draw(st.sampled_from([(), (Scalar(3, 2),)])) if in_repeat else ()
    return Step(Launch(KERNEL, (1, 1, 1), (1, 1, 1), number, reads=reads, writes=writes), device, queue, after, carried)


@st.composite
def plans(draw: st.DrawFn, devices: int = 2, most_turns: int = 9) -> Plan:
    """A plan with a repeat or two, one of them perhaps inside the other, whose buffers may rotate."""
    homes = [draw(st.sampled_from([*range(devices), "host"])) for _ in range(draw(st.integers(2, 4)))]
    buffers = [Buffer(f"b{number}", 16, home) for number, home in enumerate(homes)]

    def some(depth: int, most: int, in_repeat: bool) -> tuple[Step | Repeat, ...]:
        count = draw(st.integers(1, most))
        items: list[Step | Repeat] = []
        for position in range(count):
            if depth and draw(st.integers(0, 2)) == 0:
                alike = [[one for one in buffers if one.home == home] for home in dict.fromkeys(homes)]
                groups = [tuple(group) for group in alike if len(group) > 1 and draw(st.booleans())]
                after = tuple(draw(st.sets(st.integers(0, position - 1), max_size=1))) if position else ()
                turns = draw(st.integers(0, most_turns if depth == 2 else 3))
                items.append(Repeat(some(depth - 1, 4, True), turns, tuple(groups), after=after))
            else:
                # What a step of the turn before is may be any of the list, also one that follows.
                items.append(draw(steps(buffers, position, devices, count if in_repeat else 0)))
        return tuple(items)

    return Plan(some(2, 5, False))


@dataclass(frozen=True)
class Run:
    """One execution, by definition."""

    path: tuple[int, ...]
    queue: tuple[int | None, int]
    touches: tuple[Touch, ...]
    waits: frozenset[int]


def runs(plan: Plan) -> list[Run]:
    """Every execution with all that it waits for: what the words of `Step` and `Repeat` say, without any cleverness."""
    done: list[Run] = []

    def execute(
        items: Sequence[Step | Repeat], path: tuple[int, ...], gates: set[int], turns: list[tuple[Repeat, int]], before: Any
    ) -> Any:
        numbers: list[set[int]] = []
        for position, item in enumerate(items):
            waits = set(gates).union(*(numbers[other] for other in item.after))
            if isinstance(item, Repeat):
                inside: set[int] = set()
                previous = None
                for turn in range(item.count):
                    previous = execute(item.steps, (*path, position), waits, [*turns, (item, turn)], previous)
                    inside.update(*previous)
                numbers.append(inside or waits)
                continue
            if before is not None:
                waits = waits.union(*(before[other] for other in item.after_last_turn))
            queue = item.queues[0]
            waits |= {number for number, run in enumerate(done) if run.queue == queue}
            touches = tuple(Touch(in_turns(one.view, turns), one.reads, one.writes) for one in item.action.touches)
            done.append(Run((*path, position), queue, touches, frozenset(waits)))
            numbers.append({len(done) - 1})
        return numbers

    execute(plan.steps, (), set(), [], None)
    return done


def in_turns(view: View, turns: Sequence[tuple[Repeat, int]]) -> View:
    buffer = view.buffer
    for repeat, turn in reversed(turns):
        for group in repeat.rotate:
            if buffer in group:
                buffer = group[(group.index(buffer) + turn) % len(group)]
                break
    return View(buffer, view.dtype, view.shape, view.strides, view.offset)


def ended_before(done: Sequence[Run]) -> list[set[int]]:
    """For each execution those that have ended before it starts."""
    found: list[set[int]] = []
    for run in done:
        found.append(set(run.waits).union(*(found[other] for other in run.waits)))
    return found


def bytes_of(view: View) -> Iterator[tuple[str, int]]:
    for index in np.ndindex(*view.shape):
        first = view.offset + sum(at * stride for at, stride in zip(index, view.strides, strict=True))
        yield from ((view.buffer.name, first + byte) for byte in range(view.itemsize))


def races_by_definition(plan: Plan) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    done = runs(plan)
    before = ended_before(done)
    reads = [{byte for one in run.touches for byte in bytes_of(one.view)} for run in done]
    writes = [{byte for one in run.touches if one.writes for byte in bytes_of(one.view)} for run in done]
    return {
        (done[first].path, done[second].path)
        for second in range(len(done))
        for first in range(second)
        if first not in before[second] and (writes[first] & reads[second] or reads[first] & writes[second])
    }
