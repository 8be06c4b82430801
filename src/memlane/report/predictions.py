"""Render predicted times of launches, for the terminal and as JSON: a column for each chip, and the parts of each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memlane.measure.prediction import Forecast
from memlane.model.kernel import NOT_MODELLED, Prediction
from memlane.number_format import duration, percent, plural
from memlane.report.json import document_head
from memlane.report.table import plain
from memlane.titles import kernel_label

_PARTS, _WAITS = 4, 4
"""Largest number of parts and of waits shown."""


def render_predictions(forecasts: Sequence[Forecast], chips: Sequence[str], notes: Sequence[str] = ()) -> RenderableType:
    """Return a table with launches as rows and chips as columns, then for each launch and chip the parts of its time."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("kernel", overflow="fold")
    table.add_column("launches", justify="right")
    for chip in chips:
        table.add_column(chip, justify="right")
    for forecast in forecasts:
        times = {one.chip: duration(1e3 * one.us) for one in forecast.predictions}
        cells = [Text(times.get(chip, "-")) for chip in chips]
        table.add_row(plain(kernel_label(forecast.kernel)), str(forecast.launches), *cells)
    parts: list[RenderableType] = [table]
    for forecast in forecasts:
        parts += [Text(), plain(f"{kernel_label(forecast.kernel)}, {plural(forecast.blocks, 'block')} of {forecast.threads}", "bold")]
        parts += [line for one in forecast.predictions for line in _explained(one)]
        parts += [plain(f"  {chip}: {why}", "yellow") for chip, why in forecast.refused.items()]
    footer = (
        "Predicted with warm caches, between two events.",
        "busy: the share of the launch's time in which a part of the chip works. warps: what the warps spend their time on.",
        f"Not modelled: {'; '.join(NOT_MODELLED)}.",
    )
    return Group(*parts, Text(), *(plain(line, "dim") for line in footer), *(plain(note, "yellow") for note in notes))


def _explained(one: Prediction) -> list[Text]:
    """Return some lines on one prediction."""
    how = f"{duration(1e3 * one.launch_us)} for the launch itself"
    if one.not_sampled:
        how += f"; all blocks ran, {one.not_sampled}"
    if one.share < 1:
        how += (
            f"; {percent(one.share)} of the blocks ran; predictions from parts of this sample differ by +-{duration(1e3 * one.spread_us)}"
        )
    lines = [Text.assemble(f"  {one.chip}: {duration(1e3 * one.us)}, limited by ", (one.limiting, "bold"), f" ({how})")]
    busy = [f"{part.name} {percent(one.utilization(part))}" + (f" ({part.moved})" if part.moved else "") for part in one.parts[:_PARTS]]
    lines += [plain(f"    busy: {text}", "" if number == 0 else "dim") for number, text in enumerate(busy)]
    lines += [
        plain(f"    warps: {percent(wait.share)} {wait.cause}{f', {wait.place}' if wait.place else ''}") for wait in one.waits[:_WAITS]
    ]
    return [*lines, *(plain(f"    {doubt}", "yellow") for doubt in one.doubts)]


def predictions_document(forecasts: Sequence[Forecast], failed: str = "", failures: Sequence[Any] = ()) -> dict[str, object]:
    """Return the JSON document of kind "predictions"."""
    launches = [
        {
            "kernel": one.kernel,
            "launches": one.launches,
            "blocks": one.blocks,
            "threads_per_block": one.threads,
            "predictions": [{**asdict(p), "limiting": p.limiting} for p in one.predictions],
            "refused": dict(one.refused),
        }
        for one in forecasts
    ]
    said = [{"id": one.number, "kernel": one.kernel, "why": one.why} for one in failures]
    head = document_head("predictions")
    return {**head, "failed": failed or None, "failed_launches": said, "launches": launches, "not_modelled": list(NOT_MODELLED)}
