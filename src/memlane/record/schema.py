"""What an access row, a warp row and a launch hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from memlane.chip import LANES, ModelledTime
from memlane.record.counts import BranchCounts, SiteCounts
from memlane.record.perturbation import Perturbation
from memlane.record.sample import Sample
from memlane.record.staging import Staging

_NAME = pa.dictionary(pa.int32(), pa.string())

ACCESS_SCHEMA = pa.schema(
    [
        pa.field("launch", pa.uint32(), nullable=False),
        pa.field("kernel", _NAME, nullable=False),
        pa.field("file", _NAME, nullable=False),
        pa.field("line", pa.uint32(), nullable=False),
        pa.field("op", _NAME, nullable=False),
        pa.field("space", _NAME, nullable=False),
        pa.field("site", pa.uint32(), nullable=False),
        pa.field("bytes", pa.uint16(), nullable=False),
        pa.field("block", pa.uint32(), nullable=False),
        pa.field("sm", pa.uint16(), nullable=False),
        pa.field("warp", pa.uint16(), nullable=False),
        pa.field("active_mask", pa.uint32(), nullable=False),
        pa.field("execution", pa.uint32(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("completeness", _NAME, nullable=False),
        pa.field("sectors", pa.uint16(), nullable=True),
        pa.field("wavefronts", pa.uint16(), nullable=True),
        pa.field("exposed", pa.uint32(), nullable=True),
        pa.field("device", _NAME, nullable=False),
    ]
)
"""One row per warp-level access. `launch`: index into `Trace.launches`. `bytes`: per lane. `block`: linear index in the grid (x fastest).
`warp`: in its block. `execution`: n-th access of this warp at this site in this launch, from 0. `start`, `end`: cycles of the SM's clock,
which on a GPU has another origin on each SM. `sectors`, `wavefronts`: of this very access; null where unknown or without meaning.
`exposed`: of the cycles from start to end those that the first consumer of the value waited; 0 where nothing consumed it, null where that
was not recorded. Where it is no more than an empty window, the value had come before its consumer, and the end is that of its use.
`device`: the name of the target on which the launch ran."""

LATER_COLUMNS = {2: ("exposed",), 3: ("device",)}
"""Columns that came with a format of the record file. In files of an older one `exposed` is null throughout; there was one device."""

WARP_DTYPE = np.dtype(
    [
        ("launch", "u4"),
        ("block", "u4"),
        ("warp", "u2"),
        ("sm", "u2"),
        ("begin_cycles", "i8"),
        ("end_cycles", "i8"),
        ("begin_ns", "i8"),
        ("end_ns", "i8"),
        ("kept", "u4"),
        ("lost", "u4"),
    ]
)
"""One row per traced warp: its life in cycles of its SM's clock and in ns of the global timer, and how many records it kept and lost."""


@dataclass(frozen=True)
class ArrayArgument:
    """An array among the arguments of a launch."""

    parameter: int
    """The position of the kernel's parameter that holds its address."""
    nbytes: int
    dtype: str = ""
    """The type of its elements as NumPy writes it, for example `f4`; empty where it is not known."""
    shape: tuple[int, ...] = ()
    """Its extents in elements; none where they are not known."""


@dataclass(frozen=True)
class PredictedPart:
    """How long one part of the chip is busy with a launch, by itself."""

    name: str
    us: float
    moved: str = ""
    """How much it does, in words."""


@dataclass(frozen=True)
class Change:
    """What a launch would take if the lanes of some of its accesses lay side by side."""

    instructions: tuple[int, ...]
    """Of these accesses, as `Site.instruction`."""
    us: float


@dataclass(frozen=True)
class PredictedTime:
    """How long a launch would take on its chip without probes, as the model of kernels predicts it, and what would change that."""

    us: float
    """Between two events around the launch, with warm caches."""
    launch_us: float
    """Of these, what the events and the start of the launch take."""
    limiting: str
    """The part of the chip that limits, or `latency`."""
    parts: tuple[PredictedPart, ...] = ()
    """The longest first."""
    share: float = 1.0
    """Of the blocks that ran for this."""
    spread_us: float = 0.0
    """Standard deviation between parts of that sample."""
    missing: tuple[str, ...] = ()
    """Rates that the file of the chip lacks."""
    changes: tuple[Change, ...] = ()
    """For accesses that cost more than they need, those that cost most in excess."""


@dataclass(frozen=True)
class LaunchInfo:
    """One traced launch."""

    id: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    arguments: tuple[str, ...]
    scheme: str
    lost: int = 0
    """Records that found no room, counted exactly."""
    branches: tuple[BranchCounts, ...] = ()
    """Conditional branches of the kernel where they were counted with the trace."""
    accesses_not_kept: int = 0
    """Accesses, those of the probes among them, that the target saw and had no room for: the transactions of some records are unknown."""
    counts: tuple[SiteCounts, ...] = ()
    """Transactions by site where they were counted with the trace."""
    perturbation: Perturbation | None = None
    """What the probes changed; None in files of a memlane that did not look."""
    failed: str = ""
    """Why the launch broke off; its records are those that were made until then. Empty for one that ended."""
    sample: Sample | None = None
    """Which part of the launch was traced; None for all of it. `counts` and `branches` are of the whole launch even so."""
    staging: Staging | None = None
    """Where its records went first; None in files of a memlane that knew one place only."""
    resident_blocks: int | None = None
    """Blocks of the kernel without probes that one multiprocessor holds at once; None where nobody asked."""
    cluster: tuple[int, int, int] | None = None
    """Blocks of a cluster; None for a launch without."""
    time: ModelledTime | None = None
    """How long the launch took with its probes by the emulator's clock, and what limited that; None for one on a GPU."""
    predicted: PredictedTime | None = None
    """What the model of kernels predicts for it; None if no prediction was asked for, and on a GPU."""
    device: str = ""
    """The name of the target that it ran on; empty in files of a memlane that knew one target for each file."""
    path: tuple[int, ...] = ()
    """Of a launch of a plan: the positions of its step, in the plan and in each repeat around it."""
    turns: tuple[int, ...] = ()
    """The turn of each repeat around the step, the outermost first."""
    arrays: tuple[ArrayArgument, ...] = ()
    """The arrays among the arguments; none in files of a memlane that did not record them."""
    language: str = ""
    """What the kernel was written in: `Numba` or `Triton`; empty for CUDA C++ and PTX."""

    @property
    def warps_per_block(self) -> int:
        return -(-math.prod(self.block) // LANES)


@dataclass(frozen=True)
class CopyInfo:
    """One copy of a traced plan."""

    path: tuple[int, ...]
    """Positions of its step: in the plan, and in each repeat around it."""
    turns: tuple[int, ...]
    """The turn of each repeat around it, the outermost first."""
    device: str
    """Who did it: the name of a target, or `host`."""
    nbytes: int
    source: str
    """Whose memory it read: the name of a target, or `host`."""
    destination: str
