"""Provide the calibrated latencies that are shown next to measured ones."""

from __future__ import annotations

from memlane.chip import Chip, load, names
from memlane.record import COMPLETE, Site, Trace
from memlane.report.html.model import Level

_OF_SPACE = {
    "shared": ("shared",),
    "shared::cluster": ("shared_cluster",),
    "global": ("l1", "l2", "dram"),
    "local": ("l1", "l2", "dram"),
    "generic": ("shared", "l1", "l2", "dram"),
    "tex": ("texture", "l2", "dram"),
    "const": ("constant", "constant_miss"),
    "param": ("constant", "constant_miss"),
}
"""Fields of `Latency` from which an access may be served, by space, the nearest first."""
_LABELS = {"shared_cluster": "shared memory of another block", "l1": "L1", "l2": "L2", "dram": "DRAM", "constant_miss": "constant miss"}


def chip_of(trace: Trace) -> Chip | None:
    """Return the chip on which the trace was taken; None if there is no chip file of that name."""
    return load(trace.chip) if trace.chip in names() else None


def levels_of(site: Site, chip: Chip | None, window: float) -> tuple[Level, ...]:
    """Return the levels that may serve `site`, shifted by `window`: the cycles that its probe itself takes."""
    if chip is None or site.kind != "load" or site.completeness != COMPLETE:
        return ()  # latencies are those of loads, until the value has arrived
    return tuple(_level(chip, name, window) for name in _OF_SPACE.get(site.space, ()) if getattr(chip.latency, name) is not None)


def _level(chip: Chip, name: str, window: float) -> Level:
    fact = chip.fact(f"latency.{name}")
    return Level(_LABELS.get(name, name), float(getattr(chip.latency, name)) + window, f"{fact.kind}: {fact.source}")


def levels_note(trace: Trace, chip: Chip | None) -> str:
    """Return a note on the origin of the marks in the histograms, or why there are none."""
    if chip is None:
        return (
            f"No memory levels are marked, because there is no chip file for {trace.chip!r}. `memlane lab latency` measures the "
            "latencies of a GPU."
        )
    told = ", ".join(
        f"{_LABELS.get(name, name)} {getattr(chip.latency, name):g} ({chip.fact(f'latency.{name}').kind})"
        for name in ("shared", "l1", "l2", "dram")
    )
    schemes = dict.fromkeys(site.scheme for site in trace.sites if site.scheme in trace.windows)
    windows = ", ".join(f"{name} {trace.windows[name]:g}" for name in schemes)
    added = f" They are shifted by the time that the probe itself takes ({windows})." if windows else ""
    return f"Lines in the distributions mark the latencies of {chip.name} without load, in cycles: {told}.{added}"
