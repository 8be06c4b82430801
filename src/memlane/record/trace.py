"""Represent a trace in memory: access rows and the tables that describe them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from memlane.record.contents import TraceContents
from memlane.record.file import read, save
from memlane.titles import kernel_label


@dataclass(frozen=True, eq=False, repr=False)
class Trace(TraceContents):
    """The memory accesses of one or more launches, each from start to end.

    trace = ml.trace(kernel[grid, block], out, a, n)            # or ml.load("transpose.parquet")
    frame = trace.table.to_pandas()                             # one row for each access of a warp
    loads = frame[frame.completeness == "complete"]
    (loads.end - loads.start).groupby(loads.line).median()      # cycles
    trace.save("transpose.parquet")

    `table` (PyArrow) has a row for each access of a warp: `launch`, `kernel`, `file`, `line`, `op`, `space`, `site`; `bytes` per lane;
    `block` (linear), `sm`, `warp` (in its block), `active_mask`, `execution` (number of earlier executions by this warp); `start` and `end`
    in cycles of the SM's own clock, so that only differences on one SM are meaningful; `completeness`, the meaning of `end`; `sectors` (32
    bytes), `wavefronts` and `exposed` (cycles), null where unknown. `sites` describes the instructions, `launches` the launches; `device`,
    the target of the launch, is a column too. `modelled` is true for times of the emulator. `lost` is the number of dropped records.
    """

    def __repr__(self) -> str:
        return f"<Trace: {self}>"

    def __str__(self) -> str:
        """Return a summary in one line; `memlane.report.render_trace` returns the table."""
        kernels = ", ".join(dict.fromkeys(kernel_label(launch.kernel) for launch in self.launches)) or "no kernel"
        times = f"modelled for {self.chip}" if self.modelled else f"measured on {self.chip}"
        broken = sum(bool(launch.failed) for launch in self.launches)
        launches = f"launches: {len(self.launches)}{f', failed: {broken}' if broken else ''}"
        why = f"; the program failed: {self.failed}" if self.failed else ""
        devices = ", ".join(self.devices) if len(self.devices) > 1 else self.target
        return f"{kernels}; {launches}; records: {self.table.num_rows:,}, lost: {self.lost:,}; {times} ({devices}){why}"

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the record file `path`. Raises RecordError if it exists without `force`, or if it cannot be written."""
        save(self, path, force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Return the trace in the record file `path`. Raises RecordError if it is missing, foreign, damaged or of a newer format."""
        return cls(**read(path))


def load(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in the record file `path`, as `Trace.save` or `memlane trace` wrote it.

    trace = ml.load("transpose.parquet")

    Raises RecordError if it is missing, damaged, not a record file, or of a newer format.
    """
    return Trace.load(path)
