"""Make the figures, numbered as in the publication, from the tables of a run: those just made, or those that another run left as CSV.

python -m memlane.lab.volume.plots lab-volume     # draws the figures of a run whose machine had no matplotlib
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from memlane.lab.figures import Bars, Figure, Lines, Paired, Panels, draw
from memlane.lab.result import Table
from memlane.lab.volume.claims import FAST, SLOW
from memlane.lab.volume.frames import DEPENDENT, SCHEMES, SIMPLE

FRAMES, WARPS, SERIES = "frames", "warps", "series"
"""Tables from which figures are made."""
_SAID = {DEPENDENT: "probes that wait", SIMPLE: "probes that do not wait"}
_NUMBERS = (("fig_6", "fig_7"), ("fig_8", "fig_9"))

Line = Mapping[str, str | float | None]


def figures(tables: Mapping[str, Table]) -> dict[str, Figure]:
    """Return the figures by file name, as far as the tables exist."""
    frames, warps, series = (_lines(tables[name]) if name in tables else [] for name in (FRAMES, WARPS, SERIES))
    views = list(dict.fromkeys(str(line["view"]) for line in frames))
    found: dict[str, Figure] = {"fig_5": _shares([line for line in frames if line["view"] == views[0]])} if views else {}
    for number, view in enumerate(views):
        of = [line for line in frames if line["view"] == view]
        hits, rates = _NUMBERS[number] if number < len(_NUMBERS) else (f"hits_view_{number + 1}", f"rates_view_{number + 1}")
        if len(of) > 2 and any(_number(line["hit rate"]) is not None for line in of):
            found[hits] = _frequencies(of, "hit rate", "hit rate of the texture cache")
        if len(of) > 2:
            found[rates] = _frequencies(of, "frames/s", "frames/s")
    if warps:
        found["fig_10"] = _beside(warps, "warps of one SM", "warp of the launch", "warp", "mean access time, cycles", "access time_cycles")
    if series:
        found["fig_11"] = _beside(series, "warp {warp}", "access", "access", "access time, cycles", "time_cycles")
    return found


def read(folder: Path) -> dict[str, Table]:
    """Return the tables from which figures are made, from the CSV files of a run."""
    found = {}
    for name in (FRAMES, WARPS, SERIES):
        if (folder / f"{name}.csv").exists():
            with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
                head, *lines = csv.reader(file)
            found[name] = Table(tuple(head), tuple(map(tuple, lines)))
    return found


def _lines(table: Table) -> list[Line]:
    return [dict(zip(table.head, line, strict=True)) for line in table.lines]


def _number(cell: str | float | None) -> float | None:
    return None if cell is None or cell == "" else float(cell)


def _shares(lines: Sequence[Line]) -> Bars:
    ends = [line for shape in (SLOW, FAST) for line in lines if line["shape"] == shape]
    labels = tuple(f"{scheme}, {line['shape']}" for scheme in SCHEMES for line in ends)
    parts = {
        name: [_number(line[f"{scheme}: {column}"]) for scheme in SCHEMES for line in ends]
        for name, column in (("in accesses", "access time_cycles"), ("other", "other time_cycles"))
    }
    return Bars(f"Where the time of the warps goes, seen from {lines[0]['view']}", "cycles per access", labels, parts)


def _frequencies(lines: Sequence[Line], column: str, axis: str) -> Panels:
    shapes, rates = tuple(str(line["shape"]) for line in lines), [_number(line[column]) for line in lines]
    panels = []
    for scheme in SCHEMES:
        values = [_number(line[f"{scheme}: access frequency per 1000 cycles"]) for line in lines]
        title = f"{_SAID[scheme]}, seen from {lines[0]['view']}"
        panels.append(Paired(title, "shape of a block", shapes, "accesses per 1000 cycles", values, axis, rates))
    return Panels(tuple(panels))


def _beside(lines: Sequence[Line], title: str, across: str, place: str, axis: str, column: str) -> Panels:
    """Return a panel for each shape, on one axis."""
    panels = []
    for shape in dict.fromkeys(str(line["shape"]) for line in lines):
        of = [line for line in lines if line["shape"] == shape]
        name = f"{shape}, seen from {of[0]['view']}: {title.format(**of[0])}"
        points = [(x, y) for line in of if (x := _number(line[place])) is not None and (y := _number(line[column])) is not None]
        panels.append(Lines(name, across, axis, {shape: points}))
    return Panels(tuple(panels), shared=True)


def draw_again(folder: Path, out: Path) -> str:
    """Draw the contents of the CSV files in `folder` into `out`; return a message."""
    out.mkdir(parents=True, exist_ok=True)
    drawn, left_out = draw(figures(read(folder)), out)
    return left_out or f"Wrote {', '.join(path.name for path in drawn)} to {out}"
