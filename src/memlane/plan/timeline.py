"""Record when each step of a plan ran, measured or modelled, and what delayed it."""

from __future__ import annotations

from dataclasses import dataclass, field

from memlane.number_format import duration
from memlane.plan.actions import Copy, HostCall, Launch, Put, Wait
from memlane.plan.order import Execution, Queue


@dataclass(frozen=True, slots=True)
class Span:
    """The time of one execution of a step, with its name, kind, queues and dependencies."""

    name: str
    kind: str
    """Kind of action: `launch`, `copy`, `call`, `put`, `wait` or `together`."""
    queues: tuple[Queue, ...]
    start_ns: float
    end_ns: float
    waits: tuple[int, ...] = ()
    """Numbers of the spans that had to end before this one could start."""
    held_by: int | None = None
    """Number of the span that last used a resource that this one needed: a copy engine, a link, a multiprocessor."""
    path: tuple[int, ...] = ()
    """Positions of its step: in the plan, and in each enclosing repeat."""
    turns: tuple[int, ...] = ()
    """Turn of each enclosing repeat."""
    latency_ns: float = 0.0
    """Initial part without resources, in ns: the latency of a launch or a copy. 0 if measured."""

    @property
    def elapsed_ns(self) -> float:
        return self.end_ns - self.start_ns

    @property
    def work(self) -> str:
        """Kind of work for charts: `launch`, `copy` or `call`. A put counts as a copy, and so does a wait."""
        return _WORK.get(self.kind, self.kind)

    @property
    def needed(self) -> tuple[int, ...]:
        """Numbers of all spans that delayed this one: its dependencies, and the last user of its resource."""
        return self.waits if self.held_by is None or self.held_by in self.waits else (*self.waits, self.held_by)

    @classmethod
    def of(cls, execution: Execution, start_ns: float, end_ns: float, held_by: int | None = None, latency_ns: float = 0.0) -> Span:
        """Return the span of an execution. `held_by` and its waits are numbers of executions, which are those of the spans."""
        action = execution.action
        kind = next((name for name, one in _KINDS.items() if isinstance(action, one)), "together")
        waits, path, turns = execution.waits, execution.path, execution.turns
        return cls(execution.step.name, kind, execution.queues, start_ns, end_ns, waits, held_by, path, turns, latency_ns)


_KINDS = {"launch": Launch, "copy": Copy, "call": HostCall, "put": Put, "wait": Wait}
_WORK = {"together": "launch", "put": "copy", "wait": "copy"}


@dataclass(frozen=True)
class Timeline:
    """Spans of all executions of a plan, in the plan's order, in ns from the start of the first."""

    spans: tuple[Span, ...]
    is_modelled: bool
    """Whether the times are a prediction rather than measured on a device."""
    globaltimer_ns: int | None = field(default=None, compare=False)
    """Value of `%globaltimer` on all devices at time 0; None if unknown, as on GPUs and in a prediction."""

    @property
    def elapsed_ns(self) -> float:
        """Time from the first start to the last end, in ns."""
        return max((span.end_ns for span in self.spans), default=0.0) - min((span.start_ns for span in self.spans), default=0.0)

    def critical_path(self) -> tuple[int, ...]:
        """Return the numbers of the spans on the critical path: the last to end, its longest dependency, and so on back."""
        if not self.spans:
            return ()
        path = [max(range(len(self.spans)), key=lambda number: (self.spans[number].end_ns, -number))]
        while True:
            span = self.spans[path[-1]]
            if not span.needed:
                return tuple(reversed(path))
            path.append(max(span.needed, key=lambda number: self.spans[number].end_ns))

    def __str__(self) -> str:
        path = set(self.critical_path())
        lines = [f"{'start':>12} {'end':>12}  on the critical path *"]
        for number in sorted(range(len(self.spans)), key=lambda one: (self.spans[one].start_ns, one)):
            span = self.spans[number]
            where = ", ".join(("host" if device is None else f"device {device}") + f" queue {queue}" for device, queue in span.queues)
            turn = f", turn {', '.join(map(str, span.turns))}" if span.turns else ""
            star = "*" if number in path else " "
            lines.append(f"{span.start_ns / 1000:>9.2f} us {span.end_ns / 1000:>9.2f} us {star} {where}: {span.name}{turn}")
        kind = "modelled" if self.is_modelled else "measured"
        return "\n".join([*lines, f"{duration(self.elapsed_ns)} in total, {kind}"])
