"""Run plans whose device calls are made between CUDA graphs, because host functions of graphs must not call CUDA.

The steps between two calls are two graphs, on a stream each: the steps that the next call waits for, and all others, which run during the
call. Graphs of equal steps are built once, so a repeat of many turns needs few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from memlane.launch import BoundCall, Event, StepGraph, Stream, Target
from memlane.plan import Action, DeviceCall, Execution
from memlane.targets.bound_actions import BoundActions

URGENT, REST = 0, 1
"""Numbers of the two graphs of a piece, and of their streams."""


def is_made_between_graphs(action: Action) -> bool:
    """Return whether an action is a call that the thread that runs the plan makes, between graphs."""
    return isinstance(action, DeviceCall) and not action.enqueues


@dataclass
class Piece:
    """Steps of a plan after one call and up to the next."""

    steps: tuple[list[Execution], list[Execution]] = field(default_factory=lambda: ([], []))
    """Steps that the next call waits for, and the others."""
    awaited: list[int] = field(default_factory=lambda: [-1, -1])
    """For the steps of each kind the last piece whose steps of the other kind they wait for; -1 for none."""
    call: Execution | None = None
    call_awaits: int = -1
    """Last piece whose other steps the call waits for itself."""


def pieces(order: Sequence[Execution]) -> list[Piece]:
    """Cut the executions of a plan at its calls, which follow each other in their order. A step is in the first piece that it can be in."""
    found, places = [Piece()], dict[int, tuple[int, int]]()
    next_call = _next_calls(order)
    first: list[int] = [0] * len(order)
    """First piece that can have each execution; for a call the piece after it."""
    for one in order:
        at = max((first[number] for number in one.waits), default=0)
        if is_made_between_graphs(one.action):
            found[-1].call = one
            found[-1].call_awaits = max((places[number][0] for number in one.waits if places.get(number, (0, 0))[1] == REST), default=-1)
            found.append(Piece())
            first[one.number] = len(found) - 1
            continue
        kind = URGENT if next_call[one.number] == at else REST
        piece = found[at]
        first[one.number], places[one.number] = at, (at, kind)
        piece.steps[kind].append(one)
        others = [places[number][0] for number in one.waits if places.get(number, (0, kind))[1] != kind]
        piece.awaited[kind] = max([piece.awaited[kind], *others])
    return found


def _next_calls(order: Sequence[Execution]) -> list[float]:
    """Return for each execution which call, counted from 0, is the first that waits for it; infinity if none does."""
    found: list[float] = [inf] * len(order)
    count = sum(is_made_between_graphs(one.action) for one in order)
    for one in reversed(order):
        if is_made_between_graphs(one.action):
            count -= 1
            found[one.number] = count
        for number in one.waits:
            found[number] = min(found[number], found[one.number])
    return found


class PlanPieces:
    """A plan cut at its calls, with its graphs. It can run repeatedly."""

    def __init__(self, order: Sequence[Execution], actions: BoundActions, target: Target) -> None:
        """Cut the plan, and build its graphs on the target that starts them."""
        self._target, self._streams = target, (target.stream(), target.stream())
        self._graphs: dict[object, StepGraph] = {}
        self._pieces = [(piece, [self._graph(actions, steps) for steps in piece.steps], _bound(actions, piece)) for piece in pieces(order)]

    @property
    def graphs(self) -> list[StepGraph]:
        return list(self._graphs.values())

    def _graph(self, actions: BoundActions, steps: Sequence[Execution]) -> StepGraph | None:
        """Return the graph of some steps; None if there are none."""
        places = {one.number: at for at, one in enumerate(steps)}
        key = tuple((id(one.action), one.step, tuple(places[number] for number in one.waits if number in places)) for one in steps)
        if steps and key not in self._graphs:
            self._graphs[key] = self._target.graph_of_steps(actions.steps(steps)[0])
        return self._graphs[key] if steps else None

    def run(self, stream: Stream) -> None:
        """Start all steps and make all calls, after earlier work on a stream and before later work on it. Returns after the last call."""
        begin = self._target.record(stream)
        for own in self._streams:
            self._target.wait_for(begin, own)
        ends: list[tuple[Event, Event]] = []
        for piece, graphs, call in self._pieces:
            ends.append(self._started(piece, graphs, ends))
            if call is not None:
                _poll(ends[-1][URGENT])
                if piece.call_awaits >= 0:
                    _poll(ends[piece.call_awaits][REST])
                call.call()
        for event in ends[-1]:
            self._target.wait_for(event, stream)

    def _started(self, piece: Piece, graphs: Sequence[StepGraph | None], ends: Sequence[tuple[Event, Event]]) -> tuple[Event, Event]:
        """Start the graphs of a piece, and return an event after the work of each stream so far."""
        found: list[Event] = []
        for kind, (graph, own) in enumerate(zip(graphs, self._streams, strict=True)):
            awaited = piece.awaited[kind]
            if awaited >= 0:
                before = found[URGENT] if awaited == len(ends) else ends[awaited][1 - kind]
                self._target.wait_for(before, own)
            if graph is not None:
                graph.replay(own)
            found.append(self._target.record(own) if graph is not None or not ends else ends[-1][kind])
        return found[URGENT], found[REST]


def _bound(actions: BoundActions, piece: Piece) -> BoundCall | None:
    """Return the call after a piece; None after the last."""
    if piece.call is None:
        return None
    ((call, target),) = actions.of(piece.call)
    observed = actions.observed_action(piece.call, call, target)
    assert isinstance(observed, BoundCall)
    return observed


def _poll(event: Event) -> None:
    """Wait for an event without sleeping: a thread that sleeps wakes up later than an exchange of small messages takes."""
    while not event.done():
        pass
