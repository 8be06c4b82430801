"""Run the two rules on the available devices: times of steps, their parts, and kernels alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from memlane.chip import Chip
from memlane.errors import LaunchError
from memlane.lab.stencil.cases import Case
from memlane.lab.stencil.predict import MODELS, Point, Scaling, point_of
from memlane.launch import Target, observing
from memlane.measure.prediction import Forecaster
from memlane.network import Link, Network, Transfer
from memlane.plan import Span, Timeline
from memlane.stencils.choice import default_variant
from memlane.stencils.scaling import CalibratedModel, KawamuraModel, plan_scaling
from memlane.timeloop.shared import SharedRun

OURS, AS_PUBLISHED = "memlane's", "cut as in the paper"
_TIMELINES = 5
"""Timelines on GPUs, after runs that have warmed them; the median of each part counts."""


@dataclass(frozen=True)
class Effort:
    """Amount of measurement."""

    every: tuple[int, ...]
    """Steps between two exchanges."""
    steps: int
    """Approximate number of steps of a run on GPUs."""
    rounds: int
    """Number of runs on GPUs; the median counts."""
    turns: int
    """Exchanges in a timeline."""
    planes: tuple[int, ...]
    """Planes of slabs for kernels alone."""
    cuts: tuple[str, ...]
    """Tilings of kernels alone."""

    @classmethod
    def of(cls, quick: bool, modelled: bool) -> Effort:
        if quick:
            return cls((1, 2), 60, 3, 1, (4, 16), (OURS,))
        planes = (2, 4, 8, 16, 32, 64, 128) if modelled else (2, 4, 8, 16, 32, 64, 128, 256)
        return cls(tuple(range(1, 9)), 1000, 10, 2, planes, (OURS, AS_PUBLISHED))


@dataclass
class Measured(Scaling):
    """Times of runs, and predictions by models. `by` is the transport. In the runs of `points` exchanges are overlapped, and launches make
    as many steps as memlane chooses."""

    models: dict[str, dict[tuple[int, int], Point]] = field(default_factory=dict)
    """Predictions, by model, of overlapped runs with the measured times of exchanges."""
    behind: dict[tuple[int, int], Point] = field(default_factory=dict)
    """Runs with undivided launches and each exchange behind all planes, by devices and steps between exchanges."""
    expected_behind: dict[tuple[int, int], Point] = field(default_factory=dict)
    """Predictions of those by the model memlane."""
    single: dict[tuple[int, int], Point] = field(default_factory=dict)
    """Overlapped runs with one step per launch, as in the paper, where those of `points` have several."""

    @property
    def as_published(self) -> Measured:
        """Return the runs with one step per launch, which is what the paper measured."""
        return replace(self, points={**self.points, **self.single})

    def fastest(self, devices: int) -> tuple[int, bool]:
        """Return the steps between exchanges that are fastest, and whether the exchange is overlapped there."""
        return _fastest(self.points, self.behind, devices)

    def expected_fastest(self, devices: int) -> tuple[int, bool]:
        """Return the result of `fastest` as predicted by the model memlane."""
        return _fastest(self.models["memlane"], self.expected_behind, devices)

    def step_us(self, devices: int, k: int, overlapped: bool) -> float:
        """Return the measured time of a step."""
        return (self.points if overlapped else self.behind)[devices, k].step

    def off(self, model: str, devices: int, k: int) -> float:
        """Return the predicted time over the measured one, less 1."""
        return self.models[model][devices, k].step / self.points[devices, k].step - 1.0


def _fastest(overlapped: Mapping[tuple[int, int], Point], behind: Mapping[tuple[int, int], Point], devices: int) -> tuple[int, bool]:
    times = {(k, True): point.step for (count, k), point in overlapped.items() if count == devices}
    times |= {(k, False): point.step for (count, k), point in behind.items() if count == devices}
    return min(times, key=lambda one: times[one])


def measure(case: Case, targets: Sequence[Target], counts: Iterable[int], transport: str, effort: Effort) -> Measured:
    """Run a case on several numbers of devices.

    Raises LaunchError if fields differ from those of one device; StencilError if it cannot run.
    """
    found = Measured(case, transport, models={model: {} for model in MODELS})
    values, one_step = case.values(), default_variant(case.problem, case.problem.rules[0])
    alone = SharedRun(case.problem, values, targets=targets[:1])
    expected = _fields(alone, case, [k * effort.turns for k in effort.every])
    found.points[1, 1] = _timed(alone, effort)
    if alone.variant.steps > 1:
        single = SharedRun(case.problem, values, targets=targets[:1], exchange_every=1, variant=one_step)
        found.single[1, 1] = _timed(single, effort, expected.get(effort.turns))
    for count in counts:
        if count == 1:
            continue
        steps_per_launch: dict[tuple[int, bool], int] = {}
        for k in effort.every:
            if k > case.shape[0] // count:
                found.notes.append(f"{count} devices: {k} steps reach further than a slab of {case.shape[0] // count} planes")
                continue
            options: dict[str, Any] = {"targets": targets[:count], "exchange_every": k, "transport": transport}
            for overlap, points in ((True, found.points), (False, found.behind)):
                run = SharedRun(case.problem, values, **options, overlap=overlap)
                points[count, k] = _timed(run, effort, expected[k * effort.turns])
                steps_per_launch[k, overlap] = run.variant.steps
            if steps_per_launch[k, True] > 1:
                run = SharedRun(case.problem, values, **options, overlap=True, variant=one_step)
                found.single[count, k] = _timed(run, effort, expected[k * effort.turns])
        for model in MODELS:
            found.models[model] |= _modelled(found, model, count, steps_per_launch, targets[0].chip, True)
        found.expected_behind |= _modelled(found, "memlane", count, steps_per_launch, targets[0].chip, False)
    for model in MODELS:
        one = plan_scaling(
            case.problem.rules[0], case.problem.grid, 1, 1, chip=targets[0].chip, model=model, swap=case.problem.swap,
            steps_per_launch=alone.variant.steps if model == "memlane" else 1,
        )  # fmt: skip
        found.models[model][1, 1] = point_of(one.rows[0])
    return found


def _fields(run: SharedRun, case: Case, every: Sequence[int]) -> Mapping[int, np.ndarray]:
    """Return the field after each of `every` steps, on one device."""
    found = {}
    for step in range(1, max(every) + 1):
        if run.target.modelled:
            run.timeline(1)  # its kernel is compiled for the clock once, and used again
        else:
            run.steps(1)
        if step in every:
            found[step] = run[case.field].gather()
    return found


def _timed(run: SharedRun, effort: Effort, expected: np.ndarray | None = None) -> Point:
    """Return the times of a step: by the emulator's clock, or on GPUs the medians of runs of many steps and of timelines after them.

    Raises LaunchError if a new run leaves other fields than `expected` after `effort.turns` exchanges.
    """
    k = run.exchange_every
    steps = effort.turns * k
    line = run.timeline(steps) if run.target.modelled else None
    if line is None:
        run.steps(steps)
    if expected is not None and not np.array_equal(run[run.problem.swap[0][1]].gather(), expected):
        shape = " x ".join(map(str, run.problem.grid.shape))
        raise LaunchError(
            f"{run.problem.rules[0].name} on {shape}, {len(run.targets)} devices, exchanged every {k} steps: after {steps} steps fields "
            "differ from those of one device"
        )
    if line is not None:
        return parts_of(line, len(run.targets), steps)
    count = k * max(1, effort.steps // k)
    run.steps(count)
    times = []
    for _ in range(effort.rounds):
        began = time.perf_counter()
        run.steps(count)
        times.append(1e6 * (time.perf_counter() - began) / count)
    parts = [parts_of(run.timeline(steps), len(run.targets), steps) for _ in range(_TIMELINES)]
    medians = {one.name: statistics.median(getattr(point, one.name) for point in parts) for one in fields(Point)}
    return Point(**{**medians, "step": statistics.median(times)})


def parts_of(line: Timeline, devices: int, steps: int) -> Point:
    """Return the parts of a step by a timeline.

    They are the launches between the borders of the slowest device, copies (or puts and waits) of each exchange from when all devices send
    to the last arrival, and the longest chain of border launches.
    """
    inner, border, exchanges = [0.0] * devices, dict[tuple[int | None, int], float](), dict[tuple[int, ...], list[Span]]()
    for span in line.spans:
        if span.kind in ("copy", "put", "wait") and "free" not in span.name:
            exchanges.setdefault(span.turns, []).append(span)
        elif span.kind == "launch" and span.name.endswith("border"):
            queue = span.queues[0]
            border[queue] = border.get(queue, 0.0) + span.elapsed_ns
        elif span.kind == "launch" and span.queues[0][0] is not None:
            inner[span.queues[0][0]] += span.elapsed_ns
    exchange = sum(max(one.end_ns for one in spans) - _all_send_ns(spans) for spans in exchanges.values())
    scale = 1e3 * steps
    return Point(line.elapsed_ns / scale, max(inner) / scale, exchange / scale, max(border.values(), default=0.0) / scale)


def _all_send_ns(spans: Sequence[Span]) -> float:
    """Return when the last of the devices that send begins: an early one does not wait for it."""
    first: dict[int | None, float] = {}
    sends = [span for span in spans if span.kind != "wait" and not span.name.endswith(", from the host")]
    for span in sends or spans:
        device = span.queues[0][0]
        first[device] = min(span.start_ns, first.get(device, span.start_ns))
    return max(first.values())


def _modelled(
    found: Measured, model: str, count: int, steps_per_launch: Mapping[tuple[int, bool], int], chip: Chip, overlap: bool
) -> dict[tuple[int, int], Point]:
    """Return a model's predictions for a number of devices, given the measured times of exchanges as a table, as in the paper.

    Exchanges behind all planes are used: nothing runs concurrently, and no device waits there for the borders of another.
    """
    case, predicted = found.case, {}
    measured = {k: one.exchange * k for (devices, k), one in found.behind.items() if devices == count}
    if not measured:
        return {}
    table = tuple((float(k * case.face_bytes), us) for k, us in sorted(measured.items()))
    network = Network("measured", "Exchanges as measured here", count, {"measured": Link("measured", Transfer(times=table), "included")})
    for k in measured:
        plan = plan_scaling(
            case.problem.rules[0], case.problem.grid, count, k, chip=chip, network=network, model=model, swap=case.problem.swap, axes=1,
            steps_per_launch=steps_per_launch[k, overlap] if model == "memlane" else 1, overlap=overlap,
        )  # fmt: skip
        predicted[count, k] = point_of(plan.rows[0])
    return predicted


@dataclass(frozen=True)
class Kernel:
    """The time of one step of a slab on one device."""

    case: Case
    cut: str
    us: float
    modelled: Mapping[str, float]
    """Times by model."""
    predicted_us: float | None = None
    """Time of all launches of a step by the model of kernels, for the chip of an emulator; None where time is measured."""


def measure_kernel(case: Case, target: Target, cut: str, effort: Effort) -> Kernel:
    """Time a step of a slab on one device, a launch each: our kernel, or ours tiled as the paper describes its own."""
    variant = case.as_published() if cut == AS_PUBLISHED else default_variant(case.problem, case.problem.rules[0])
    run = SharedRun(case.problem, case.values(), targets=[target], exchange_every=1, variant=variant)
    point = _timed(run, replace(effort, turns=1))
    paper = KawamuraModel.of(case.problem, target.chip).kernel_us(case.shape)
    ours = CalibratedModel.of(case.problem, target.chip).on_share(case.shape, _bytes(case)).launch(case.shape, 1, False).us
    predicted = _predicted_us(run) if target.modelled else None
    return Kernel(case, cut, point.step, {"kawamura": paper, "memlane": ours}, predicted)


def _predicted_us(run: SharedRun) -> float:
    """Predict the launches of a step for the chip of an emulator, one after another."""
    forecaster = Forecaster([run.target.chip])
    with observing(forecaster):
        run.steps(1)
    return sum(one.predictions[0].us * one.launches for one in forecaster.forecasts if one.predictions)


def _bytes(case: Case) -> int:
    """Return the bytes of all fields."""
    return case.shape[0] * case.face_bytes * len(case.problem.fields)
