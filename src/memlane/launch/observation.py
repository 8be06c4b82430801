"""What a target that sees accesses by itself is asked for, and what it saw: layers, observations, and the rows that these hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, Events, ModelledTime
from memlane.errors import MemlaneError
from memlane.launch.reports import Report
from memlane.plan import View

L = TypeVar("L")
_P = ParamSpec("_P")

SPACE_NUMBERS = {"global": 0, "shared": 1, "local": 2, "const": 3, "param": 4, "generic": 5, "tex": 6, "shared::cluster": 7}
"""The numbers of state spaces in rows of accesses and in examples; `shared::cluster` is the shared memory of another block."""
SPACE_NAMES = {number: name for name, number in SPACE_NUMBERS.items()}

SITE_FIELDS = (
    "requests",
    "lanes",
    "sectors",
    "ideal_sectors",
    "wavefronts",
    "ideal_wavefronts",
    "addresses",
    "most_lanes_at_address",
)
"""What is counted of the accesses of one instruction, whoever counts: the emulator, or the kernel itself."""
COUNT_FIELDS = (*SITE_FIELDS, "bytes", "divergent")
"""`requests`: executions by a warp with at least one active lane whose guard is true. `lanes`: such lanes, summed. `bytes`: requested by
them. `sectors` and `ideal_sectors`: of accesses to global and local memory and of generic ones that lead there; `wavefronts` and
`ideal_wavefronts`: of shared ones that stay in the block. `addresses`: of atomics, the different addresses of each request, summed;
`most_lanes_at_address`: the most lanes that one request had at one address (a maximum, not a sum). `divergent`: of branches, executions
whose active lanes went two ways (for branches `requests` is executions, `lanes` active lanes)."""

ACCESS_DTYPE = np.dtype(
    [
        ("instruction", "u4"),
        ("block", "u4"),
        ("warp", "u2"),
        ("space", "u1"),
        ("mask", "u4"),
        ("issue", "i8"),
        ("complete", "i8"),
        ("sectors", "u2"),
        ("wavefronts", "u2"),
    ],
    align=True,
)
"""`issue` and `complete` in cycles of `%clock64` on the block's SM (0 without the clock layer): when the access left the warp and when
its value was there.
`space`: where it led, by `SPACE_NUMBERS`."""

EXAMPLE_DTYPE = np.dtype(
    [
        ("instruction", "u4"),
        ("worst", "u1"),
        ("space", "u1"),
        ("kind", "u1"),
        ("nbytes", "u1"),
        ("block", "u4"),
        ("warp", "u4"),
        ("mask", "u4"),
        ("transactions", "u4"),
        ("ideal", "u4"),
        ("seen", "u8"),
        ("row", "i8"),
        ("addresses", "u8", LANES),
    ],
    align=True,
)
"""One access with the addresses of its 32 lanes, byte addresses in `space` (as in `ACCESS_DTYPE`); those of inactive lanes mean nothing.
Of each instruction and space (global and local, or shared) two are kept: the first (`worst` 0), or the one that `Layers.example` asks for,
and that of the earliest warp of the grid among those with the most transactions (`worst` 1). `transactions` and `ideal`: sectors, or
wavefronts of shared memory, as they were counted. `kind`: index into `memlane.chip.ACCESS_KINDS`. `nbytes`: per lane. `row`: of
`Observation.accesses`, -1 where that was not kept. `seen`: accesses of the same sort so far."""


@dataclass(frozen=True)
class Seen(Generic[L]):
    """What a target saw of one launch with its own eyes, without a probe in the kernel. Only the emulator has such eyes.

    Instructions are named by their index in `kernel.inlined.body.instructions()`. Those of the functions that even this kernel calls
    (`ptx.called_functions`) follow, function by function; one whose text ends without a return has a `ret` more.
    """

    launch: L
    counts: dict[int, npt.NDArray[np.int64]]
    """By instruction: the fields of `COUNT_FIELDS`, summed over the launch. Memory instructions and branches that were executed."""
    accesses: npt.NDArray[Any] | None = None
    """One row per warp-level access in `ACCESS_DTYPE`, in the order of execution; None unless asked for."""
    accesses_not_kept: int = 0
    """How many more there were than the launch was to keep (`Layers.max_accesses`)."""
    cycles: int | None = None
    """Modelled duration of the launch, where the clock layer ran: that of `time`."""
    thread_instructions: int | None = None
    """PTX instructions executed by active lanes whose guard was true, where counts were taken; of a function that is inlined its calls and
    returns are none."""
    reports: tuple[Report, ...] | None = None
    """What the checker found; None unless asked for."""
    examples: npt.NDArray[Any] | None = None
    """Some of the accesses with the addresses of their lanes, in `EXAMPLE_DTYPE`; None unless accesses were asked for."""
    broke_off: bool = False
    """Whether the launch did not end: then only `reports` is known of it, and an error follows."""
    time: ModelledTime | None = None
    """What limited the modelled duration, and the floors under it; None without the clock layer."""
    events: Events | None = None
    """What the launch did by the clock layer, for models of its time; None without that layer."""
    grid: int = 0
    """The number of the run on its target (`%gridid`), from 1."""


@dataclass(frozen=True)
class ExampleOf:
    """Which accesses are to be kept as examples with their addresses."""

    block: int | None = None
    """Linear index of the block; None: any."""
    warp: int | None = None
    """Number in its block; None: any."""
    execution: int = 0
    """Of the accesses of these warps at an instruction, the number of the one that is kept besides the worst, from 0."""


@dataclass(frozen=True)
class DeclaredBuffer:
    """Where a buffer of a plan lies, and the views of it that a step says it reads and writes."""

    name: str
    address: int
    nbytes: int
    reads: tuple[View, ...]
    writes: tuple[View, ...]


@dataclass(frozen=True)
class Declared:
    """What a step of a plan says that its launch reads and writes, for the checker to compare."""

    step: str
    """What to call it in a message, as `step 3 (scale) in turn 1`."""
    buffers: tuple[DeclaredBuffer, ...]
    """All of the plan that lie on a device; of others nothing is said."""
    is_derived: bool
    """Whether it was derived from the kernel's PTX, and not given."""


@dataclass(frozen=True)
class BlockSample:
    """Some of the blocks of a launch, on some of the multiprocessors: of each wave of blocks (as many as there are multiprocessors) the
    first `sms`, in windows of `waves` waves that follow each other, `stride` blocks from window to window, `blocks` in all."""

    sms: int
    waves: int
    stride: int
    blocks: int


@dataclass(frozen=True)
class Made:
    """What an assembler made of one instruction: what each execution of it costs."""

    pipes: tuple[str, ...] = ()
    """Of each machine instruction the pipe that it takes, a field of `Throughput`; empty for one that takes an issue slot only."""
    cycles: int = 0
    """Until the next instruction of the warp may issue, by the control words."""
    is_late: bool = False
    """Whether it stands behind loads there that come later in the PTX. The warp goes on to these before it waits for its operands."""
    catches_up: int = 0
    """From here on the warp waits for what was late: 1; n: at each n-th execution, as at the end of n turns of a loop; 0: it does not."""
    is_combined: bool = False
    """Of an atomic operation: whether one lane does it for all of its warp."""
    skipped: tuple[int, int] = (0, 0)
    """Of a branch that is no jump there: the machine instructions that a warp passes although none of its lanes goes there, and how many of
    them access memory."""


@dataclass(frozen=True)
class MachineCode:
    """What an assembler made of the instructions of a kernel, by their index."""

    made: tuple[Made, ...]


@dataclass(frozen=True)
class Layers:
    """What an emulated launch should do besides computing. A real GPU refuses all but the default."""

    counts: bool = False
    """Count transactions per instruction."""
    clock: bool = False
    """Model time; on by itself for kernels that read a clock."""
    accesses: bool = False
    """Keep one row per access; implies counts."""
    max_accesses: int | None = None
    """Stop keeping rows when there are so many; None: keep all. Counts go on."""
    example: ExampleOf | None = None
    """With `accesses`: which ones to keep with their addresses; None: the first and the worst of all warps."""
    check: bool = False
    """Look for what no kernel may do: accesses out of bounds, data races, and the like."""
    stop: bool = False
    """Let the first thing that the checker finds end the launch, with CheckFailed."""
    seed: int | None = None
    """Let the warps of a block take their turns in a shuffled order, which this number chooses, instead of by their numbers. Launches with
    a clock go by time."""
    sample: BlockSample | None = None
    """With `clock`: run some of the blocks only, for the time that they take; None: all. What the others would compute is missing."""
    prediction: bool = False
    """With `clock`: take the time of what an assembler would make of the instructions, and add up where warps wait, and for what."""
    machine: MachineCode | None = None
    """With `prediction`: what the assembler made of the kernel; None: it is estimated."""
    registers: int | None = None
    """With `clock`: of a thread, for how many blocks are resident at once; None: not known."""
    side_by_side: frozenset[int] = frozenset()
    """With `prediction`: instructions whose accesses take the time of lanes that lie side by side, in a line among those that they touch:
    what the launch would take if they did. Values are those of the real addresses."""
    most_cycles: int | None = None
    """With `clock`: cycles from the beginning of the launch after which one that has not ended counts as endless; None: as many as it
    takes."""
    declared: Declared | None = None
    """With `check`: what the launch may read and write of the buffers of a plan; None: anything."""
    report: Callable[[Seen[Any]], None] | None = field(default=None, compare=False)
    """For observers, which do not start the launch themselves: who does gets the observation back. Called with the observation when the
    launch has finished; also when it broke off (`Observation.broke_off`) if the checker had found something until then."""
    failed: Callable[[int, MemlaneError], None] | None = field(default=None, compare=False)
    """Called with the grid's number (`%gridid`) and the error when the launch broke off, before the error is raised."""

    def merged(self, other: Layers) -> Layers:
        """What both ask for; both get the observation. Where they contradict each other, `other` decides."""
        limits = [one.max_accesses for one in (self, other) if one.accesses]
        return Layers(
            counts=self.counts or other.counts,
            clock=self.clock or other.clock,
            accesses=self.accesses or other.accesses,
            max_accesses=None if None in limits else max((limit for limit in limits if limit is not None), default=None),
            example=other.example or self.example,
            check=self.check or other.check,
            stop=other.stop if other.check else self.stop,
            seed=self.seed if other.seed is None else other.seed,
            sample=other.sample or self.sample,
            prediction=self.prediction or other.prediction,
            machine=other.machine or self.machine,
            registers=other.registers or self.registers,
            declared=other.declared or self.declared,
            report=_both(self.report, other.report),
            failed=_both(self.failed, other.failed),
        )


NO_LAYERS = Layers()
"""A launch that only computes."""


def _both(first: Callable[_P, None] | None, second: Callable[_P, None] | None) -> Callable[_P, None] | None:
    if first is None or second is None:
        return first or second

    def both(*args: _P.args, **named: _P.kwargs) -> None:
        first(*args, **named)
        second(*args, **named)

    return both
