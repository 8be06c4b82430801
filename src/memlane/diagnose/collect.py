"""Collect the evidence for each kernel of a trace, and merge evidence of several launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.diagnose.evidence import Evidence, Rows
from memlane.errors import RecordError
from memlane.record import COMPLETE, LaunchInfo, Trace


def of_trace(trace: Trace, name: str = "the trace") -> list[Evidence]:
    """Return the evidence of each kernel. Raises RecordError if records disagree with their sites."""
    check(trace, name)
    kernels = dict.fromkeys(launch.kernel for launch in trace.launches)
    table = _columns(trace)
    return [_of_kernel(trace, kernel, table) for kernel in kernels]


def check(trace: Trace, name: str) -> None:
    """Raise RecordError if rows name other lines than their sites, or launches of other kernels than their sites'."""
    site, launch = trace.table["site"].to_numpy(), trace.table["launch"].to_numpy()
    if not len(site):
        return
    for column, numbers, known in (("site", site, len(trace.sites)), ("launch", launch, len(trace.launches))):
        if int(numbers.max()) >= known:
            raise RecordError(f"{name} is inconsistent: a row names {column} {numbers.max()}, but there are {known}; record it again")
    lines = np.array([one.line for one in trace.sites], np.int64)[site]
    kernels = dict.fromkeys([*(one.kernel for one in trace.launches), *(one.kernel for one in trace.sites)])
    order = {kernel: number for number, kernel in enumerate(kernels)}
    of_launch = np.array([order[one.kernel] for one in trace.launches], np.int64)
    of_site = np.array([order[one.kernel] for one in trace.sites], np.int64)
    wrong = np.flatnonzero((lines != trace.table["line"].to_numpy()) | (of_launch[launch] != of_site[site]))
    if len(wrong):
        row = int(wrong[0])
        said = trace.sites[int(site[row])]
        raise RecordError(
            f"{name} is inconsistent: row {row} is at line {trace.table['line'][row].as_py()} of "
            f"{trace.launches[int(launch[row])].kernel}, but its site {said.id} is at line {said.line} of {said.kernel}; record it "
            "again"
        )


def _columns(trace: Trace) -> dict[str, npt.NDArray[Any]]:
    table = trace.table
    found = {name: table[name].to_numpy() for name in ("site", "launch", "block", "warp", "sm", "active_mask", "execution", "start", "end")}
    found["sm"] = trace.sms_apart(found["launch"], found["sm"])
    # The time until an access is issued has no window: it is that of the first of the probe's clock reads.
    windows = np.array([trace.windows.get(one.scheme, 0.0) if one.completeness == COMPLETE else 0.0 for one in trace.sites] or [0.0])
    site = found["site"].astype(np.int64)
    cycles = (found["end"] - found["start"]).astype(np.float64)
    found["cycles"] = np.maximum(cycles - (windows[site] if len(site) else 0.0), 0.0)
    found["complete"] = np.array([one.completeness == COMPLETE for one in trace.sites] or [False])[site]
    weights = np.array([1.0 if launch.sample is None else launch.sample.weight for launch in trace.launches] or [1.0])
    found["weight"] = weights[found["launch"]]
    found["lanes"] = np.bitwise_count(found["active_mask"].astype(np.uint32)).astype(np.int64)
    found["kernel"] = np.array(_kernel_numbers(trace), np.int64)[found["launch"]]
    return found


def _kernel_numbers(trace: Trace) -> list[int]:
    """Return for each launch the index of its kernel among those of the trace."""
    order = {kernel: number for number, kernel in enumerate(dict.fromkeys(launch.kernel for launch in trace.launches))}
    return [order[launch.kernel] for launch in trace.launches] or [0]


def _of_kernel(trace: Trace, kernel: str, columns: Mapping[str, npt.NDArray[Any]]) -> Evidence:
    launches = tuple(launch for launch in trace.launches if launch.kernel == kernel)
    number = _kernel_numbers(trace)[launches[0].id]
    mine = columns["kernel"] == number
    names = ("site", "launch", "block", "warp", "sm", "lanes", "execution", "end")
    whole = {name: columns[name][mine].astype(np.int64) for name in names}
    rows = Rows(**whole, cycles=columns["cycles"][mine], weight=columns["weight"][mine], complete=columns["complete"][mine])
    lives = trace.warps[np.isin(trace.warps["launch"], [launch.id for launch in launches])]
    lives["sm"] = trace.sms_apart(lives["launch"], lives["sm"])
    return Evidence(
        kernel=kernel,
        chip_name=trace.chip,
        how="emulated" if trace.modelled else "counted on the device",
        entries=tuple(entry for launch in launches for entry in launch.counts),
        branches=tuple(branch for launch in launches for branch in launch.branches),
        launches=launches,
        rows=rows,
        lives=lives,
        barriers=_barriers(trace, launches),
        sites=trace.sites,
        sources=trace.sources,
        modelled=trace.modelled,
        clock_mhz=trace.clock_mhz,
        examples=tuple(one for one in trace.examples if trace.sites[one.site].kernel == kernel),
    )


def _barriers(trace: Trace, launches: Sequence[LaunchInfo]) -> npt.NDArray[Any] | None:
    """Return the waits at barriers of these launches; None if those of some warps are unknown."""
    if not all(one.has_barriers and one.sample is None and not one.failed for one in launches):
        return None
    return trace.barriers[np.isin(trace.barriers["launch"], [one.id for one in launches])]


def merge_evidence(parts: Sequence[Evidence]) -> list[Evidence]:
    """Merge counts of several launches into one evidence per kernel, chip and counting method; numbers of different origin are not
    added."""
    found: dict[tuple[str, str, str], Evidence] = {}
    for part in parts:
        key = (part.kernel, part.chip_name, part.how)
        before = found.get(key)
        if before is not None:
            part = Evidence(
                part.kernel,
                part.chip_name,
                part.how,
                (*before.entries, *part.entries),
                (*before.branches, *part.branches),
                sources={**before.sources, **part.sources},
            )
        found[key] = part
    return list(found.values())
