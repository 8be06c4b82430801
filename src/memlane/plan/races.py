"""Find races: unordered steps of which one writes data that the other accesses, so that the result depends on timing."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from memlane.errors import BadPlan
from memlane.plan.actions import Touch
from memlane.plan.buffers import Buffer
from memlane.plan.order import Execution, Turns, ancestors, executions
from memlane.plan.plan import Plan, Repeat

_FEW = 16
"""Number of candidates up to which they are compared one by one, without a NumPy prefilter."""


@dataclass(frozen=True, slots=True)
class Race:
    """Two unordered executions that touch the same bytes, at least one of which writes them."""

    first: Execution
    second: Execution
    touched: tuple[Touch, Touch]
    """The conflicting views of the first and the second execution."""

    def __str__(self) -> str:
        (one, other), buffer = self.touched, self.touched[0].view.buffer
        return (
            f"{self.first} {_verb(one)} and {self.second} {_verb(other)} the same bytes of buffer {buffer.name!r} without an order "
            f"({one.view} and {other.view}): make one wait for the other, or put both on the same queue"
        )


def races(plan: Plan) -> list[Race]:
    """Return every race, once per pair of steps. Repeats run for as many turns as can make a difference."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], Race] = {}
    order = executions(plan, _Turns())
    for race in _races(order):
        found.setdefault((race.first.path, race.second.path), race)
    return list(found.values())


def check(plan: Plan) -> None:
    """Raise BadPlan, describing the first race, if the result of a plan depends on the order of unordered steps."""
    found = races(plan)
    if found:
        more = f"; and {len(found) - 1} more such pairs" if len(found) > 1 else ""
        raise BadPlan(f"{found[0]}{more}")


def _verb(touch: Touch) -> str:
    return "writes" if touch.writes and not touch.reads else "reads" if not touch.writes else "reads and writes"


class _Turns:
    """Number of turns of a repeat after which no new race can occur: until the order is periodic, plus one period of the rotating buffers.

    The order between executions of two turns depends only on the distance of the turns, and grows with it until it stays the same.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def __call__(self, repeat: Repeat) -> int:
        if id(repeat) not in self._known:
            self._known[id(repeat)] = self._of(repeat)
        return self._known[id(repeat)]

    def _of(self, repeat: Repeat) -> int:
        least = self._turns_until_periodic(repeat) + repeat.period
        # Keep the remainder of the plan's turns modulo the period, so that the steps after the repeat find the same buffers.
        return repeat.count if repeat.count <= least else least + (repeat.count - least) % repeat.period

    def _turns_until_periodic(self, repeat: Repeat) -> int:
        """Return the number of turns after which the order between the first and a later turn stays the same."""
        alone = replace(repeat, after=())
        turns = 4
        while turns < repeat.count:
            order = executions(Plan((alone,)), _TrialTurns(self, alone, turns))
            size = len(order) // turns
            if not size:
                return 1
            first = (1 << size) - 1
            reached = [before & first for before in ancestors(order)]
            by_turn = [reached[turn * size : (turn + 1) * size] for turn in range(turns)]
            for turn in range(1, turns - 1):
                if by_turn[turn] == by_turn[turn + 1]:
                    return turn + 1
            turns *= 2
        return repeat.count


@dataclass(frozen=True)
class _TrialTurns:
    """Turn counts for a trial of one repeat with `count` turns, and for the repeats inside it."""

    turns: Turns
    repeat: Repeat
    count: int

    def __call__(self, repeat: Repeat) -> int:
        return self.count if repeat is self.repeat else self.turns(repeat)


@dataclass
class _Touched:
    """Executions that have touched one buffer so far."""

    by_execution: dict[int, Sequence[Touch]] = field(default_factory=dict)
    touching: int = 0
    """Bit mask of the executions; `writing` has those that write."""
    writing: int = 0
    numbers: array[int] = field(default_factory=lambda: array("q"))
    low: array[int] = field(default_factory=lambda: array("q"))
    high: array[int] = field(default_factory=lambda: array("q"))
    """Bounds of the bytes touched by each execution, with the lower ones in `low`."""

    def add(self, number: int, touches: Sequence[Touch]) -> None:
        low, high = _bounds(touches)
        self.by_execution[number] = touches
        self.touching |= 1 << number
        if any(touch.writes for touch in touches):
            self.writing |= 1 << number
        self.numbers.append(number)
        self.low.append(low)
        self.high.append(high)

    def near(self, among: int, touches: Sequence[Touch]) -> Iterator[int]:
        """Yield the executions in the mask `among` whose byte ranges overlap those of `touches`."""
        if among.bit_count() <= _FEW:
            while among:
                last = among.bit_length() - 1
                among ^= 1 << last
                yield last
            return
        low, high = _bounds(touches)
        numbers = np.frombuffer(self.numbers, np.int64)
        bits = np.frombuffer(among.to_bytes(int(numbers[-1]) // 8 + 1, "little"), np.uint8)
        wanted = np.unpackbits(bits, bitorder="little")[numbers].astype(bool)
        yield from numbers[wanted & (np.frombuffer(self.low, np.int64) < high) & (np.frombuffer(self.high, np.int64) > low)].tolist()


def _bounds(touches: Sequence[Touch]) -> tuple[int, int]:
    return min(touch.view.bounds[0] for touch in touches), max(touch.view.bounds[1] for touch in touches)


def _races(order: Sequence[Execution]) -> Iterator[Race]:
    """Yield the races of a list of executions, one per pair and buffer."""
    touched: dict[Buffer, _Touched] = {}
    for number, (execution, before) in enumerate(zip(order, ancestors(order), strict=True)):
        by_buffer: dict[Buffer, list[Touch]] = {}
        for touch in execution.action.touches:
            by_buffer.setdefault(touch.view.buffer, []).append(touch)
        for buffer, touches in by_buffer.items():
            known = touched.setdefault(buffer, _Touched())
            against = known.touching if any(touch.writes for touch in touches) else known.writing
            for other in known.near(against & ~before, touches):
                for one, this in product(known.by_execution[other], touches):
                    if (one.writes or this.writes) and one.view.overlaps(this.view):
                        yield Race(order[other], execution, (one, this))
                        break
            known.add(number, touches)
