"""Launches and copies as data, alone and in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memlane.chip import LANES, ModelledTime
from memlane.errors import BadLaunch
from memlane.launch.observation import NO_LAYERS, Layers

if TYPE_CHECKING:
    from memlane.launch.kernel import Kernel

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Stream:
    """A queue of work of one target: its launches run one after another, those of two streams may overlap."""

    number: int
    """0 is the target's default stream."""
    handle: object = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument, ready to be handed over: its bytes in the layout of the parameter."""

    data: bytes
    text: str
    """For messages and records, for example `f4[1024, 1024]` or `1024`."""
    owner: object = field(default=None, repr=False, compare=False)
    memory: tuple[int, int] | None = None
    """For an array: its device address and its size in bytes, so that an observer can save and restore it."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch as data. `kernel[grid, block].bind(...)` builds it, observers rewrite it, a target executes it."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    """Dynamic shared memory per block."""
    stream: Stream = Stream(0)
    layers: Layers = NO_LAYERS
    cluster: Dim3 | None = None
    """Blocks of a cluster, as the launch asks for them; None leaves it to the kernel (`cluster_of`)."""

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps_per_block(self) -> int:
        return -(-self.threads_per_block // LANES)


@dataclass(frozen=True)
class Copy:
    """`nbytes` from one device address to another of the same target."""

    destination: int
    source: int
    nbytes: int


@dataclass(frozen=True)
class Step:
    """One action of a schedule. It starts after the steps before it on the same `lane`, and after the steps numbered in `after`."""

    action: Launch | Copy
    lane: int = 0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """Launches and copies with their order, as data: it can be printed, emulated, captured in a CUDA graph, or run.

    schedule = ml.Schedule((ml.Step(launch), ml.Step(ml.Copy(b.address, a.address, a.nbytes), lane=1, after=(0,))))
    timeline = target.run(schedule)             # start_ns and end_ns of each step
    target.graph(schedule).replay()             # prepared once, to be started many times
    """

    steps: tuple[Step, ...]

    def dependencies(self) -> list[list[int]]:
        """Return for each step the numbers of the steps that it waits for: those in `after`, and the one before it on its lane.

        Raises BadLaunch for a step that waits for itself, a later one, or one that does not exist.
        """
        last: dict[int, int] = {}
        waits: list[list[int]] = []
        for number, step in enumerate(self.steps):
            for other in step.after:
                if not 0 <= other < number:
                    raise BadLaunch(f"step {number} of the schedule waits for step {other}, which is not before it")
            waits.append(sorted({*step.after, *([last[step.lane]] if step.lane in last else [])}))
            last[step.lane] = number
        return waits

    def __str__(self) -> str:
        return "\n".join(_describe(number, step) for number, step in enumerate(self.steps))


def _describe(number: int, step: Step) -> str:
    action = step.action
    what = f"copy {action.nbytes} bytes" if isinstance(action, Copy) else f"{action.kernel.title} grid {action.grid} block {action.block}"
    after = f" after {', '.join(map(str, step.after))}" if step.after else ""
    return f"{number}: lane {step.lane}: {what}{after}"


@dataclass(frozen=True)
class Timeline:
    """When each step of a schedule ran: `start_ns[i]` and `end_ns[i]` belong to `schedule.steps[i]`, from the start of the first."""

    schedule: Schedule
    start_ns: tuple[float, ...]
    end_ns: tuple[float, ...]
    modelled: bool
    """True for the emulator's clock layer, False for time measured on a device."""
    times: tuple[ModelledTime | None, ...] = ()
    """Where they are modelled, what ruled the time of each step; None of a copy."""

    @property
    def elapsed_ns(self) -> float:
        return max(self.end_ns, default=0.0) - min(self.start_ns, default=0.0)
