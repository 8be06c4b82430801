"""Figures of labs, as data, and drawn by matplotlib where it is installed (the extra `lab`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bars:
    """Groups of bars, one group for each label, one bar in it for each series."""

    title: str
    axis: str
    """What the vertical axis shows, with its unit."""
    labels: tuple[str, ...]
    series: Mapping[str, Sequence[float | None]]
    """By name, a value for each label; None leaves a gap."""
    logarithmic: bool = False


def draw(figures: Mapping[str, Bars], out: Path) -> tuple[list[Path], str]:
    """Write each figure as `<name>.png` into `out`; the files, and a sentence if there are none because matplotlib is not installed."""
    if not figures:
        return [], ""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return [], "Figures are left out: they need matplotlib; install it with: pip install 'memlane[lab]'"
    paths = []
    for name, bars in figures.items():
        figure = Figure(figsize=(max(6.0, 0.9 * len(bars.labels) + 2), 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        width = 0.8 / max(1, len(bars.series))
        for number, (label, values) in enumerate(bars.series.items()):
            places = [at + (number + 0.5) * width - 0.4 for at, value in enumerate(values) if value is not None]
            axes.bar(places, [value for value in values if value is not None], width, label=label)
        axes.set_xticks(range(len(bars.labels)), bars.labels, rotation=30, ha="right")
        axes.set_ylabel(bars.axis)
        axes.set_title(bars.title)
        axes.set_yscale("symlog" if bars.logarithmic else "linear")
        axes.legend(fontsize="small")
        paths.append(out / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths, ""
