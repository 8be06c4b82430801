"""Represent figures of labs as data, and draw them with matplotlib if it is installed (the extra `lab`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlane.packages import install_command


@dataclass(frozen=True)
class Bars:
    """Groups of bars: one group per label, with one bar per series."""

    title: str
    axis: str
    """Label of the vertical axis, with its unit."""
    labels: tuple[str, ...]
    series: Mapping[str, Sequence[float | None]]
    """Values by name, one per label; None leaves a gap."""
    logarithmic: bool = False
    stacked: bool = False
    """Whether the series of a label are stacked: parts of a whole."""


@dataclass(frozen=True)
class Lines:
    """A line of points for each series."""

    title: str
    across: str
    """Label of the horizontal axis."""
    axis: str
    """Label of the vertical axis, with its unit."""
    series: Mapping[str, Sequence[tuple[float, float]]]
    """Points by name, from left to right."""
    logarithmic: bool = False
    doubling: bool = False
    """Whether each step across is twice the one before: its axis is logarithmic then."""


@dataclass(frozen=True)
class Paired:
    """Two quantities over the same labels, each with its own vertical axis from 0."""

    title: str
    across: str
    labels: tuple[str, ...]
    axis: str
    values: Sequence[float | None]
    """Values on the left axis; None leaves a gap."""
    second_axis: str
    second_values: Sequence[float | None]
    """Values on the right axis."""


@dataclass(frozen=True)
class Tracks:
    """A timeline: a row for each track, with bars from start to end, coloured by series."""

    title: str
    axis: str
    """Label of the axis of tracks."""
    across: str
    """Unit of the times."""
    tracks: tuple[str, ...]
    series: Mapping[str, Sequence[tuple[str, float, float]]]
    """Bars by name: the track, the start and the end of each."""


Panel = Bars | Lines | Paired | Tracks


@dataclass(frozen=True)
class Panels:
    """Figures side by side, on one vertical axis if `shared`."""

    panels: tuple[Panel, ...]
    shared: bool = False


Figure = Panel | Panels


def draw(figures: Mapping[str, Figure], out: Path) -> tuple[list[Path], str]:
    """Write each figure as `<name>.png` into `out`; return the files, and a sentence if matplotlib is not installed (else empty)."""
    if not figures:
        return [], ""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        return [], f"Figures are left out: they need matplotlib; install it with: {install_command('lab')}"
    paths = []
    for name, one in figures.items():
        panels, shared = (one.panels, one.shared) if isinstance(one, Panels) else ((one,), False)
        width = sum(max(6.0, 0.9 * len(panel.labels) + 2) if isinstance(panel, Bars) else 7.0 for panel in panels)
        figure = Canvas(figsize=(width, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False, sharey=shared)[0], panels, strict=True):
            _DRAW[type(panel)](axes, panel)
            axes.set_ylabel(panel.axis)
            axes.set_title(panel.title)
            axes.legend(fontsize="small")
        paths.append(out / f"{name}.png")
        figure.savefig(paths[-1], dpi=120 if len(panels) == 1 else 80)
    return paths, ""


def _bars(axes: Any, bars: Bars) -> None:
    if bars.stacked:
        _stacked(axes, bars)
        return
    width = 0.8 / max(1, len(bars.series))
    for number, (label, values) in enumerate(bars.series.items()):
        places = [at + (number + 0.5) * width - 0.4 for at, value in enumerate(values) if value is not None]
        axes.bar(places, [value for value in values if value is not None], width, label=label)
    axes.set_xticks(range(len(bars.labels)), bars.labels, rotation=30, ha="right")
    axes.set_yscale("symlog" if bars.logarithmic else "linear")


def _stacked(axes: Any, bars: Bars) -> None:
    below = [0.0] * len(bars.labels)
    for label, values in bars.series.items():
        heights = [0.0 if value is None else value for value in values]
        axes.bar(range(len(bars.labels)), heights, 0.7, bottom=below, label=label)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_xticks(range(len(bars.labels)), bars.labels, rotation=30, ha="right")


def _tracks(axes: Any, tracks: Tracks) -> None:
    for number, (label, spans) in enumerate(tracks.series.items()):
        for row, name in enumerate(tracks.tracks):
            own = [(start, end - start) for track, start, end in spans if track == name]
            axes.broken_barh(own, (row - 0.35, 0.7), facecolors=f"C{number}", edgecolor="white", linewidth=0.3)
        axes.barh([0], [0], color=f"C{number}", label=label)
    axes.set_yticks(range(len(tracks.tracks)), tracks.tracks)
    axes.invert_yaxis()
    axes.set_xlabel(tracks.across)


def _lines(axes: Any, lines: Lines) -> None:
    for label, points in lines.series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=3, label=label)
    if lines.doubling:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if lines.logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel(lines.across)


def _paired(axes: Any, paired: Paired) -> None:
    right = axes.twinx()
    for side, values, style, label in (
        (axes, paired.values, "C0o-", paired.axis),
        (right, paired.second_values, "C1s--", paired.second_axis),
    ):
        side.plot(paired.labels, [float("nan") if value is None else value for value in values], style, label=label)
        side.set_ylim(0, 1.25 * max((value for value in values if value is not None), default=1.0))  # room for the legend
    right.set_ylabel(paired.second_axis)
    axes.plot([], [], "C1s--", label=paired.second_axis)  # so that one legend names both
    axes.set_xlabel(paired.across)


_DRAW: Mapping[type, Callable[[Any, Any], None]] = {Bars: _bars, Lines: _lines, Paired: _paired, Tracks: _tracks}
