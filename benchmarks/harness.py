"""Provide the parts that all benchmarks share: rows with a prediction, the file for them, medians of interleaved rounds.

A benchmark is one script with one command. It declares `SOURCES`, the paths whose code it measures, and calls `write`. The results are
committed; `make stale` names those that are older than their sources, and the tests check each file against the schema.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from memlane.lab.result import DOCUMENT_KEYS, Machine, Row, document, problems

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

__all__ = [
    "DOCUMENT_KEYS",
    "RESULTS",
    "ROOT",
    "Row",
    "commit",
    "interleaved",
    "median_ratio",
    "problems",
    "results_of",
    "show",
    "store",
    "write",
]


def commit() -> str:
    """Return the commit that is measured: `MEMLANE_COMMIT` where the checkout travelled without its history, else git's HEAD."""
    given = os.environ.get("MEMLANE_COMMIT")
    return given or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def results_of(chip: str, directory: Path | None = None) -> Path:
    """Return where results of a chip are written: `directory`, or a folder below `MEMLANE_RESULTS`, or below `benchmarks/results`."""
    return directory or Path(os.environ.get("MEMLANE_RESULTS", RESULTS)) / chip


def write(benchmark: str, rows: Sequence[Row], *, chip: str, driver: str = "", cuda: str = "", directory: Path | None = None) -> Path:
    """Store the rows as `<directory>/<benchmark>.json`, by default under `benchmarks/results/<chip>`, and print them."""
    path = store(benchmark, rows, chip=chip, driver=driver, cuda=cuda, directory=directory)
    show(rows)
    return path


def store(benchmark: str, rows: Sequence[Row], *, chip: str, driver: str = "", cuda: str = "", directory: Path | None = None) -> Path:
    """Write the result file like `write`, without printing."""
    folder = results_of(chip, directory)
    folder.mkdir(parents=True, exist_ok=True)
    command = ["python", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]
    stored = document(benchmark, rows, Machine(chip, driver, cuda), command, commit())
    path = folder / f"{benchmark}.json"
    path.write_text(json.dumps(stored, indent=1) + "\n")
    return path


def show(rows: Sequence[Row]) -> None:
    """Print a line for each row."""
    for row in rows:
        mark = "  " if row.reach is None else "ok" if row.holds else "MISS"
        value = "-" if row.value is None else f"{row.value:.6g}"
        print(f"{mark:4} {row.case:44} {row.metric:34} {value:>12} {row.unit:10} reach {row.reach} {row.peer or ''} {row.note}")


def interleaved(rounds: int, runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Call each of `runs` once a round, in turn, so that drift of the machine meets all of them alike."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            results[name].append(run())
    return results


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of the paired ratios, and their 10th and 90th percentile."""
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    return statistics.median(ratios), ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
