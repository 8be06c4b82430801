"""When each step of a plan ran, measured or modelled, and what its end waited for."""

from __future__ import annotations

from dataclasses import dataclass, field

from memlane.number_format import duration
from memlane.plan.actions import Copy, HostCall, Launch, Put, Wait
from memlane.plan.order import Execution, Queue


@dataclass(frozen=True, slots=True)
class Span:
    """The time of one execution of a step: `name`, `kind`, where it stood, when it ran, and what it waited for."""

    name: str
    kind: str
    """`launch`, `copy`, `call`, `put`, `wait` or `together`."""
    queues: tuple[Queue, ...]
    start_ns: float
    end_ns: float
    waits: tuple[int, ...] = ()
    """Numbers of the spans that had to end before this one could start."""
    held_by: int | None = None
    """The span that last used what this one needed next: a copy engine, a link, a multiprocessor."""
    path: tuple[int, ...] = ()
    """Positions of its step: in the plan, and in each repeat around it."""
    turns: tuple[int, ...] = ()
    """The turn of each repeat around it."""
    latency_ns: float = 0.0
    """Its beginning in which it used nothing yet: a launch or a copy on its way. 0 where it was measured."""

    @property
    def elapsed_ns(self) -> float:
        return self.end_ns - self.start_ns

    @property
    def work(self) -> str:
        """What kind of work it is, in pictures: `launch`, `copy` or `call`. A put moves data as a copy does, and a wait is part of that."""
        return _WORK.get(self.kind, self.kind)

    @property
    def needed(self) -> tuple[int, ...]:
        """Numbers of all spans that kept this one from starting: those that it waits for, and the one that held what it needs."""
        return self.waits if self.held_by is None or self.held_by in self.waits else (*self.waits, self.held_by)

    @classmethod
    def of(cls, execution: Execution, start_ns: float, end_ns: float, held_by: int | None = None, latency_ns: float = 0.0) -> Span:
        """Return the span of an execution. `held_by` and its waits are numbers of executions, as spans are numbered."""
        action = execution.action
        kind = next((name for name, one in _KINDS.items() if isinstance(action, one)), "together")
        waits, path, turns = execution.waits, execution.path, execution.turns
        return cls(execution.step.name, kind, execution.queues, start_ns, end_ns, waits, held_by, path, turns, latency_ns)


_KINDS = {"launch": Launch, "copy": Copy, "call": HostCall, "put": Put, "wait": Wait}
_WORK = {"together": "launch", "put": "copy", "wait": "copy"}


@dataclass(frozen=True)
class Timeline:
    """The spans of all executions of a plan, in the plan's order, in ns from the start of the first."""

    spans: tuple[Span, ...]
    is_modelled: bool
    """True for a prediction, False for times measured on a device."""
    globaltimer_ns: int | None = field(default=None, compare=False)
    """What `%globaltimer` of all devices was at 0; None where that is not known, as on GPUs and in a prediction."""

    @property
    def elapsed_ns(self) -> float:
        """From the first start to the last end."""
        return max((span.end_ns for span in self.spans), default=0.0) - min((span.start_ns for span in self.spans), default=0.0)

    def critical_path(self) -> tuple[int, ...]:
        """Return the numbers of the spans that decide when the plan ends: the last to end, what it waited for longest, and so on back."""
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
