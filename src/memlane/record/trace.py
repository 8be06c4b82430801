"""A trace in memory: access rows and what is needed to read them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from memlane.record.example import AccessExample
from memlane.record.file import read, save
from memlane.record.schema import LaunchInfo
from memlane.record.site import Site, Skipped
from memlane.titles import kernel_label


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """The memory accesses of one or more launches, each from start to end.

    trace = ml.trace(kernel[grid, block], out, a, n)            # or ml.load("transpose.parquet")
    frame = trace.table.to_pandas()                             # one row for each access of a warp
    loads = frame[frame.completeness == "complete"]
    (loads.end - loads.start).groupby(loads.line).median()      # cycles
    trace.save("transpose.parquet")

    `table` (PyArrow) has a row for each access that a warp made: `launch`, `kernel`, `file`, `line`, `op`, `space`, `site`; `bytes` of each
    lane; `block` (linear), `sm`, `warp` (in its block), `active_mask`, `execution` (how many times this warp came here before); `start`
    and `end` in cycles of the SM's own clock, so that only differences on one SM mean something; `completeness`, what `end` stands for;
    `sectors` (32 bytes), `wavefronts` and `exposed` (cycles), null where unknown. `sites` describes the instructions, `launches` the
    launches. `modelled` tells whether the times are the emulator's. `lost` is how many records found no room.
    """

    table: pa.Table = field(repr=False)
    """Rows in `ACCESS_SCHEMA`."""
    sites: tuple[Site, ...]
    launches: tuple[LaunchInfo, ...]
    warps: npt.NDArray[Any] = field(repr=False)
    """Rows in `WARP_DTYPE`."""
    chip: str
    target: str
    modelled: bool
    """Whether times come from the emulator's clock layer."""
    sources: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Text of the source files by name, so that a report needs no other file."""
    windows: Mapping[str, float] = field(default_factory=dict)
    """Cycles that an empty window of the scheme measures on this target, by scheme, where known. Never subtracted from the rows."""
    skipped: tuple[Skipped, ...] = ()
    """Accesses of the launched kernels that are no sites, so that nothing here tells of them."""
    clock_mhz: float = 0.0
    """Nominal clock of the chip's SMs; 0 if unknown. `time_axis` finds the one that the launches ran at."""
    examples: tuple[AccessExample, ...] = field(default=(), repr=False)
    """Some of the accesses with the addresses of their lanes, where the target saw these: on the emulator."""
    version: str = ""
    """Of memlane, when it was recorded."""
    driver: str = ""
    """The version of the GPU's driver, as `580.159.04, CUDA 13.0`; empty where there was none, or it is not known."""
    failed: str = ""
    """Why the program broke off that was traced: what it would have launched then is missing. Empty for one that ended well."""

    def __repr__(self) -> str:
        return f"<Trace: {self}>"

    def __str__(self) -> str:
        """What it holds, in one line; `memlane.report.render_trace` gives the table."""
        kernels = ", ".join(dict.fromkeys(kernel_label(launch.kernel) for launch in self.launches)) or "no kernel"
        times = f"modelled for {self.chip}" if self.modelled else f"measured on {self.chip}"
        broken = sum(bool(launch.failed) for launch in self.launches)
        launches = f"launches: {len(self.launches)}{f', broken off: {broken}' if broken else ''}"
        why = f"; the program broke off: {self.failed}" if self.failed else ""
        return f"{kernels}; {launches}; records: {self.table.num_rows:,}, lost: {self.lost:,}; {times} ({self.target}){why}"

    @property
    def lost(self) -> int:
        """Records that found no room, over all launches."""
        return sum(launch.lost for launch in self.launches)

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the record file `path`. RecordError if it exists and not `force`, or if it cannot be written."""
        save(self, path, force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """The trace in the record file `path`. RecordError if it is missing, foreign, damaged or of a newer format."""
        return cls(**read(path))


def load(path: str | os.PathLike[str]) -> Trace:
    """The trace in the record file `path`, as `Trace.save` or `memlane trace` wrote it; the same as `Trace.load`.

    trace = ml.load("transpose.parquet")

    RecordError if it is missing, damaged, no record file, or of a newer format.
    """
    return Trace.load(path)
