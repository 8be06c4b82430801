"""Run the lab: the cases in order, and the rows, the table and the figures made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memlane.chip import Chip, Fact
from memlane.lab.bandwidth.measure import Meter, Samples
from memlane.lab.figures import Bars
from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.result import NOT_MEASURED, Result, Row, Table
from memlane.launch import Target

SOURCES = ["src/memlane/lab/bandwidth", "src/memlane/plan", "src/memlane/model", "src/memlane/targets", "src/memlane/driver/graph.py"]
RATE, TIME = "rate", "time"
"""Metrics of the rows: GB/s, and us."""


@dataclass(frozen=True)
class Case:
    """One quantity to measure."""

    name: str
    measure: Callable[[Meter], Mapping[str, Samples]]
    """Function that measures the case; returns samples by metric."""
    facts: Mapping[str, str]
    """Name of the chip-file entry that each metric corresponds to."""
    devices: int = 1


def _copies(*ways: tuple[int | str, int | str]) -> Callable[[Meter], Mapping[str, Samples]]:
    def measured(meter: Meter) -> Mapping[str, Samples]:
        if len(ways) > 1:
            return {RATE: meter.shared_link(*ways)}  # type: ignore[arg-type]
        latency, rate = meter.link(ways[0])  # type: ignore[arg-type]
        return {RATE: rate, TIME: latency}

    return measured


_CASES = (
    Case("pinned to device", _copies((0, "pinned")), {RATE: "links.host_gb_per_s", TIME: "links.host_us"}),
    Case("device to pinned", _copies(("pinned", 0)), {RATE: "links.to_host_gb_per_s", TIME: "links.to_host_us"}),
    Case("pinned both ways", _copies((0, "pinned"), ("pinned", 0)), {}),
    Case("ordinary memory to device", _copies((0, "host")), {RATE: "links.pageable_gb_per_s", TIME: "links.pageable_us"}),
    Case("device to ordinary memory", _copies(("host", 0)), {RATE: "links.pageable_to_host_gb_per_s"}),
    Case("inside the device", _copies((0, 0)), {RATE: "copy_gb_per_s", TIME: "links.device_us"}),
    Case("to a peer", _copies((1, 0)), {RATE: "links.peer_gb_per_s", TIME: "links.peer_us"}, 2),
    Case("from a peer", _copies((0, 1)), {}, 2),
    Case("peers both ways", _copies((1, 0), (0, 1)), {}, 2),
    Case("to two peers at once", _copies((1, 0), (2, 0)), {}, 3),
    Case("flag to a peer", lambda meter: {TIME: meter.flag_us()}, {TIME: "links.flag_us"}, 2),
    Case("reads of DRAM", lambda meter: {RATE: meter.stream("reads")}, {RATE: "bandwidth.dram_read"}),
    Case("writes of DRAM", lambda meter: {RATE: meter.stream("writes")}, {RATE: "bandwidth.dram_write"}),
    Case("reads of L2", lambda meter: {RATE: meter.cached_stream()}, {RATE: "bandwidth.l2_read"}),
    Case("kernel to kernel", lambda meter: {TIME: meter.launches_us(1)}, {TIME: "links.launch_us"}),
    Case("kernel to kernel, two queues", lambda meter: {TIME: meter.launches_us(2)}, {}),
    Case("kernel to kernel, two chains", lambda meter: {TIME: meter.launches_us(1, chains=2)}, {}),
    Case("small copies, one chain", lambda meter: {TIME: meter.small_copies_us((0, "pinned"))}, {}),
    Case("small copies, two chains", lambda meter: {TIME: meter.small_copies_us((0, "pinned"), (0, "pinned"))}, {}),
    Case("graph of one kernel", lambda meter: {TIME: meter.graph_us()}, {}),
    Case("events around a step", lambda meter: {TIME: meter.events_us()}, {}),
)
CASES = tuple(case.name for case in _CASES)
_LIKE = {
    "links.to_host_gb_per_s": "links.host_gb_per_s",
    "links.to_host_us": "links.host_us",
    "links.pageable_us": "links.host_us",
    "links.pageable_to_host_gb_per_s": "links.pageable_gb_per_s",
}
"""Chip-file entries that stand in for absent ones."""


def run(target: Target, request: Request) -> Result:
    """Measure the chosen cases; those with peers only if there are enough devices."""
    chosen = request.chosen(CASES)
    meter = Meter(target, request.quick)
    cases, rows = Cases(), list[Row]()
    for case in cases.each(one for one in _CASES if one.name in chosen):
        if case.devices > len(meter.targets):
            rows.append(Row(case.name, NOT_MEASURED, None, "", note=f"takes {case.devices} devices, and there are {len(meter.targets)}"))
            continue
        with cases.measuring(case.name):
            request.tell(case.name)
            rows += [_row(case, metric, samples, target.chip) for metric, samples in case.measure(meter).items()]
    rows += cases.failed
    return Result("bandwidth", tuple(rows), {"bandwidth": _table(rows)}, _figures(rows), interrupted=cases.interrupted)


BANDWIDTH = Lab(
    "bandwidth", "How fast this machine copies, reads and writes, and how long copies, launches and graphs take to start.", CASES, run
)


def _row(case: Case, metric: str, samples: Samples, chip: Chip) -> Row:
    peer = {"least": min(samples.values), "most": max(samples.values)}
    known = _known(chip, case.facts.get(metric, ""))
    if known is not None:
        peer["chip file"] = known
    unit, better = ("GB/s", "higher") if metric == RATE else ("us", "lower")
    rounded = {name: float(f"{value:.6g}") for name, value in peer.items()}
    each = "each way, " if metric == RATE and not case.facts and case.name != "from a peer" else ""
    return Row(
        case.name, metric, float(f"{samples.median:.6g}"), unit, better=better, peer=rounded, note=f"{each}median of {len(samples.values)}"
    )


def _known(chip: Chip, name: str) -> float | None:
    """Return the chip file's value of an entry, as a rate in one direction or a time; None if it has none."""
    for one in (name, _LIKE.get(name, "")):
        table, _, entry = one.rpartition(".")
        value = getattr(getattr(chip, table) if table else chip, entry, None) if entry else None
        if value is not None:
            return float(value) / _scale(one, chip)
    return float(chip.dram_gb_per_s) if name in ("bandwidth.dram_read", "bandwidth.dram_write") else None


def _scale(name: str, chip: Chip) -> float:
    """Return the factor that turns a measured rate in GB/s into the unit of a chip-file entry."""
    if name == "copy_gb_per_s":
        return 2.0  # bytes read plus bytes written
    if name == "bandwidth.l2_read":
        return 1e3 / (chip.sector_bytes * chip.clock_mhz)  # sectors a clock
    return 1.0


def chip_facts(rows: Sequence[Row], chip: Chip, source: str) -> dict[str, Fact]:
    """Return the chip-file entries that a result provides, by full name. `source` says when and by what they were measured."""
    entries = {(case.name, metric): name for case in _CASES for metric, name in case.facts.items()}
    kind, _, text = source.partition(":")
    found = {}
    for row in rows:
        name = entries.get((row.case, row.metric))
        if name is None or row.value is None:
            continue
        scale = _scale(name, chip)
        unit = "sectors/clock" if name == "bandwidth.l2_read" else row.unit
        spread = ", ".join(f"{word} {scale * row.peer[word]:.4g}" for word in ("least", "most"))
        found[name] = Fact(float(f"{scale * row.value:.4g}"), unit, kind, f"{text.strip()}, {row.note}, {spread}")
    return found


def _table(rows: Sequence[Row]) -> Table:
    """Return a table with a line for each number; times are in ns, because some are short."""
    head = ("what", "unit", "median", "least", "most", "chip file")
    lines: list[tuple[str | float | None, ...]] = []
    for row in rows:
        if row.value is not None:
            scale, unit = (1e3, "ns") if row.metric == TIME else (1.0, row.unit)
            numbers = [row.value, *(row.peer.get(name) for name in head[3:])]
            lines.append((row.case, unit, *(None if one is None else scale * one for one in numbers)))
    return Table(head, tuple(lines), spare=("least", "most"))


def _figures(rows: Sequence[Row]) -> dict[str, Bars]:
    figures = {}
    for metric, name, axis in ((RATE, "rates", "GB/s"), (TIME, "times", "us")):
        own = [row for row in rows if row.metric == metric]
        if own:
            series = {"measured": [row.value for row in own], "chip file": [row.peer.get("chip file") for row in own]}
            title = "Copies, reads and writes" if metric == RATE else "Time to start copies, launches and graphs"
            figures[name] = Bars(title, axis, tuple(row.case for row in own), series, logarithmic=True)
    return figures
