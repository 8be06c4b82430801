"""Cut a plan into segments short enough for one graph each, some of which are replayed many times; record which repeats end early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from memlane.plan.actions import counts_turns
from memlane.plan.buffers import View
from memlane.plan.order import Execution, Turns
from memlane.plan.plan import Plan, Repeat, Step, all_repeats, all_steps

MAX_EXECUTIONS = 2000
"""Maximum executions per segment, unless one or two turns of a repeat exceed it."""


@dataclass(frozen=True)
class Segment:
    """Consecutive executions of a plan, and how often they run. Earlier executions have ended when they begin."""

    order: Sequence[Execution]
    times: int = 1
    """Number of runs; with `until` the maximum."""
    until: View | None = None
    """Element checked after each run: the segment ends when it is nonzero."""
    path: tuple[int, ...] = ()
    """Path of the repeat whose turns these are."""
    turns: int = 0
    """Turns of the repeat per run."""


def segments(plan: Plan, order: Sequence[Execution], most: int = MAX_EXECUTIONS) -> list[Segment]:
    """Return the segments of a plan, of about `most` executions.

    A longer repeat becomes one segment of some turns that runs many times, unless numbers count its turns. `order` may be that of
    `replayed_turns`, which has the turns of these segments and few others.
    """
    found: list[Segment] = []
    waiting: list[Execution] = []
    for position, of_item in groupby(order, key=lambda execution: execution.path[0]):
        item, executions = plan.steps[position], list(of_item)
        if isinstance(item, Repeat) and (item.until is not None or len(waiting) + item.count * _executions_a_turn(item) > most):
            found += [Segment(waiting)] if waiting else []
            waiting = []
            found += _of_repeat(item, position, executions, most)
        else:
            waiting += executions
    return [*found, *([Segment(waiting)] if waiting else [])]


def _of_repeat(repeat: Repeat, position: int, executions: list[Execution], most: int) -> Iterator[Segment]:
    size, together = _executions_a_turn(repeat), _turns_together(repeat, most)
    times, rest = (0, repeat.count) if _is_counting(repeat) else divmod(repeat.count, together)
    if times:
        yield Segment(executions[: together * size], times, repeat.until, (position,), together)
    turns = len(executions) // size
    begin = repeat.count - rest if turns == repeat.count else together  # in a reduced order the rest follows the turns that are replayed
    for start in range(begin, begin + rest, together):
        part = executions[start * size : min(start + together, begin + rest) * size]
        yield Segment(part, 1, repeat.until, (position,), len(part) // size)


def replayed_turns(plan: Plan, most: int = MAX_EXECUTIONS) -> Turns:
    """Return how many turns of each repeat `segments` of a plan consist of, so that the others need not be enumerated.

    Every dependency of a turn on the one before is among them.
    """
    inner = {id(one) for item in plan.steps if isinstance(item, Repeat) for one in all_repeats(item.steps)}
    needed: dict[int, int] = {}
    for item in plan.steps:
        if isinstance(item, Repeat) and id(item) not in inner and not _is_counting(item):
            together = _turns_together(item, most)
            needed[id(item)] = max(together + item.count % together, 2 * item.period, together + 1 if item.until is not None else 0)
    return lambda repeat: min(repeat.count, needed.get(id(repeat), repeat.count))


def _turns_together(repeat: Repeat, most: int) -> int:
    """Return the turns of a segment: as many as fit, or up to half of them fewer if a smaller rest is left then."""
    if repeat.until is not None:
        return repeat.every
    period = repeat.period
    fitting = max(1, most // max(1, _executions_a_turn(repeat) * period)) * period
    if repeat.count <= fitting or _is_counting(repeat):
        return fitting
    return min(range(fitting, fitting // 2, -period), key=lambda turns: repeat.count % turns)


def _executions_a_turn(repeat: Repeat) -> int:
    return sum(item.count * _executions_a_turn(item) if isinstance(item, Repeat) else 1 for item in repeat.steps)


def _is_counting(repeat: Repeat) -> bool:
    return any(counts_turns(step.action) for step in all_steps(repeat.steps))


@dataclass
class EarlyEnds:
    """Record of the repeats that have ended early while a plan runs."""

    plan: Plan
    turns: dict[tuple[int, ...], int] = field(default_factory=dict)
    _checked_turns: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, bool]] = field(default_factory=dict)
    """Repeat and turns of the enclosing ones -> last turn before which the end was checked, and whether it has ended."""

    def is_over(self, execution: Execution, value: Any) -> bool:
        """Return whether to skip an execution because an enclosing repeat has ended; checks end conditions as needed."""
        items: Sequence[Step | Repeat] = self.plan.steps
        for depth, position in enumerate(execution.path[:-1]):
            repeat = items[position]
            assert isinstance(repeat, Repeat)
            items = repeat.steps
            if repeat.until is None:
                continue
            path, around, turn = execution.path[: depth + 1], execution.turns[:depth], execution.turns[depth]
            looked, over = self._checked_turns.get((path, around), (0, False))
            if not over and turn > looked:
                if turn % repeat.every == 0:
                    over = value(repeat.until)
                self._checked_turns[path, around] = turn, over
            if over:
                return True
            self.turns[path] = turn + 1
        return False
