"""Define access rows, warp rows and the description of a launch."""

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
which on a GPU has another origin on each SM. `sectors`, `wavefronts`: of this access; null where unknown or without meaning. `exposed`:
those of the cycles from start to end that the first consumer of the value waited; 0 if nothing consumed it, null if not recorded. If it is
no more than an empty window, the value had arrived before its consumer, and the end is the time of its use. `device`: name of the target on
which the launch ran."""

LATER_COLUMNS = {2: ("exposed",), 3: ("device",)}
"""Columns added by a format of the record file. In older files `exposed` is null, and there was one device."""

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
"""One row per traced warp: its lifetime in cycles of its SM's clock and in ns of the global timer, and the numbers of kept and lost
records."""

BARRIER_DTYPE = np.dtype([("launch", "u4"), ("block", "u4"), ("warp", "u2"), ("arrived", "i8"), ("opened", "i8")])
"""One row per warp and barrier of its block that it waited at: when it arrived and when the barrier opened, in cycles of its SM's clock."""


@dataclass(frozen=True)
class ArrayArgument:
    """Array among the arguments of a launch."""

    parameter: int
    """Position of the kernel's parameter that holds its address."""
    nbytes: int
    dtype: str = ""
    """Type of its elements in NumPy's notation, such as `f4`; empty if unknown."""
    shape: tuple[int, ...] = ()
    """Extents in elements; empty if unknown."""


@dataclass(frozen=True)
class PredictedPart:
    """How long one part of the chip is busy with a launch, by itself."""

    name: str
    us: float
    moved: str = ""
    """Amount of its work, in words."""


@dataclass(frozen=True)
class Change:
    """Predicted time of a launch if the lanes of some of its accesses were adjacent in memory."""

    instructions: tuple[int, ...]
    """Instructions of the access that the change is about, as `Site.instruction`."""
    us: float


@dataclass(frozen=True)
class PredictedTime:
    """Predicted duration of a launch on its chip without probes, by the timing model, and what would change it."""

    us: float
    """Microseconds between two events around the launch, with warm caches."""
    launch_us: float
    """Part of these for the events and the start of the launch."""
    limiting: str
    """Part of the chip that limits, or `latency`."""
    parts: tuple[PredictedPart, ...] = ()
    """Parts of the chip, the longest busy time first."""
    share: float = 1.0
    """Share of the blocks that ran for the prediction."""
    spread_us: float = 0.0
    """Standard deviation between parts of that sample."""
    missing: tuple[str, ...] = ()
    """Rates that the chip file lacks."""
    changes: tuple[Change, ...] = ()
    """Predictions without the excess transactions of accesses, for the largest excesses."""


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
    """Number of dropped records; exact."""
    branches: tuple[BranchCounts, ...] = ()
    """Conditional branches of the kernel if they were counted with the trace."""
    accesses_not_kept: int = 0
    """Observed accesses, those of probes included, that exceeded the capacity: the transactions of some records are unknown."""
    counts: tuple[SiteCounts, ...] = ()
    """Transactions by site if they were counted with the trace."""
    perturbation: Perturbation | None = None
    """Changes by the probes; None in files of versions that did not measure them."""
    failed: str = ""
    """Reason why the launch broke off; its records are those until then. Empty if it succeeded."""
    sample: Sample | None = None
    """Which part of the launch was traced; None for all of it. `counts` and `branches` always cover the whole launch."""
    staging: Staging | None = None
    """Where its records went first; None in files of versions without staging."""
    resident_blocks: int | None = None
    """Blocks of the kernel without probes that fit on one multiprocessor; None if not requested."""
    cluster: tuple[int, int, int] | None = None
    """Blocks per cluster; None for a launch without clusters."""
    time: ModelledTime | None = None
    """Duration of the launch with its probes by the emulator's clock, and what limited it; None on a GPU."""
    predicted: PredictedTime | None = None
    """Prediction by the timing model; None if not requested, and on a GPU."""
    device: str = ""
    """Name of the target that it ran on; empty in files of versions with one target per file."""
    has_barriers: bool = False
    """Whether the trace holds the waits of its warps at barriers of their blocks; false on a GPU."""
    path: tuple[int, ...] = ()
    """Positions of its step in a plan, and in each enclosing repeat; empty outside a plan."""
    turns: tuple[int, ...] = ()
    """Turn of each enclosing repeat, the outermost first."""
    arrays: tuple[ArrayArgument, ...] = ()
    """Arrays among the arguments; empty in files of versions that did not record them."""
    language: str = ""
    """Language of the kernel: `Numba` or `Triton`; empty for CUDA C++ and PTX."""

    @property
    def warps_per_block(self) -> int:
        return -(-math.prod(self.block) // LANES)


@dataclass(frozen=True)
class CopyInfo:
    """One copy of a traced plan."""

    path: tuple[int, ...]
    """Positions of its step: in the plan, and in each enclosing repeat."""
    turns: tuple[int, ...]
    """Turn of each enclosing repeat, the outermost first."""
    device: str
    """Name of the target that executed it, or `host`."""
    nbytes: int
    source: str
    """Memory that it read: the name of a target, or `host`."""
    destination: str
