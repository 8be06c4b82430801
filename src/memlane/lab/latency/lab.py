"""Run the lab: the places and fences in order, and the rows, tables and figures made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memlane.lab.figures import Bars
from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.latency.measure import FULL, QUICK, Fenced, Measured, Recorded, fences, measure
from memlane.lab.latency.places import NAMES, places
from memlane.lab.result import NOT_MEASURED, Result, Row, Table
from memlane.launch import LoadedModule, Target

SOURCES = ["src/memlane/audit", "src/memlane/instrument", "src/memlane/measure", "src/memlane/ptx", "src/memlane/driver", "src/memlane/lab"]
REACH_CYCLES, REACH_SHARE = 5.0, 0.02
FENCE = "fences, "
FENCED = ("shared", "L1", "L2", "DRAM")
CASES = (*NAMES, *(FENCE + name for name in FENCED))
TRUTH, ERROR, ISSUED, FENCE_METRIC = "latency, chain average", "error of the mean", "recorded, issue only", "between two clock reads"
"""Metrics of the rows."""


def run(target: Target, request: Request) -> Result:
    """Measure the chosen places and fences."""
    chosen = request.chosen(CASES)
    effort = QUICK if request.quick else FULL
    loaded: dict[str, LoadedModule] = {}
    measured: list[Measured] = []
    fenced: list[Fenced] = []
    cases = Cases()
    for place in cases.each(places(target, request.quick)):
        if place.name not in chosen and FENCE + place.name not in chosen:
            continue
        with cases.measuring(place.name):
            request.tell(place.name)
            if place.chain.name not in loaded:
                loaded[place.chain.name] = target.load(place.chain.module())
            found = measure(target, place, effort, loaded[place.chain.name])
            measured += [found] if place.name in chosen else []
            if FENCE + place.name not in chosen:
                continue
            with cases.measuring(FENCE + place.name):
                request.tell(FENCE + place.name)
                fenced += fences(target, place, found.truth, effort)
    rows = [row for one in measured for row in _rows(one, target)] + [_fence_row(one) for one in fenced] + cases.failed
    tables = {name: table for name, table in {"latency": _table(measured), "fences": _fence_table(fenced)}.items() if table.lines}
    return Result("latency", tuple(rows), tables, _figures(measured, fenced), interrupted=cases.interrupted)


LATENCY = Lab("latency", "Latency of each memory level, and what each probe of `memlane trace` records for it.", CASES, run)


def chip_latencies(rows: Sequence[Row]) -> dict[str, float]:
    """Return the fields of `chip.Latency` whose truth a result has, in cycles."""
    field_of = {place: field for place, field in _FIELDS.items() if field}
    truths = {row.case: row.value for row in rows if row.metric == TRUTH}
    return {field_of[case]: round(value, 1) for case, value in truths.items() if case in field_of and value is not None}


_FIELDS = {
    "shared": "shared",
    "L1": "l1",
    "L2": "l2",
    "DRAM": "dram",
    "constant": "constant",
    "constant miss": "constant_miss",
    "texture": "texture",
    "shared atomic": "shared_atomic",
    "global atomic": "global_atomic",
}
"""Chip-file field of the truth of each place."""


def _rows(measured: Measured, target: Target) -> list[Row]:
    place, truth = measured.place, measured.truth
    peer = {"least": min(measured.truths), "most": max(measured.truths)}
    if place.name in _FIELDS:
        peer["chip file"] = float(getattr(target.chip.latency, _FIELDS[place.name]))
    metric = TRUTH if place.chain.waits else "from issue to issue"
    walked = f"{len(measured.truths)} walks of {measured.steps} steps"
    rows = [Row(place.name, metric, round(truth, 3), "cycles", peer=_rounded(peer), note=walked)]
    for scheme, said in measured.recorded.items():
        rows.append(_recorded_row(measured, scheme, said, f"{walked}; as the scheme claims: {_claims(said)}"))
    return rows


def _recorded_row(measured: Measured, scheme: str, said: Recorded, note: str) -> Row:
    case, truth = f"{scheme}, {measured.place.name}", measured.truth
    if said.problem or said.window is None:
        return Row(case, NOT_MEASURED, None, "", note=said.problem or "no empty window could be measured")
    peer = {"recorded": said.mean, "median": said.median, "window": said.window, "net": said.mean - said.window}
    if len(said.parts) > 1:
        peer |= {f"recorded, {kind}": mean for kind, mean in said.parts.items()}
    if not measured.place.chain.waits:
        return Row(case, ISSUED, round(said.mean, 3), "cycles", peer=_rounded(peer), note=note)
    error = said.mean - said.window - truth
    peer |= {"truth": truth, "error": error, "error, %": 100 * error / truth}
    held = scheme == "dependent" and measured.place.chain.kind in ("load", "atomic")
    reach = round(max(REACH_CYCLES, REACH_SHARE * truth), 3) if held else None
    return Row(case, ERROR, round(abs(error), 3), "cycles", reach, peer=_rounded(peer), note=note)


def _claims(said: Recorded) -> str:
    words = set(said.completeness.values())
    if len(words) == 1:
        return words.pop()
    return ", ".join(f"{kind} {completeness}" for kind, completeness in said.completeness.items()) or "nothing"


def _fence_row(one: Fenced) -> Row:
    note = "waits for the load" if one.waits else "does not wait for the load"
    peer = {"without a load": one.empty, "truth": one.truth}
    return Row(f"{one.fence}, {one.level}", FENCE_METRIC, round(one.recorded, 3), "cycles", peer=_rounded(peer), note=note)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items() if not math.isnan(value)}


def _table(measured: Sequence[Measured]) -> Table:
    head = ("access", "scheme", "truth_cycles", "mean_cycles", "median_cycles", "window_cycles", "net_cycles", "error_cycles", "claims")
    lines: list[tuple[str | float | None, ...]] = []
    for one in measured:
        for scheme, said in one.recorded.items():
            net = None if said.window is None else said.mean - said.window
            error = None if net is None or not one.place.chain.waits else net - one.truth
            lines.append((one.place.name, scheme, one.truth, said.mean, said.median, said.window, net, error, _claims(said)))
    return Table(head, tuple(lines), spare=("median_cycles", "mean_cycles", "window_cycles"))


def _fence_table(fenced: Sequence[Fenced]) -> Table:
    head = ("level", "between load and clock", "mean_cycles", "without a load_cycles", "truth_cycles", "waits")
    return Table(head, tuple((one.level, one.fence, one.recorded, one.empty, one.truth, "yes" if one.waits else "no") for one in fenced))


def _figures(measured: Sequence[Measured], fenced: Sequence[Fenced]) -> dict[str, Bars]:
    figures = {}
    waiting = [one for one in measured if one.place.chain.waits]
    if waiting:
        schemes = dict.fromkeys(scheme for one in waiting for scheme in one.recorded)
        series: dict[str, Sequence[float | None]] = {"truth": [one.truth for one in waiting]}
        series |= {scheme: [_finite(one.recorded[scheme].mean) for one in waiting] for scheme in schemes}
        labels = tuple(one.place.name for one in waiting)
        figures["latency"] = Bars("What each probe records, and the true latency", "cycles", labels, series, logarithmic=True)
    if fenced:
        levels = tuple(dict.fromkeys(one.level for one in fenced))
        truths = {one.level: one.truth for one in fenced}
        by_fence: dict[str, Sequence[float | None]] = {"truth": [truths[level] for level in levels]}
        for fence in dict.fromkeys(one.fence for one in fenced):
            of = {one.level: one.recorded for one in fenced if one.fence == fence}
            by_fence[fence] = [of.get(level) for level in levels]
        figures["fences"] = Bars("Between two clock reads with a load in flight", "cycles", levels, by_fence, logarithmic=True)
    return figures


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
