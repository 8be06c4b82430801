"""Make the figures of the publication from predictions and measurements."""

from __future__ import annotations

from collections.abc import Sequence

from memlane.lab.figures import Figure, Lines, Panels
from memlane.lab.stencil.cases import HIMENO, SEVEN
from memlane.lab.stencil.measure import Kernel, Measured
from memlane.lab.stencil.predict import CHIP, MODELS, NETWORK, Scaling

_STEP = "us a step"
_CLOCKS = {"measured": "measured", "modelled": "modelled by the emulator's clock"}
_FIGURE = {SEVEN: "fig_7", HIMENO: "fig_9"}
_OVER_STEPS = {SEVEN: "fig_10_11", HIMENO: "fig_12_13"}


def figures(predicted: Sequence[Scaling], measured: Sequence[Measured], kernels: Sequence[Kernel], clock: str) -> dict[str, Figure]:
    """Return the non-empty figures, by name. `clock`: `measured`, or `modelled` if devices are emulated."""
    found: dict[str, Figure] = {}
    for case in dict.fromkeys(one.case for one in predicted):
        own = [one for one in predicted if one.case == case and one.points]
        suffix = "" if case.is_published else f"_{'x'.join(map(str, case.shape))}"
        if own:
            found[_FIGURE[case.rule] + suffix] = Panels(tuple(_scaling(one) for one in own), shared=True)
            if case.rule == SEVEN:
                found["fig_8" + suffix] = Panels(tuple(_parts(one, f"{CHIP}, {NETWORK}, model {one.by}") for one in own), shared=True)
    for run in measured:
        name = f"{'x'.join(map(str, run.case.shape))}_{run.by}"
        panels = tuple(_over_steps(run, count, clock) for count in run.devices if count > 1)
        if panels:
            found[f"{_OVER_STEPS[run.case.rule]}_{clock}_{name}"] = Panels(panels)
            found[f"fig_8_{clock}_{run.case.rule}_{name}"] = _parts(run.as_published, f"{clock}, {run.by}")
    panels = tuple(_kernels([one for one in kernels if one.case.rule == rule], clock) for rule in _FIGURE)
    if kernels:
        found[f"fig_14_{clock}"] = Panels(tuple(one for one in panels if one.series))
    return found


def _scaling(one: Scaling) -> Lines:
    every = sorted({k for _, k in one.points})
    series = {f"k = {k}": [(float(n), one.points[n, k].step) for n in one.devices if (n, k) in one.points] for k in every}
    return Lines(f"{one.case.title}; {CHIP}, {NETWORK}, model {one.by}", "devices", _STEP, series, logarithmic=True, doubling=True)


def _parts(one: Scaling, by: str) -> Lines:
    points = {count: one.points[count, 1] for count in one.devices if (count, 1) in one.points}
    series = {
        "inner region": [(float(count), point.inner) for count, point in points.items()],
        "exchange": [(float(count), point.exchange) for count, point in points.items() if count > 1],
        "step": [(float(count), point.step) for count, point in points.items()],
    }
    return Lines(f"{one.case.title}, k = 1; {by}", "devices", _STEP, series, doubling=True)


def _over_steps(run: Measured, count: int, clock: str) -> Lines:
    over = run.over_steps(count)
    series = {_CLOCKS[clock]: [(float(k), point.step) for k, point in over.items()]}
    series |= {f"{_CLOCKS[clock]}, not overlapped": [(float(k), one.step) for (devices, k), one in run.behind.items() if devices == count]}
    if any(devices == count for devices, _ in run.single):
        single = run.as_published.over_steps(count)
        series |= {f"{_CLOCKS[clock]}, one step a launch": [(float(k), point.step) for k, point in single.items()]}
    series |= {f"model {model}": [(float(k), run.models[model][count, k].step) for k in over] for model in MODELS}
    return Lines(f"{run.case.title}, {count} devices, {run.by}", "steps between two exchanges", _STEP, series)


def _kernels(kernels: Sequence[Kernel], clock: str) -> Lines:
    cuts = dict.fromkeys(one.cut for one in kernels)
    series = {f"{_CLOCKS[clock]}, {cut}": [(float(one.case.shape[0]), one.us) for one in kernels if one.cut == cut] for cut in cuts}
    first = [one for one in kernels if one.cut == next(iter(cuts))]
    series |= {f"model {model}": [(float(one.case.shape[0]), one.modelled[model]) for one in first] for model in MODELS if first}
    title = f"{first[0].case.rule}, Z x {first[0].case.shape[1]} x {first[0].case.shape[2]}, one device" if first else ""
    return Lines(title, "planes along Z", _STEP, series)
