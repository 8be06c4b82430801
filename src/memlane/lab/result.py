"""Save the results of labs and benchmarks: rows of one schema, tables and figures, as files of one directory.

    result.save(Path("out"), machine(target), ["memlane", "lab", "latency"])     # result.json, <table>.csv, <figure>.png

`result.json` is an object of `DOCUMENT_KEYS`. The rows have the fields of `Row`; a goal is stored next to the measured number, and a row
that misses its goal is kept with a note that says why.
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.driver import probe
from memlane.driver.probe import module_version
from memlane.errors import MemlaneError
from memlane.lab.figures import Figure, draw
from memlane.lab.picture import write_picture
from memlane.launch import Target


@dataclass(frozen=True)
class Row:
    """One measured number next to its goal.

    `holds` is derived: whether `value` is on the right side of `reach`; true if there is no goal. A row that misses is kept, and its note
    says what prevents the goal.
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


NOT_MEASURED = "not measured"
"""The metric of a row without a number."""


def failure(case: str, error: MemlaneError) -> Row:
    """Return the row of a case that could not be measured: it misses its goal, and the other rows are kept."""
    return Row(case, NOT_MEASURED, None, "", reach=0.0, note=str(error)[:300])


def reached_on(chip: str, target: Target, rows: Iterable[Row]) -> list[Row]:
    """Return the rows, with goals removed unless they were measured on the GPU `chip`, for which the goals were stated."""
    stated = target.chip.name == chip and not target.modelled
    return [row if stated else replace(row, reach=None) for row in rows]


DOCUMENT_KEYS = ("benchmark", "command", "commit", "chip", "driver", "cuda", "date", "rows")


def problems(document: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a result file that is to be committed; empty if nothing is."""
    if sorted(document) != sorted(DOCUMENT_KEYS):
        return [f"has the keys {', '.join(sorted(document))}, not {', '.join(sorted(DOCUMENT_KEYS))}"]
    found = [f"{key} is not text" for key in DOCUMENT_KEYS[:-1] if not isinstance(document[key], str)]
    if not re.fullmatch(r"[0-9a-f]{40}", document["commit"]):
        found.append(f"commit {document['commit']!r} is no commit")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"]):
        found.append(f"date {document['date']!r} is not a date")
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


@dataclass(frozen=True)
class Machine:
    """The machine of a measurement."""

    chip: str
    """Name of the chip; on an emulator the target's name made usable as a directory: `emulator-h200`."""
    driver: str = ""
    cuda: str = ""


def machine(target: Target) -> Machine:
    """Return the machine behind a target."""
    if target.modelled:
        return Machine(target.name.replace(":", "-"))
    return Machine(target.chip.name, driver_version(), cuda_version())


def driver_version() -> str:
    """Return the version of the GPU's driver, or `unknown`."""
    return module_version() or "unknown"


def cuda_version() -> str:
    """Return the newest CUDA version that the driver supports, or `unknown`."""
    version = probe().driver
    return "unknown" if version is None else ".".join(map(str, version))


def commit() -> str:
    """Return the commit of memlane's own checkout: `MEMLANE_COMMIT` if it is set, else what git reports; empty if memlane is installed."""
    given = os.environ.get("MEMLANE_COMMIT")
    root = Path(__file__).resolve().parents[3]
    if given or not (root / ".git").exists():
        return given or ""
    try:
        return subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def document(benchmark: str, rows: Sequence[Row], where: Machine, command: Sequence[str], revision: str) -> dict[str, object]:
    """Return the contents of a result file, in the order of `DOCUMENT_KEYS`."""
    return {
        "benchmark": benchmark,
        "command": shlex.join(command),
        "commit": revision,
        "chip": where.chip,
        "driver": where.driver,
        "cuda": where.cuda,
        "date": datetime.date.today().isoformat(),
        "rows": [row.as_json() for row in rows],
    }


@dataclass(frozen=True)
class Table:
    """A table for people and spreadsheets."""

    head: tuple[str, ...]
    """Names of the columns; a column in cycles ends in `_cycles`."""
    lines: tuple[tuple[str | float | None, ...], ...]
    printed: bool = True
    """Whether it is printed; else it is for spreadsheets only."""
    remarks: tuple[str, ...] = ()
    """Columns of sentences, which a terminal shows below the table."""
    spare: tuple[str, ...] = ()
    """Columns that a narrow terminal may drop, the first one first; of the others the last."""


@dataclass(frozen=True)
class Result:
    """The results of a lab."""

    lab: str
    rows: tuple[Row, ...]
    tables: Mapping[str, Table]
    """Tables by file name without `.csv`."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Figures by file name without `.png`."""
    pictures: Mapping[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    """Pictures of shape (height, width, 3), red, green and blue; named like `figures`."""
    interrupted: bool = False
    """Whether Ctrl-C ended the run before its last case."""

    def save(self, out: Path, where: Machine, command: Sequence[str]) -> tuple[list[Path], str]:
        """Write everything into the directory `out`, which is created if necessary.

        Returns the files, and a sentence if figures were left out because matplotlib is not installed (else empty).
        """
        out.mkdir(parents=True, exist_ok=True)
        paths = [out / "result.json"]
        paths[0].write_text(json.dumps(document(self.lab, self.rows, where, command, commit()), indent=1) + "\n", encoding="utf-8")
        for name, table in self.tables.items():
            paths.append(out / f"{name}.csv")
            with paths[-1].open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([table.head, *table.lines])
        for name, pixels in self.pictures.items():
            paths.append(out / f"{name}.png")
            write_picture(paths[-1], pixels)
        drawn, left_out = draw(self.figures, out)
        return [*paths, *drawn], left_out
