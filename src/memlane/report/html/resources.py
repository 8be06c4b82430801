"""Compute the time that each part of the chip alone would need for a kernel, and the roof that this sets to its throughput."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memlane.chip import Chip, ModelledTime, Traffic, modelled_time
from memlane.number_format import plural, rounded
from memlane.record import LaunchInfo, PredictedTime, Totals, Trace, kernel_label
from memlane.report.modelled_times import time_of

MOST_KERNELS = 12
"""Largest number of kernels shown, those with the longest times."""
WITH_PROBES = "modelled, with its probes"
PREDICTED = "predicted, without probes"
CHART_WIDTH, ROW_HEIGHT, NAME_WIDTH, MARGIN = 860, 34, 170, 40
"""Sizes of the roofline, in its own units."""
LEAST_SHARE = 0.01
"""A part of the chip that takes less of the time than this is neither listed nor drawn."""


_WORDS = {
    "LSU": "LSU: the load-store unit of a multiprocessor.",
    "of one SM": "\N{LEFT DOUBLE QUOTATION MARK}Of one SM\N{RIGHT DOUBLE QUOTATION MARK}: of the busiest multiprocessor.",
    "L2 fabric": "L2 fabric: the connection between the two halves of L2.",
    "beginning of blocks": "Beginning of blocks: the rate at which the chip starts blocks.",
}
"""Explanations of words in the names of parts."""


@dataclass(frozen=True)
class Resource:
    """One part of the chip, and the use that the launch makes of it."""

    name: str
    share: float
    """Share of the time of the launch, 0 to 1."""
    us: float
    moved: str
    """Amount moved and its rate, in words."""
    roof_gb_per_s: float | None
    """Throughput in requested bytes if this part alone took time; None if the requested amount is not known."""


@dataclass(frozen=True)
class KernelResources:
    """One kernel, represented by its longest launch."""

    kernel: str
    origin: str
    """Whether its time was modelled or measured, with or without probes."""
    us: float
    limit: str
    """The part that takes nearly all of the time: the name of a resource, or `latency`. Empty if not all resources are known."""
    asked: int | None
    """Bytes of global memory that the lanes request, in the launch without probes."""
    gb_per_s: float | None
    """Requested bytes per second."""
    resources: tuple[Resource, ...]
    missing: tuple[str, ...]
    """Rates that the chip file does not have."""

    @property
    def shown(self) -> list[Resource]:
        """Return the parts that are listed: those that take a visible share of the time."""
        return [part for part in self.resources if part.share >= LEAST_SHARE]


@dataclass(frozen=True)
class Mark:
    """One roof in the roofline, or the throughput itself."""

    x: float
    label: str


@dataclass(frozen=True)
class RooflineRow:
    """One kernel in the roofline."""

    kernel: str
    y: float
    reached: Mark
    roofs: tuple[Mark, ...]
    """Roofs, the lowest first."""


@dataclass(frozen=True)
class Roofline:
    """The throughput of each kernel next to its roofs, on one logarithmic axis."""

    rows: tuple[RooflineRow, ...]
    ticks: tuple[Mark, ...]
    height: float
    left: float = NAME_WIDTH
    width: float = CHART_WIDTH


@dataclass(frozen=True)
class Resources:
    """The section of the page: the kernels, their roofline, and what is not known."""

    kernels: tuple[KernelResources, ...] = ()
    roofline: Roofline | None = None
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """Return the explanations of the words in the names of the listed parts, and whether parts are left out."""
        names = [part.name for one in self.kernels for part in one.shown]
        found = [said for word, said in _WORDS.items() if any(word in name for name in names)]
        left_out = any(len(one.shown) < len(one.resources) for one in self.kernels)
        return [*found, f"Parts below {100 * LEAST_SHARE:g} % of the time are not listed."] if left_out else found


def resources_of(trace: Trace, chip: Chip | None) -> Resources:
    """Return the resources of each kernel, as far as the trace has its time and traffic; the notes tell what is not known."""
    found: dict[str, KernelResources] = {}
    unknown: dict[str, None] = {}
    for launch in trace.launches:
        one = _of_launch(launch, trace, chip)
        if isinstance(one, str):
            unknown[one] = None
        elif launch.kernel not in found or one.us > found[launch.kernel].us:
            found[launch.kernel] = one
    kernels = sorted(found.values(), key=lambda one: -one.us)[:MOST_KERNELS]
    notes = [] if found else list(unknown)
    if any(one.origin == WITH_PROBES for one in kernels):
        notes.append(
            "With probes, the traffic includes the records that the probes write. `memlane trace --perturbation` records the launch "
            "without them too."
        )
    if len(found) > len(kernels):
        notes.append(f"{len(kernels)} of {plural(len(found), 'kernel')} are shown, those with the longest launches.")
    lacking = dict.fromkeys(rate for one in kernels for rate in one.missing)
    if lacking:
        notes.append(f"Not shown: {', '.join(lacking)}, because the file of {trace.chip} has no rate for it.")
    return Resources(tuple(kernels), _roofline(kernels), tuple(notes))


def _of_launch(launch: LaunchInfo, trace: Trace, chip: Chip | None) -> KernelResources | str:
    """Return the resources of one launch, or the reason why they are not known."""
    if launch.failed:
        return "A launch that failed has no time."
    time, plain = time_of(launch)
    if launch.predicted is not None:
        return _predicted(launch, launch.predicted)
    if time is not None:
        if not trace.clock_mhz:
            return "The clock of the chip is not known."
        return _kernel(launch, time, trace.clock_mhz, "modelled, without probes" if plain else WITH_PROBES, time.limited_by)
    if trace.modelled:
        return "The trace does not contain the traffic of its launches, because an older memlane recorded it."
    if chip is None:
        return f"There is no chip file for {trace.chip!r}, so no rates are known."
    if not launch.counts:
        return "Transactions were not counted: record with `memlane trace --counts --perturbation`."
    if launch.perturbation is None or launch.perturbation.plain_ns is None:
        return "The time without probes was not measured: record with `memlane trace --counts --perturbation`."
    return _kernel(launch, counted_time(launch, chip, launch.perturbation.plain_ns), chip.clock_mhz, "measured, without probes; at least")


def counted_time(launch: LaunchInfo, chip: Chip, ns: float) -> ModelledTime:
    """Return the measured time with lower bounds from the transactions that were counted on a GPU.

    Every stored sector goes to L2, counted as whole sectors; loads may hit in L1, so reads are left out, and so is DRAM. Work is assumed to
    be spread evenly over the multiprocessors.
    """
    stored = sum(one.sectors or 0 for one in launch.counts if one.site.kind == "store" and one.site.space in ("global", "generic"))
    wavefronts = sum(one.wavefronts or 0 for one in launch.counts)
    nothing = [0] * chip.sm_count
    names = ("read", "partly_written", "atomic", "read_lines", "written_lines", "partly_written_lines")
    moved = {
        **dict.fromkeys(names, nothing),
        "written": _spread(stored, chip.sm_count),
        "wavefronts": _spread(wavefronts, chip.sm_count),
    }
    return modelled_time(chip, math.ceil(ns * chip.clock_mhz / 1000), Traffic(moved, fetched=0, written_back=0))


def _spread(total: int, parts: int) -> list[int]:
    """Return `total` in whole parts whose largest is not more than the mean rounded down, so that none is overstated."""
    least = total // parts
    return [least] * parts


def _kernel(launch: LaunchInfo, time: ModelledTime, clock_mhz: float, origin: str, limit: str = "") -> KernelResources:
    asked = _asked(launch)
    parts = [
        Resource(floor.name, floor.cycles / max(time.cycles, 1), us := floor.cycles / clock_mhz, floor.moved, _rate(asked, us))
        for floor in time.floors
    ]
    us = time.cycles / clock_mhz
    return KernelResources(kernel_label(launch.kernel), origin, us, limit, asked, _rate(asked, us), tuple(parts), tuple(time.missing))


def _predicted(launch: LaunchInfo, time: PredictedTime) -> KernelResources:
    """Return the resources of a launch as the model of kernels predicts it."""
    asked = _asked(launch)
    parts = [Resource(part.name, part.us / time.us, part.us, part.moved, _rate(asked, part.us)) for part in time.parts]
    return KernelResources(
        kernel_label(launch.kernel), PREDICTED, time.us, time.limiting, asked, _rate(asked, time.us), tuple(parts), tuple(time.missing)
    )


def _asked(launch: LaunchInfo) -> int | None:
    """Return the bytes of global memory that the lanes request; None where they were not counted."""
    in_global = [one for one in launch.counts if one.site.space in ("global", "generic") and one.sectors]
    return Totals.of(in_global).bytes if in_global else None


def _rate(asked: int | None, us: float) -> float | None:
    """Return the rate in gigabytes per second."""
    return None if asked is None or not us else asked / us / 1000


def _roofline(kernels: Sequence[KernelResources]) -> Roofline | None:
    known = [one for one in kernels if one.gb_per_s]
    rates = [rate for one in known for rate in (one.gb_per_s, *(part.roof_gb_per_s for part in _roofs(one))) if rate]
    if not rates:
        return None
    low, high = 10 ** math.floor(math.log10(min(rates))), 10 ** math.ceil(math.log10(max(rates) * 1.001))

    def x(rate: float) -> float:
        return NAME_WIDTH + (CHART_WIDTH - NAME_WIDTH - MARGIN) * math.log(rate / low) / math.log(high / low)

    rows = []
    for index, one in enumerate(known):
        assert one.gb_per_s is not None
        rows.append(
            RooflineRow(
                one.kernel,
                (index + 0.5) * ROW_HEIGHT,
                Mark(x(one.gb_per_s), f"{one.kernel}: {rounded(one.gb_per_s)} GB/s"),
                tuple(Mark(x(part.roof_gb_per_s or low), f"{part.name}: {rounded(part.roof_gb_per_s)} GB/s") for part in _roofs(one)),
            )
        )
    ticks = [Mark(x(10.0**power), f"{10.0**power:,.15g}") for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
    return Roofline(tuple(rows), tuple(ticks), len(rows) * ROW_HEIGHT)


def _roofs(kernel: KernelResources) -> list[Resource]:
    """Return the parts whose roofs are drawn, the lowest roof first. The others would only stretch the axis."""
    drawn = [part for part in kernel.shown if part.roof_gb_per_s]
    return sorted(drawn, key=lambda part: part.roof_gb_per_s or 0.0)
