"""Present the results as rows for the result file, and as tables for people and spreadsheets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from memlane.lab.result import NOT_MEASURED, Row, Table
from memlane.lab.stencil.cases import HIMENO, SEVEN, Case
from memlane.lab.stencil.claims import Claim, chosen_by, hidden_share, lost_by_choice
from memlane.lab.stencil.measure import Kernel, Measured
from memlane.lab.stencil.predict import CHIP, MODELS, NETWORK, Scaling
from memlane.number_format import plural

CLAIM = "found in 2012"
BEST = "time of a step, best k"
_TWO = 2
"""Number of devices for which goals are stated."""


def rows(
    predicted: Sequence[Scaling], measured: Sequence[Measured], kernels: Sequence[Kernel], said: Sequence[Claim], clock: str
) -> list[Row]:
    """Return everything as numbers. `clock`: `measured`, or `modelled` if devices are emulated."""
    found = [row for one in predicted for row in _predicted_rows(one)]
    found += [row for run in measured for row in _measured_rows(run, clock)]
    for kernel in kernels:
        peer = {f"model {model} us": round(us, 3) for model, us in kernel.modelled.items()}
        found.append(Row(f"{kernel.case.title}, {kernel.cut}", f"a step on one device, {clock}", round(kernel.us, 3), "us", peer=peer))
    for claim in said:
        value = None if claim.value is None else round(claim.value, 4)
        found.append(Row(f"fig. {claim.figure}: {claim.found}; {claim.by}", CLAIM, value, "", note=f"{claim.holds}: {claim.here}"))
    return found


def _predicted_rows(one: Scaling) -> Iterator[Row]:
    for devices in one.devices:
        over = one.over_steps(devices)
        best = one.best(devices)
        peer = {"k": float(best), "gain %": round(100 * one.gain(devices), 2)} | {f"k = {k} us": round(over[k].step, 2) for k in over}
        case = f"{one.case.title}, {devices} of {CHIP}, {NETWORK}, model {one.by}"
        yield Row(case, f"{BEST}, predicted", round(over[best].step, 2), "us", peer=peer, note=f"k = 1 is bound by {over[1].bound}")
    for note in one.notes:
        yield Row(f"{one.case.title}, model {one.by}", NOT_MEASURED, None, "", note=f"not predicted: {note}")


def _measured_rows(run: Measured, clock: str) -> Iterator[Row]:
    alone = run.points[1, 1].step
    for devices in run.devices:
        over, best = run.over_steps(devices), run.best(devices)
        fastest, overlapped = run.fastest(devices)
        step = run.step_us(devices, fastest, overlapped)
        case = f"{run.case.title}, {plural(devices, 'device')}" + (f", {run.by}" if devices > 1 else "")
        peer = {} if devices == 1 else {"k": float(fastest)} | {f"k = {k} us": round(over[k].step, 2) for k in over}
        peer |= {f"k = {k} us, not overlapped": round(one.step, 2) for (count, k), one in run.behind.items() if count == devices}
        peer |= {f"k = {k} us, one step a launch": round(one.step, 2) for (count, k), one in run.single.items() if count == devices}
        limit = 11.0 if devices == _TWO and run.by != "host" and run.case == Case(SEVEN, (256, 256, 256)) else None
        note = "" if limit is None or step <= limit else f"each step waits for launches and an exchange by {run.by}"
        note = _joined("" if overlapped else "the exchange follows all planes", note)
        yield Row(case, f"{BEST}, {clock}", round(step, 2), "us", limit, peer=peer, note=note)
        if devices == 1:
            continue
        faster = round(alone / step, 4)
        wanted = _SPEED_UP.get(run.case) if devices == _TWO and run.by != "host" else None
        note = "" if wanted is None or faster >= wanted else "the exchange is not hidden whole"
        yield Row(case, f"speed-up over one device, {clock}", faster, "", wanted, "higher", note=note)
        gain, paper = round(over[1].step / over[best].step, 4), run.as_published
        wanted = 1.21 if run.case.rule == HIMENO and run.by == "host" and devices == _TWO else None
        note = "" if wanted is None or gain >= wanted else f"k = 1 is bound by {over[1].bound}"
        yield Row(case, f"gain of the best k over k = 1, {clock}", gain, "", wanted, "higher", note=note)
        hidden = round(hidden_share(run, devices), 4)
        note = "" if hidden <= 1.05 else "launches of borders and of the planes between them share the device"
        yield Row(case, f"k = 1 over max(inner, exchange) + borders, {clock}", hidden, "", 1.05, note=note)
        for model in MODELS:
            seen = paper if model == "kawamura" else run  # the model kawamura has one step per launch
            lost = round(1 + lost_by_choice(seen, model, devices), 4)
            note = "" if lost <= 1.05 else f"chose k = {chosen_by(seen, model, devices)}"
            yield Row(case, f"k chosen by model {model} over the best, overlapped, {clock}", lost, "", note=note)
            errors = [abs(seen.off(model, devices, k)) for k in over]
            peer = {f"k = {k}": round(seen.off(model, devices, k), 4) for k in over}
            mean, worst = round(statistics.fmean(errors), 4), round(max(errors), 4)
            limit = 0.1 if model == "memlane" else None
            note = "" if limit is None or mean <= limit else "predicted over measured, less 1, beside it"
            yield Row(case, f"error of model {model}, average", mean, "", limit, peer={**peer, "worst": worst}, note=note)
        k, overlaps = run.expected_fastest(devices)
        lost = round(run.step_us(devices, k, overlaps) / step, 4)
        note = "" if lost <= 1.05 else f"chose k = {k}, {_word(overlaps)}; fastest: k = {fastest}, {_word(overlapped)}"
        yield Row(case, f"k and overlap chosen by model memlane over the best, {clock}", lost, "", 1.05, note=note)
    for note in run.notes:
        yield Row(f"{run.case.title}, {run.by}", NOT_MEASURED, None, "", note=note)


def _word(overlapped: bool) -> str:
    return "overlapped" if overlapped else "not overlapped"


def _joined(*notes: str) -> str:
    return "; ".join(one for one in notes if one)


_SPEED_UP = {Case(SEVEN, (256, 256, 256)): 1.5, Case(SEVEN, (512, 512, 512)): 1.95, Case(HIMENO, (256, 128, 128)): 1.75}
"""Speed-up that two H200s should reach over one."""


def tables(
    predicted: Sequence[Scaling], measured: Sequence[Measured], kernels: Sequence[Kernel], said: Sequence[Claim], clock: str
) -> dict[str, Table]:
    """Return the non-empty tables, by name."""
    found = {
        "predicted": _best(predicted),
        "predicted_steps": _all(predicted),
        clock: _measured(measured),
        f"{clock}_kernels": Table(
            ("rule", "planes", "kernel", f"{clock}, us", "predicted, us", *(f"model {model}, us" for model in MODELS)),
            tuple(_kernel_line(one) for one in kernels),
        ),
        "claims": Table(
            ("figure", "holds", "found in 2012", "by", "here"),
            tuple((one.figure, one.holds, one.found, one.by, one.here) for one in said),
            spare=("here", "by"),
        ),
    }
    return {name: table for name, table in found.items() if table.lines}


def _kernel_line(one: Kernel) -> tuple[str | float | None, ...]:
    predicted = None if one.predicted_us is None else round(one.predicted_us, 2)
    by_model = (round(one.modelled[model], 2) for model in MODELS)
    return (one.case.title, str(one.case.shape[0]), one.cut, round(one.us, 2), predicted, *by_model)


def _best(predicted: Sequence[Scaling]) -> Table:
    """Return a line for each number of devices: k = 1 next to the best k."""
    lines: list[tuple[str | float | None, ...]] = []
    for one in predicted:
        for devices in one.devices:
            over, best = one.over_steps(devices), one.best(devices)
            times = (round(over[1].step, 1), round(over[1].inner, 1), round(over[1].exchange, 1), round(over[best].step, 1))
            lines.append((one.case.title, one.by, str(devices), *times, str(best), round(100 * one.gain(devices), 1), over[1].bound))
    head = ("rule", "model", "devices", "k = 1, us", "inner, us", "exchange, us", "best k, us", "k", "gain, %", "bound by")
    return Table(head, tuple(lines), spare=("inner, us", "exchange, us"))


def _all(predicted: Sequence[Scaling]) -> Table:
    """Return the data of figures 7 to 9."""
    lines = [
        (one.case.title, one.by, str(devices), str(k), point.step, point.inner, point.exchange, point.boundary)
        for one in predicted
        for (devices, k), point in sorted(one.points.items())
    ]
    return Table(("rule", "model", "devices", "k", "step, us", "inner, us", "exchange, us", "borders, us"), tuple(lines), printed=False)


_NOT_OVERLAPPED = ("not overlapped, us", "exchange not overlapped, us")
_SINGLE = "one step a launch, us"


def _measured(measured: Sequence[Measured]) -> Table:
    """Return the data of figures 8 and 10 to 13 on the available devices."""
    lines: list[tuple[str | float | None, ...]] = []
    for run in measured:
        for (devices, k), point in sorted(run.points.items()):
            by = run.by if devices > 1 else "-"
            expected = [round(run.models[model][devices, k].step, 2) for model in MODELS]
            parts = [round(one, 2) for one in (point.step, point.inner, point.exchange, point.boundary)]
            behind = run.behind.get((devices, k))
            alone = (None, None) if behind is None else (round(behind.step, 2), round(behind.exchange, 2))
            single = round(run.as_published.points[devices, k].step, 2)
            lines.append((run.case.title, str(devices), by, str(k), *parts, *expected, *alone, single))
    models = tuple(f"model {model}, us" for model in MODELS)
    head = ("rule", "devices", "transport", "k", "step, us", "inner, us", "exchange, us", "borders, us", *models, *_NOT_OVERLAPPED, _SINGLE)
    return Table(head, tuple(lines), spare=("borders, us", _NOT_OVERLAPPED[1], _SINGLE))
