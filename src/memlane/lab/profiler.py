"""Read hardware counters with Nsight Compute, from a program of its own, by parsing its table.

    found = profile(["-m", "package.module"], ["l1tex__t_sector_hit_rate.pct"], kernel="render", timeout=60)

A failure to count is not an error of a lab: `Counters.unknown` gives the reason in one sentence.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
UNTOUCHED = ("--clock-control", "none", "--cache-control", "none")
"""Options that leave clocks unlocked and caches unflushed, as in the run to be explained; neither changes a count."""


@dataclass(frozen=True)
class Counters:
    """Counts: metrics by name for each launch of the kernel, in order."""

    launches: tuple[dict[str, float], ...]
    unknown: str = ""
    """Reason why there are no counts; empty otherwise."""


def find() -> str | None:
    """Return the path of the profiler, or None if it is not installed."""
    return shutil.which("ncu") or next((place for place in PLACES if Path(place).exists()), None)


def profile(arguments: Sequence[str], metrics: Sequence[str], kernel: str, timeout: float) -> Counters:
    """Run Python with `arguments` under the profiler, and return the metrics of each launch of `kernel`."""
    program = find()
    if program is None:
        return Counters((), "ncu was not found on PATH")
    table = ["--csv", "--page", "raw", "--print-units", "base", "--kernel-name", kernel, "--metrics", ",".join(metrics)]
    command = [program, *UNTOUCHED, *table, sys.executable, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=dict(os.environ))
    except subprocess.TimeoutExpired:
        return Counters((), f"ncu did not end within {timeout:.0f} s")
    except OSError as error:
        return Counters((), f"ncu could not be started: {error.strerror}")
    launches = tuple(one.metrics for one in parse(done.stdout))
    return Counters(launches) if launches else Counters((), _reason(done.stdout + done.stderr))


@dataclass(frozen=True)
class Profiled:
    """One kernel launch as the profiler reports it."""

    kernel: str
    """Name of the kernel, from the column `Kernel Name`."""
    metrics: dict[str, float]
    """Numeric metrics by name; for a metric with instances, the profiler's sum."""


def parse(output: str) -> list[Profiled]:
    """Return the launches in the output of `--csv --page raw`.

    There is a line with the column names, of which the first is `ID`, one with units, and one for each launch; output of the profiler
    (`==PROF==`) and of the program may be interspersed.
    """
    try:
        rows = list(csv.reader(line for line in output.splitlines() if line.startswith('"')))
    except csv.Error:  # a cell without an end
        return []
    head = next((number for number, row in enumerate(rows) if row and row[0] == "ID"), None)
    if head is None:
        return []
    launches = [dict(zip(rows[head], row, strict=False)) for row in rows[head + 1 :] if row and row[0].strip().isdigit()]
    return [Profiled(one.get("Kernel Name", ""), _metrics(one)) for one in launches]


def _metrics(cells: dict[str, str]) -> dict[str, float]:
    """Return the metrics among the cells: their columns are lowercase with underscores, `l1tex__t_sectors.sum`, unlike `Block Size`."""
    metrics = {name: number(cell) for name, cell in cells.items() if name == name.lower() and "_" in name}
    return {name: value for name, value in metrics.items() if value is not None}


def number(cell: str) -> float | None:
    """Return the number in a cell, or None: `1,024`, or `64 (1; 2; 61)` for a metric with instances, whose sum stands first."""
    try:
        value = float(cell.replace(",", "").partition("(")[0])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _reason(said: str) -> str:
    if "ERR_NVGPUCTRPERM" in said:
        return "ncu has no permission to read the counters (ERR_NVGPUCTRPERM): only administrators may read them here"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    wrong = [line for line in lines if "ERROR" in line.upper()]
    return f"ncu counted nothing: {' | '.join((wrong or lines or ['it said nothing'])[-3:])[:300]}"
