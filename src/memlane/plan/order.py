"""Derive the order of a plan: every execution of its steps, their dependencies, and the lifetime of each buffer.

All targets use this order, so that a plan means the same on each. The numbers of the executions are a valid sequential order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from memlane.plan.actions import Action, Copy, Launch, Put, Scalar, Together, Value, Wait, counts_turns
from memlane.plan.buffers import Buffer, View
from memlane.plan.plan import Plan, Repeat, Step

Queue = tuple[int | None, int]
"""A device (None: the host) and the number of one of its queues."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a step: in a repeat, one for each turn, with the buffers rotated."""

    action: Action
    """The action with the actual buffers of this turn, and numbers in place of scalars."""
    step: Step
    path: tuple[int, ...]
    """Positions of the step: in the plan, and in each enclosing repeat."""
    turns: tuple[int, ...]
    """Turn of each enclosing repeat, the outermost first."""
    waits: tuple[int, ...]
    """Numbers of the executions that must end first, without those implied by others on the same queue."""
    number: int = 0
    """Position in the order."""

    def __str__(self) -> str:
        turn = f" in turn {', '.join(map(str, self.turns))}" if self.turns else ""
        label = f" ({self.step.label})" if self.step.label else ""
        return f"step {'.'.join(map(str, self.path))}{label}{turn}"

    @property
    def queues(self) -> tuple[Queue, ...]:
        return self.step.queues


Turns = Callable[[Repeat], int]
"""A function that returns how many turns of a repeat are executed."""


def executions(plan: Plan, turns: Turns = lambda repeat: repeat.count) -> list[Execution]:
    """Return every execution of every step, each after its dependencies. A repeat with `until` has the maximum number of turns."""
    unroller = _Unroller(turns)
    unroller.run(plan.steps, (), ())
    return unroller.done


def ancestors(order: Sequence[Execution]) -> list[int]:
    """Return for each execution the set of those that must end before it starts, as a bit mask."""
    before: list[int] = []
    for execution in order:
        found = 0
        for other in execution.waits:
            found |= before[other] | 1 << other
        before.append(found)
    return before


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The range in which a buffer is needed. Its memory may be reused before `first` and after every step that can follow `last`."""

    buffer: Buffer
    first: int
    """Number of the first execution that touches the buffer, in the order of `executions`."""
    last: int
    is_input: bool
    """Whether the first execution that touches the buffer reads it, so that it must be initialised before the plan runs."""
    is_written: bool


def lifetimes(order: Sequence[Execution]) -> dict[Buffer, Lifetime]:
    """Return the lifetime of each buffer, in the order of first use."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    inputs, written = set[Buffer](), set[Buffer]()
    actions = {id(execution.action): execution.action for execution in order}  # the turns of a repeat share them
    touches = {key: action.touches for key, action in actions.items()}
    for number, execution in enumerate(order):
        for touch in touches[id(execution.action)]:
            buffer = touch.view.buffer
            first.setdefault(buffer, number)
            last[buffer] = number
            if touch.reads and buffer not in written:
                inputs.add(buffer)
            if touch.writes:
                written.add(buffer)
    return {buffer: Lifetime(buffer, at, last[buffer], buffer in inputs, buffer in written) for buffer, at in first.items()}


Ends = tuple[int, ...]


@dataclass
class _Gate:
    """Executions that each queue must wait for once, on entering a repeat or after a check whether the repeat ends."""

    waits: set[int]
    passed: set[Queue] = field(default_factory=set)

    def entering(self, queues: Sequence[Queue]) -> set[int]:
        """Return the executions that one on these queues must wait for; later ones on the same queues are ordered after it."""
        if self.passed.issuperset(queues):
            return set()
        self.passed.update(queues)
        return self.waits


@dataclass(frozen=True)
class _Turn:
    """One turn of a repeat."""

    repeat: Repeat
    number: int
    before: Sequence[Ends]
    """Executions that ended each step in the previous turn; empty in the first."""
    gate: _Gate


class _Unroller:
    """Enumerator of a plan's executions, repeat by repeat."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.done: list[Execution] = []
        self._last: dict[Queue, int] = {}
        """Queue -> its last execution so far."""
        self._with_current_buffers: dict[tuple[tuple[int, ...], tuple[int, ...]], Action] = {}
        """Path of a step and phases of the rotating buffers around it -> its action."""

    def run(self, items: Sequence[Step | Repeat], path: tuple[int, ...], around: tuple[_Turn, ...]) -> list[Ends]:
        """Execute a list of steps once; return for each step the executions that end it."""
        ends: list[Ends] = []
        for position, item in enumerate(items):
            here = (*path, position)
            waits = {number for other in item.after for number in ends[other]}
            if isinstance(item, Repeat):
                ends.append(self._repeat(item, waits, here, around))
                continue
            if around and around[-1].before:
                waits.update(number for other in item.after_last_turn for number in around[-1].before[other])
            ends.append((self._execute(item, waits, here, around),))
        return ends

    def _execute(self, step: Step, waits: set[int], path: tuple[int, ...], around: tuple[_Turn, ...]) -> int:
        queues = step.queues
        for turn in around:
            waits |= turn.gate.entering(queues)
        before = {self._last[queue] for queue in queues if queue in self._last}
        # Earlier executions on the same queues end before the last one there.
        needed = {number for number in waits if not any(queue in queues for queue in self.done[number].queues)} | before
        number = len(self.done)
        turns = tuple(turn.number for turn in around)
        self.done.append(Execution(self._current_action(step, path, around), step, path, turns, tuple(sorted(needed)), number))
        self._last.update(dict.fromkeys(queues, number))
        return number

    def _repeat(self, repeat: Repeat, waits: set[int], path: tuple[int, ...], around: tuple[_Turn, ...]) -> Ends:
        begun = len(self.done)
        gate = _Gate(waits)
        ends: list[Ends] = []
        for number in range(self.turns(repeat)):
            if repeat.until is not None and number and number % repeat.every == 0:
                gate = _Gate(set(self._ends_since(begun)))
            ends = self.run(repeat.steps, path, (*around, _Turn(repeat, number, ends, gate)))
        return self._ends_since(begun) or tuple(sorted(waits))

    def _ends_since(self, begun: int) -> Ends:
        return tuple(sorted({number for number in self._last.values() if number >= begun}))

    def _current_action(self, step: Step, path: tuple[int, ...], around: tuple[_Turn, ...]) -> Action:
        if not around:
            return step.action
        if counts_turns(step.action):
            return _with_current_buffers(step.action, around)
        key = path, tuple(turn.number % turn.repeat.period for turn in around)
        if key not in self._with_current_buffers:
            self._with_current_buffers[key] = _with_current_buffers(step.action, around)
        return self._with_current_buffers[key]


def _with_current_buffers(action: Action, around: Sequence[_Turn]) -> Action:
    """Return the action with the buffers and numbers of the current turns."""

    def view(one: View) -> View:
        holder = one.buffer
        for turn in reversed(around):
            holder = turn.repeat.holder(holder, turn.number)
        return one if holder is one.buffer else replace(one, buffer=holder)

    def views(many: tuple[View, ...] | None) -> tuple[View, ...] | None:
        return None if many is None else tuple(map(view, many))

    def value(one: Value) -> Value:
        if isinstance(one, Scalar):
            return one.start + one.per_turn * around[-1 - one.repeat].number
        return view(one) if isinstance(one, View) else one

    if isinstance(action, Copy):
        return Copy(view(action.destination), view(action.source))
    if isinstance(action, Put):
        return replace(action, copies=tuple(Copy(view(one.destination), view(one.source)) for one in action.copies))
    if isinstance(action, Wait):
        return action
    if isinstance(action, Together):
        return Together(tuple((device, _current_launch(launch, around)) for device, launch in action.launches))
    return replace(action, arguments=tuple(map(value, action.arguments)), reads=views(action.reads), writes=views(action.writes))


def _current_launch(launch: Launch, around: Sequence[_Turn]) -> Launch:
    placed = _with_current_buffers(launch, around)
    assert isinstance(placed, Launch)
    return placed
