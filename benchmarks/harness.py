"""What every benchmark shares: rows with a prediction, the file they go to, medians of interleaved rounds.

A benchmark is one script with one command. It declares `SOURCES`, the paths whose code it measures, and calls `write`. The results are
committed; `make stale` names those that are older than their sources, and the tests check each file against the schema.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Row:
    """One measured number beside the number that was to be reached.

    `holds` is derived: whether `value` is on the right side of `reach`; true where nothing was to be reached. A row that misses stays in,
    and its note says what stands between.
    """

    case: str
    metric: str
    value: float | None
    unit: str
    reach: float | None = None
    better: str = "lower"
    peer: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def holds(self) -> bool:
        if self.reach is None:
            return True
        if self.value is None:
            return False
        return self.value >= self.reach if self.better == "higher" else self.value <= self.reach

    def as_json(self) -> dict[str, object]:
        value = asdict(self)
        value["holds"] = self.holds
        return value


DOCUMENT_KEYS = ("benchmark", "command", "commit", "chip", "driver", "cuda", "date", "rows")


def problems(document: Mapping[str, Any]) -> list[str]:
    """What is wrong with a result file; empty if it is as `write` makes it."""
    if sorted(document) != sorted(DOCUMENT_KEYS):
        return [f"has the keys {', '.join(sorted(document))}, not {', '.join(sorted(DOCUMENT_KEYS))}"]
    found = [f"{key} is no text" for key in DOCUMENT_KEYS[:-1] if not isinstance(document[key], str)]
    if not re.fullmatch(r"[0-9a-f]{40}", document["commit"]):
        found.append(f"commit {document['commit']!r} is no commit")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"]):
        found.append(f"date {document['date']!r} is no date")
    if not document["rows"]:
        found.append("has no rows")
    for row in document["rows"]:
        found += [f"row {row.get('case')!r}, {row.get('metric')!r}: {problem}" for problem in _row_problems(row)]
    return found


def _row_problems(row: Mapping[str, Any]) -> list[str]:
    names = [*(one.name for one in fields(Row)), "holds"]
    if sorted(row) != sorted(names):
        return [f"has the keys {', '.join(sorted(row))}"]
    found = []
    if row["better"] not in ("higher", "lower"):
        found.append(f"better is {row['better']!r}")
    if row["holds"] != Row(**{name: row[name] for name in names[:-1]}).holds:
        found.append(f"holds is {row['holds']}, but the value is {row['value']} and the reach {row['reach']}")
    if not row["holds"] and not row["note"]:
        found.append("misses its reach and has no note that says why")
    return found


def commit() -> str:
    """The commit that is measured: `MEMLANE_COMMIT` where the checkout travelled without its history, else git's HEAD."""
    given = os.environ.get("MEMLANE_COMMIT")
    return given or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write(benchmark: str, rows: Sequence[Row], *, chip: str, driver: str = "", cuda: str = "", directory: Path | None = None) -> Path:
    """Store the rows as `<directory>/<benchmark>.json`, by default under `benchmarks/results/<chip>`, and print them."""
    path = store(benchmark, rows, chip=chip, driver=driver, cuda=cuda, directory=directory)
    show(rows)
    return path


def store(benchmark: str, rows: Sequence[Row], *, chip: str, driver: str = "", cuda: str = "", directory: Path | None = None) -> Path:
    """As `write`, without printing."""
    folder = directory or Path(os.environ.get("MEMLANE_RESULTS", RESULTS)) / chip
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": benchmark,
        "command": shlex.join(["python", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]),
        "commit": commit(),
        "chip": chip,
        "driver": driver,
        "cuda": cuda,
        "date": datetime.date.today().isoformat(),
        "rows": [row.as_json() for row in rows],
    }
    path = folder / f"{benchmark}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
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
    """Median of the paired ratios, and their 10th and 90th percentile."""
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    return statistics.median(ratios), ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
