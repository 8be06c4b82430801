"""A plan in pieces that are short enough to be one graph each, of which some are started many times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from memlane.plan.actions import counts_turns
from memlane.plan.buffers import View
from memlane.plan.order import Execution
from memlane.plan.plan import Plan, Repeat, all_steps

MOST = 2000
"""Executions of a piece, if a turn of a repeat or two have no more."""


@dataclass(frozen=True)
class Segment:
    """Executions that follow each other in the order of a plan, and how often they run. What is before them has ended when they begin."""

    order: Sequence[Execution]
    times: int = 1
    """With `until`, how often at most."""
    until: View | None = None
    """What to look at after each time: the segment is over when it is not zero."""
    path: tuple[int, ...] = ()
    """Of the repeat whose turns these are."""
    turns: int = 0
    """How many of its turns run each time."""


def segments(plan: Plan, order: Sequence[Execution], most: int = MOST) -> list[Segment]:
    """Return the pieces of a plan, of `most` executions or so. A repeat of more is one piece of some turns that runs many times, except
    where numbers count its turns."""
    found: list[Segment] = []
    waiting: list[Execution] = []
    for position, of_item in groupby(order, key=lambda execution: execution.path[0]):
        item, executions = plan.steps[position], list(of_item)
        if isinstance(item, Repeat) and (item.until is not None or len(waiting) + len(executions) > most):
            found += [Segment(waiting)] if waiting else []
            waiting = []
            found += _of_repeat(item, position, executions, most)
        else:
            waiting += executions
    return [*found, *([Segment(waiting)] if waiting else [])]


def _of_repeat(repeat: Repeat, position: int, executions: list[Execution], most: int) -> Iterator[Segment]:
    size = len(executions) // repeat.count
    together = repeat.every if repeat.until is not None else max(1, most // (size * repeat.period)) * repeat.period
    counting = any(counts_turns(step.action) for step in all_steps(repeat.steps))
    times, rest = (0, repeat.count) if counting else divmod(repeat.count, together)
    if times:
        yield Segment(executions[: together * size], times, repeat.until, (position,), together)
    for start in range(repeat.count - rest, repeat.count, together):
        part = executions[start * size : min(start + together, repeat.count) * size]
        yield Segment(part, 1, repeat.until, (position,), len(part) // size)
