"""Nsight Compute: run a program under it, and read the table that it prints."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")

_FIRST_COLUMN = "ID"
_NAME_COLUMN = "Kernel Name"


@dataclass(frozen=True)
class Profiled:
    """One kernel launch as the profiler saw it."""

    kernel: str
    metrics: dict[str, float]
    """Those that have a number, by name; sums over the device."""


def find() -> str | None:
    """The profiler's program, if it is installed."""
    return shutil.which("ncu") or next((place for place in PLACES if Path(place).exists()), None)


def command(program: str, metrics: Sequence[str], script: Sequence[str]) -> list[str]:
    """What to run. Clocks are left as they are, and caches are not flushed: neither changes a count."""
    options = ["--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    return [program, *options, "--metrics", ",".join(metrics), *script]


def profile(program: str, metrics: Sequence[str], script: Sequence[str], environment: dict[str, str], timeout: float) -> list[Profiled]:
    """Run `script` under the profiler. RuntimeError with what the profiler said if it gave no table."""
    done = subprocess.run(command(program, metrics, script), capture_output=True, text=True, env=environment, timeout=timeout)
    found = parse(done.stdout)
    if not found:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        wrong = [line for line in lines if "ERROR" in line or "Error" in line]
        raise RuntimeError(f"the profiler gave no table: {' | '.join((wrong or lines)[-3:])}")
    return found


def parse(output: str) -> list[Profiled]:
    """The launches in the output of `--csv --page raw`.

    The table starts at the line whose first cell is `ID`; before it and between its lines may stand what the profiler (`==PROF==`) and
    the program print. The line below the head holds units. Numbers may have thousands separators.
    """
    rows = list(csv.reader(line for line in output.splitlines() if line.startswith('"')))
    head = next((number for number, row in enumerate(rows) if row and row[0] == _FIRST_COLUMN), None)
    if head is None:
        return []
    names = rows[head]
    launches = []
    for row in rows[head + 1 :]:
        cells = dict(zip(names, row, strict=False))
        if not cells.get(_FIRST_COLUMN, "").strip().isdigit():
            continue
        metrics = {name: value for name, cell in cells.items() if "__" in name or name.startswith("memory_") for value in _number(cell)}
        launches.append(Profiled(cells.get(_NAME_COLUMN, ""), metrics))
    return launches


def _number(cell: str) -> list[float]:
    """The number in a cell, or nothing. A metric with instances prints its sum first: `64 (1; 2; ...)`."""
    text = cell.replace(",", "").partition("(")[0].strip()
    try:
        return [float(text)]
    except ValueError:
        return []


def usable(program: str, required: Sequence[str], optional: Sequence[str], script: Sequence[str], environment: dict[str, str]) -> list[str]:
    """The metrics that this version of the profiler knows, found by profiling `script`: `required`, and what works of `optional`."""

    def works(metrics: Sequence[str]) -> bool:
        try:
            return bool(profile(program, metrics, script, environment, timeout=60))
        except (RuntimeError, subprocess.TimeoutExpired):
            return False

    if works([*required, *optional]):
        return [*required, *optional]
    return [*required, *(one for one in optional if works([one]))]
