"""Define the actions of plan steps: launches, copies, calls, concurrent launches on several devices, and puts and waits.

Puts and waits let devices signal each other without the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memlane.errors import BadPlan
from memlane.plan.buffers import Buffer, View

Dim3 = tuple[int, int, int]

_IMPORTABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class KernelRef:
    """Reference to a kernel: the digest of its module (see `launch.LoadedModule`) and its name there."""

    module: str
    name: str
    title: str = ""
    """Name for display; empty for the plain name."""

    def __str__(self) -> str:
        return self.title or self.name


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number that changes from turn to turn of a repeat: `start`, `start + per_turn`, ..."""

    start: int | float
    per_turn: int | float
    repeat: int = 0
    """Enclosing repeat whose turns are counted: 0 is the innermost, 1 the next outer one."""

    def __str__(self) -> str:
        return f"{self.start}+{self.per_turn}*turn"


Value = View | Scalar | int | float
"""An argument of a kernel or a host function."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One view that a step reads, writes, or both; neither if it is an argument without accesses."""

    view: View
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    Without `reads` and `writes` it may read and write all of every buffer among its arguments, restricted to those that the kernel is known
    to read and to write.
    """

    kernel: KernelRef
    grid: Dim3
    block: Dim3
    arguments: tuple[Value, ...] = ()
    shared_bytes: int = 0
    cluster: Dim3 | None = None
    reads: tuple[View, ...] | None = None
    writes: tuple[View, ...] | None = None
    reads_through: tuple[int, ...] | None = None
    """Positions of the view arguments through which the kernel may read, according to its PTX; None if not analysed."""
    writes_through: tuple[int, ...] | None = None
    raises: tuple[View, ...] = ()
    """Flags that the kernel raises, as a put does, once all its blocks are done. After the arguments it gets two words of memory, in which
    it counts its blocks and its executions, and the flags."""

    def __post_init__(self) -> None:
        _check_declared(str(self.kernel), self.reads, self.writes)
        _check_positions(str(self.kernel), self.arguments, self.reads_through, self.writes_through)

    def __str__(self) -> str:
        raised = f", raise {', '.join(str(flag.buffer) for flag in self.raises)}" if self.raises else ""
        return f"{self.kernel} grid {_extents(self.grid)} block {_extents(self.block)}{raised}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        if self.reads is not None or self.reads_through is None or self.writes_through is None:
            return _touches(self.arguments, self.reads, self.writes)
        found: dict[Buffer, Touch] = {}
        for position, value in enumerate(self.arguments):
            if isinstance(value, View):
                known = found.get(value.buffer)
                reads = position in self.reads_through or (known is not None and known.reads)
                writes = position in self.writes_through or (known is not None and known.writes)
                found[value.buffer] = Touch(value.buffer.view(), reads, writes)
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the elements of one view to another of the same shape and type, wherever either lives."""

    destination: View
    source: View

    def __post_init__(self) -> None:
        to, of = self.destination, self.source
        if to.shape != of.shape or to.itemsize != of.itemsize:
            raise BadPlan(f"a copy needs two views of the same shape and element size, not {of} and {to}")
        if to.overlaps(of):
            raise BadPlan(f"a copy cannot read what it writes: {of} and {to} overlap")

    def __str__(self) -> str:
        return f"copy {self.destination.nbytes:,} B {self.source.buffer} -> {self.destination.buffer}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        return Touch(self.source, True, False), Touch(self.destination, False, True)


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call of an importable Python function, given as `package.module:function`; views are passed as NumPy arrays."""

    function: str
    arguments: tuple[Value, ...] = ()
    reads: tuple[View, ...] | None = None
    writes: tuple[View, ...] | None = None

    def __post_init__(self) -> None:
        if not _IMPORTABLE.fullmatch(self.function):
            raise BadPlan(f"name a host function as package.module:function, not {self.function!r}")
        _check_declared(self.function, self.reads, self.writes)
        for touch in self.touches:
            if not touch.view.buffer.is_on_host:
                raise BadPlan(
                    f"host function {self.function} cannot use {touch.view}, which is on device {touch.view.buffer.home}: copy it to a "
                    "buffer on the host first"
                )

    def __str__(self) -> str:
        return f"call {self.function}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        return _touches(self.arguments, self.reads, self.writes)


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """A call of an importable Python function with memory of a device, for example to pass it to other processes.

    Views on the device are passed as `DeviceArray`s. The function is called by the thread that runs the plan, once everything before it has
    ended, and may call CUDA, which host functions of CUDA graphs must not.
    """

    function: str
    arguments: tuple[Value, ...] = ()
    reads: tuple[View, ...] | None = None
    writes: tuple[View, ...] | None = None
    enqueues: bool = False
    """Whether the function only enqueues work on the stream whose handle is its first argument. It is then called when the graph of the
    plan is built, which captures this work. Emulated devices have no streams."""

    def __post_init__(self) -> None:
        if not _IMPORTABLE.fullmatch(self.function):
            raise BadPlan(f"name a function as package.module:function, not {self.function!r}")
        _check_declared(self.function, self.reads, self.writes)
        for value in self.arguments:
            if isinstance(value, View) and not value.is_contiguous:
                raise BadPlan(f"{self.function} cannot use {value}, whose elements are not contiguous: pack them into a buffer first")

    def __str__(self) -> str:
        return f"{'enqueue' if self.enqueues else 'call'} {self.function}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        return _touches(self.arguments, self.reads, self.writes)


@dataclass(frozen=True, slots=True)
class Together:
    """One launch on each of several devices, all resident at the same time, so that they may signal each other through memory.

    Accesses to each other's memory are not checked; for other steps they count as one step.
    """

    launches: tuple[tuple[int, Launch], ...]
    """Launches with the numbers of their devices."""

    def __post_init__(self) -> None:
        devices = [device for device, _ in self.launches]
        if len(set(devices)) != len(devices) or not devices:
            raise BadPlan(f"kernels that run together need one device each, got {devices}")

    def __str__(self) -> str:
        names = sorted({str(launch.kernel) for _, launch in self.launches})
        return f"{', '.join(names)} together on devices {', '.join(str(device) for device, _ in self.launches)}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        return tuple(touch for _, launch in self.launches for touch in launch.touches)


@dataclass(frozen=True, slots=True)
class Put:
    """Elements that a kernel of one device stores into memory of others, and flags that it raises there afterwards.

    A flag is memory created by `PlanBuilder.flag` on the device that waits for it (`Wait`). It counts how often it was raised, so it never
    has to be lowered. One step raises it, a put or a launch (`Launch.raises`), and one waits for it.
    """

    copies: tuple[Copy, ...]
    flags: tuple[View, ...]

    def __post_init__(self) -> None:
        if not self.flags:
            raise BadPlan("a put needs a flag that signals its completion; use copies if no step waits for it")

    def __str__(self) -> str:
        nbytes = sum(copy.source.nbytes for copy in self.copies)
        raised = f"raise {', '.join(str(flag.buffer) for flag in self.flags)}"
        if not self.copies:
            return raised
        return f"put {nbytes:,} B to {', '.join(dict.fromkeys(str(copy.destination.buffer) for copy in self.copies))}, {raised}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        """Views that the copies read and write. Flags are order rather than data: the waiting step lists what they order in its `after`."""
        return tuple(touch for copy in self.copies for touch in copy.touches)


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of one device until each flag in its memory has been raised as often as it was waited for.

    The step depends on the steps that raise the flags (`after`), the order that all targets keep. GPUs keep it by the flags alone: work
    after the wait sees everything done before the flags were raised, on whichever device.
    """

    flags: tuple[View, ...]

    def __post_init__(self) -> None:
        if not self.flags:
            raise BadPlan("a wait needs a flag to wait for")

    def __str__(self) -> str:
        return f"wait for {', '.join(str(flag.buffer) for flag in self.flags)}"

    @property
    def touches(self) -> tuple[Touch, ...]:
        return ()


Action = Launch | Copy | HostCall | DeviceCall | Together | Put | Wait


def raised_flags(action: Action) -> tuple[View, ...]:
    """Return the flags that an action raises."""
    return action.flags if isinstance(action, Put) else action.raises if isinstance(action, Launch) else ()


def signals(before: Action, action: Action) -> bool:
    """Return whether `action` waits for a flag that `before` raises."""
    return isinstance(action, Wait) and not set(raised_flags(before)).isdisjoint(action.flags)


def counts_turns(action: Action) -> bool:
    """Return whether an action has a number that changes from turn to turn of a repeat."""
    if isinstance(action, Together):
        return any(counts_turns(launch) for _, launch in action.launches)
    return isinstance(action, Launch | HostCall | DeviceCall) and any(isinstance(one, Scalar) for one in action.arguments)


def _check_declared(name: str, reads: tuple[View, ...] | None, writes: tuple[View, ...] | None) -> None:
    if (reads is None) != (writes is None):
        given, missing = ("reads", "writes") if writes is None else ("writes", "reads")
        raise BadPlan(f"{name} declares what it {given} but not what it {missing}: pass both, with an empty tuple for none")


def _check_positions(name: str, arguments: tuple[Value, ...], *through: tuple[int, ...] | None) -> None:
    if through.count(None) == 1:
        raise BadPlan(f"{name} declares through which arguments it reads or writes, but not both: pass both or neither")
    for position in [position for positions in through for position in positions or ()]:
        if not isinstance(position, int) or not 0 <= position < len(arguments) or not isinstance(arguments[position], View):
            raise BadPlan(f"{name} cannot access memory through argument {position!r}, which is not a view")


def _touches(arguments: tuple[Value, ...], reads: tuple[View, ...] | None, writes: tuple[View, ...] | None) -> tuple[Touch, ...]:
    if reads is None or writes is None:
        buffers: dict[Buffer, None] = {one.buffer: None for one in arguments if isinstance(one, View)}
        return tuple(Touch(buffer.view(), True, True) for buffer in buffers)
    return tuple(Touch(view, True, False) for view in reads) + tuple(Touch(view, False, True) for view in writes)


def _extents(extents: Dim3) -> str:
    axes = max((axis for axis in (1, 2) if extents[axis] > 1), default=0) + 1
    return "x".join(map(str, extents[:axes]))
