"""Predictions for a stencil on several devices: the times of one step, and a table of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from memlane.errors import StencilError
from memlane.stencils.tiles import Tile

_WIDTH, _ROOMY = 118, 92
"""Width of a plan as text, and the width from which its columns are two blanks apart, with headings of one line."""
_NARROW = {"exchange": "ex-\nchange", "boundary": "bound-\nary", "speed-up": "speed-\nup", "a launch": "a\nlaunch"}
"""Headings that take two lines where the columns are one blank apart, so that no column is cut at 80."""


@dataclass(frozen=True)
class Prediction:
    """The predicted time of one step, averaged over the steps between two exchanges. Times are in microseconds a step."""

    devices: int
    decomposition: tuple[int, ...]
    """Parts along each axis."""
    exchange_every: int
    """Steps between two exchanges."""
    steps_per_launch: int
    is_overlapped: bool
    """Whether an exchange is overlapped with the computation between the borders."""
    step_us: float
    inner_us: float
    """Time of the planes between the borders; of all planes without overlap."""
    exchange_us: float
    boundary_us: float
    """Time of the borders."""
    bound: str
    """Limit of the step: `computation` or `communication`."""
    cells: int
    """Cells of the whole grid."""
    tile: Tile | None = None
    """Tile in which multiprocessors keep the cells, for persistent kernels whose cells fit; else None."""

    @property
    def gcells_per_s(self) -> float:
        """Billions of cells updated per second, by all devices together."""
        return self.cells / self.step_us / 1e3


@dataclass(frozen=True)
class ScalingPlan:
    """Predictions of one problem on one machine. `print` shows them as a table.

    plan.best(4)              # the fastest with four devices
    plan.rows, plan.to_rows() # all, as objects and as plain dictionaries
    """

    title: str
    model: str
    rows: tuple[Prediction, ...]
    """By devices, then by decomposition, then by steps between exchanges."""
    notes: tuple[str, ...] = ()
    """Assumptions, and cases that are left out."""

    def best(self, devices: int | None = None) -> Prediction:
        """Return the fastest prediction, of those with so many devices if a number is given. Raises StencilError if there is none."""
        found = [one for one in self.rows if devices is None or one.devices == devices]
        if not found:
            raise StencilError(f"the plan has no row for {devices} devices; it has {', '.join(map(str, self.devices))}")
        return min(found, key=lambda one: one.step_us)

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(one.devices for one in self.rows))

    def speedup(self, one: Prediction) -> float | None:
        """Return how many times faster a row is than the fastest with one device; None where the plan has none."""
        return self.best(1).step_us / one.step_us if 1 in self.devices else None

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of plain values, for pandas or JSON."""
        return [
            {
                "devices": one.devices,
                "decomposition": list(one.decomposition),
                "exchange_every": one.exchange_every,
                "steps_per_launch": one.steps_per_launch,
                "overlapped": one.is_overlapped,
                "step_us": round(one.step_us, 3),
                "inner_us": round(one.inner_us, 3),
                "exchange_us": round(one.exchange_us, 3),
                "boundary_us": round(one.boundary_us, 3),
                "bound": one.bound,
                "gcells_per_s": round(one.gcells_per_s, 2),
                "speedup": None if (speedup := self.speedup(one)) is None else round(speedup, 3),
                "best": one == self.best(one.devices),
            }
            for one in self.rows
        ]

    def document(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {"title": self.title, "model": self.model, "rows": self.to_rows(), "notes": list(self.notes)}

    def to_json(self) -> str:
        """Return the plan as a JSON document."""
        return json.dumps(self.document(), indent=1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = ["devices", "cut", "k", "step", "inner", "exchange", "boundary", "bound by", "Gcell/s", "speed-up"]
        several, roomy = any(one.steps_per_launch > 1 for one in self.rows), options.max_width >= _ROOMY
        table = Table(box=None, pad_edge=False, padding=(0, 2 if roomy else 1, 0, 0))
        for head in [*heads, "a launch"] if several else heads:
            table.add_column(Text(head if roomy else _NARROW.get(head, head)), justify="left" if head in ("cut", "bound by") else "right")
        for one in self.rows:
            is_best, speedup = one == self.best(one.devices), self.speedup(one)
            alone = "" if one.is_overlapped or one.devices == 1 or not one.exchange_us else " !"
            cells = [
                str(one.devices), "x".join(map(str, one.decomposition)), f"{one.exchange_every}{' *' if is_best else '  '}",
                *(_us(value) for value in (one.step_us, one.inner_us, one.exchange_us, one.boundary_us)),
                f"{one.bound}{alone}", f"{one.gcells_per_s:,.1f}", "" if speedup is None else f"{speedup:.2f}",
            ]  # fmt: skip
            cells += [str(one.steps_per_launch)] if several else []
            table.add_row(*(Text(cell, style="bold" if is_best else "") for cell in cells))
        yield Text(self.title, style="bold")
        yield table
        yield Text("Predicted, not measured. Times are us a step; k: steps between exchanges; *: the fastest with so many devices.")
        if any(one.devices > 1 and one.exchange_us and not one.is_overlapped for one in self.rows):
            yield Text("!: exchange and computation follow each other: nothing lies between the borders, or no overlap was asked for.")
        yield Text(f"Model {self.model}.")
        for note in self.notes:
            yield Text(f"{note}.")

    def __str__(self) -> str:
        console = Console(width=_WIDTH, no_color=True, highlight=False, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip()


def _us(value: float) -> str:
    """Format microseconds with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
