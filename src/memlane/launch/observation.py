"""Define what an emulated launch can be asked to observe (layers), and the observations that it returns."""

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
"""Numbers of state spaces in rows of accesses and in examples; `shared::cluster` is the shared memory of another block."""
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
"""Counts of the accesses of one instruction, whether by the emulator or by the kernel itself."""
COUNT_FIELDS = (*SITE_FIELDS, "bytes", "divergent")
"""Fields of the counts of an instruction. `requests`: executions by a warp with at least one active lane whose guard is true. `lanes`:
these lanes, summed. `bytes`: bytes that they request. `sectors`, `ideal_sectors`: for accesses to global and local memory and generic ones
that lead there. `wavefronts`, `ideal_wavefronts`: for shared ones that stay in the block. `addresses`: for atomics, the distinct addresses
of each request, summed. `most_lanes_at_address`: maximum number of lanes of one request at one address (a maximum, not a sum). `divergent`:
for branches, executions in which the active lanes diverged (for branches `requests` is executions, `lanes` active lanes)."""

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
"""One row per warp-level access. `issue`, `complete`: when the access left the warp and when its value arrived, in cycles of `%clock64` on
the block's SM (0 without the clock layer). `space`: state space that it led to, by `SPACE_NUMBERS`."""

WAIT_DTYPE = np.dtype([("block", "u4"), ("warp", "u2"), ("arrived", "i8"), ("opened", "i8")], align=True)
"""One row per warp and barrier of its block that it waited at: when it arrived and when the barrier let it continue, in cycles as in
`ACCESS_DTYPE`."""

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
"""One access with the addresses of its 32 lanes, byte addresses in `space` (as in `ACCESS_DTYPE`); those of inactive lanes are undefined.
Two are kept per instruction and space (global and local, or shared): the first (`worst` 0), or the one that `Layers.example` selects, and
that of the earliest warp of the grid among those with the most transactions (`worst` 1). `transactions`, `ideal`: sectors, or wavefronts of
shared memory, as counted. `kind`: index into `memlane.chip.ACCESS_KINDS`. `nbytes`: per lane. `row`: index into `Observation.accesses`, -1
if that was not kept. `seen`: accesses of the same instruction and space so far."""


@dataclass(frozen=True)
class LaunchObservation(Generic[L]):
    """Observation of one launch without probes in the kernel. Only the emulator provides it.

    Instructions are identified by their index in `kernel.inlined.body.instructions()`. Instructions of functions that even this kernel
    calls (`ptx.called_functions`) follow, function by function; a function whose text ends without a return has an additional `ret`.
    """

    launch: L
    counts: dict[int, npt.NDArray[np.int64]]
    """Fields of `COUNT_FIELDS` by instruction, summed over the launch, for memory instructions and branches that were executed."""
    accesses: npt.NDArray[Any] | None = None
    """One row per warp-level access in `ACCESS_DTYPE`, in the order of execution; None unless requested."""
    accesses_not_kept: int = 0
    """Number of further accesses above `Layers.max_accesses`."""
    cycles: int | None = None
    """Modelled duration of the launch in cycles, as in `time`; None without the clock layer."""
    thread_instructions: int | None = None
    """PTX instructions executed by active lanes whose guard was true, if counts were requested; calls and returns of inlined functions do
    not count."""
    reports: tuple[Report, ...] | None = None
    """Findings of the checker; None unless requested."""
    waits: npt.NDArray[Any] | None = None
    """Waits of warps at barriers of their blocks in `WAIT_DTYPE`, in the order in which the barriers opened; None unless accesses were
    requested with the clock layer, or if there were more than `Layers.max_accesses`."""
    examples: npt.NDArray[Any] | None = None
    """Some of the accesses with the addresses of their lanes, in `EXAMPLE_DTYPE`; None unless accesses were requested."""
    broke_off: bool = False
    """Whether the launch failed: then only `reports` is known, and an error follows."""
    time: ModelledTime | None = None
    """Limits of the modelled duration, and its lower bounds; None without the clock layer."""
    events: Events | None = None
    """Events of the clock layer, for models of the launch's time; None without that layer."""
    grid: int = 0
    """Number of the run on its target (`%gridid`), from 1."""


@dataclass(frozen=True)
class ExampleOf:
    """Which accesses to keep as examples with their addresses."""

    block: int | None = None
    """Linear index of the block; None: any."""
    warp: int | None = None
    """Index in its block; None: any."""
    execution: int = 0
    """Index of the access to keep, besides the worst, among the accesses of these warps at an instruction, from 0."""


@dataclass(frozen=True)
class DeclaredBuffer:
    """Address of a buffer of a plan, and the views of it that a step declares to read and write."""

    name: str
    address: int
    nbytes: int
    reads: tuple[View, ...]
    writes: tuple[View, ...]


@dataclass(frozen=True)
class Declared:
    """Declared reads and writes of a step of a plan, against which the checker compares its launch."""

    step: str
    """Name for messages, such as `step 3 (scale) in turn 1`."""
    buffers: tuple[DeclaredBuffer, ...]
    """All buffers of the plan that are on a device; the others are not checked."""
    is_derived: bool
    """Whether the declaration was derived from the kernel's PTX, rather than given."""


@dataclass(frozen=True)
class BlockSample:
    """Sample of the blocks of a launch, on some of the multiprocessors.

    Of each wave of blocks (one per multiprocessor) the first `sms` run, in windows of `waves` consecutive waves, `stride` blocks from
    window to window, `blocks` in all.
    """

    sms: int
    waves: int
    stride: int
    blocks: int


@dataclass(frozen=True)
class Made:
    """Machine code of one PTX instruction: the cost of each execution."""

    pipes: tuple[str, ...] = ()
    """Pipe of each machine instruction, a field of `Throughput`; empty for an instruction that takes only an issue slot."""
    cycles: int = 0
    """Cycles until the next instruction of the warp may issue, by the control words."""
    is_late: bool = False
    """Whether the machine code places it after loads that come later in the PTX. The warp issues these before it waits for its operands."""
    catches_up: int = 0
    """Period at which the warp waits here for late instructions: 1: each execution; n: each n-th execution, as at the end of n iterations
    of a loop; 0: never."""
    is_combined: bool = False
    """For an atomic operation: whether one lane executes it for its whole warp."""
    skipped: tuple[int, int] = (0, 0)
    """For a branch that is not a jump in the machine code: the machine instructions that a warp issues although none of its lanes takes
    that path, and how many of them access memory."""


@dataclass(frozen=True)
class MachineCode:
    """Machine code of the instructions of a kernel, by their index."""

    made: tuple[Made, ...]


@dataclass(frozen=True)
class Layers:
    """Additional work of an emulated launch. A GPU rejects all but the default."""

    counts: bool = False
    """Count transactions per instruction."""
    clock: bool = False
    """Model time; always on for kernels that read a clock."""
    accesses: bool = False
    """Keep one row per access; implies counts."""
    max_accesses: int | None = None
    """Maximum number of rows to keep; None: all. Counts include all accesses."""
    example: ExampleOf | None = None
    """With `accesses`: which ones to keep with their addresses; None: the first and the worst of all warps."""
    check: bool = False
    """Check for invalid behaviour: accesses out of bounds, data races, and the like."""
    stop: bool = False
    """End the launch at the first finding of the checker, with CheckFailed."""
    seed: int | None = None
    """Seed of a shuffled order in which the warps of a block are scheduled, instead of by their numbers. Launches with a clock are ordered
    by time."""
    sample: BlockSample | None = None
    """With `clock`: run only these blocks, for their time; None: all. The results of the others are missing."""
    prediction: bool = False
    """With `clock`: model the time of the machine code that ptxas makes of the instructions, and sum up where warps wait, and for what."""
    machine: MachineCode | None = None
    """With `prediction`: machine code of the kernel; None: it is estimated."""
    registers: int | None = None
    """With `clock`: registers per thread, which limit the resident blocks; None: unknown."""
    side_by_side: frozenset[int] = frozenset()
    """With `prediction`: instructions whose accesses take the time of adjacent lanes, within a line that they touch: the predicted time if
    they were adjacent. Values are those of the real addresses."""
    most_cycles: int | None = None
    """With `clock`: cycles after which a launch that is still running counts as endless; None: no limit."""
    declared: Declared | None = None
    """With `check`: what the launch may read and write of the buffers of a plan; None: anything."""
    report: Callable[[LaunchObservation[Any]], None] | None = field(default=None, compare=False)
    """Callback for observers that do not start the launch themselves; the caller of the launch gets the observation as its result. Called
    with the observation when the launch has finished; if it broke off (`Observation.broke_off`), only if the checker had found
    something."""
    failed: Callable[[int, MemlaneError], None] | None = field(default=None, compare=False)
    """Callback with the grid's number (`%gridid`) and the error when the launch broke off, before the error is raised."""

    def merged(self, other: Layers) -> Layers:
        """Return the union of both requests; both get the observation. `other` wins where they conflict."""
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
"""Layers of a launch that only computes."""


def _both(first: Callable[_P, None] | None, second: Callable[_P, None] | None) -> Callable[_P, None] | None:
    if first is None or second is None:
        return first or second

    def both(*args: _P.args, **named: _P.kwargs) -> None:
        first(*args, **named)
        second(*args, **named)

    return both
