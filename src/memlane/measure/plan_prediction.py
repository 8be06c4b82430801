"""How long launches and whole plans would take on other chips: kernels by the model of kernels, copies by the chip files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

from memlane.chip import Chip, load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch, BadPlan
from memlane.launch import KernelCall, Launch, Target, watched
from memlane.measure.apart import apart
from memlane.measure.memory import Snapshot
from memlane.measure.prediction import predict_launch
from memlane.measure.steps import StepResult, plan_apart
from memlane.model import Work, fixed_work, simulate
from memlane.model.kernel import NOT_MODELLED, Prediction
from memlane.number_format import duration, percent, plural
from memlane.plan import Execution, HostCall, Put, Timeline, Wait
from memlane.targets import BoundPlan
from memlane.titles import kernel_label

CallTime = Callable[[HostCall], float]
"""How long a host function takes, in ns."""
ALIGNMENT = 256
"""Bytes: what an address is a multiple of says which sectors and lines are accessed, the rest of it does not."""


@dataclass(frozen=True)
class PlanPrediction:
    """When the steps of a plan would run on given chips, and how long each of its launches would take there."""

    chips: tuple[str, ...]
    """One for each device of the plan."""
    timeline: Timeline
    """As `BoundPlan.time` gives it: `ml.draw` draws it."""
    launches: tuple[StepResult[Prediction], ...]
    """The launches in the order of the plan. Those that are alike share one prediction."""

    @property
    def us(self) -> float:
        """From the start of the first step to the end of the last."""
        return self.timeline.elapsed_ns / 1e3

    @property
    def missing(self) -> tuple[str, ...]:
        """Rates that the files of the chips lack, so that the launches were predicted without them."""
        found = [f"{one.chip}: {rate}" for one in self._alike for rate in one.missing]
        return tuple(dict.fromkeys(found))

    @property
    def _alike(self) -> list[Prediction]:
        """Each prediction once."""
        return list({id(one.result): one.result for one in self.launches if one.result is not None}.values())

    def __str__(self) -> str:
        """The table of the timeline, a line for each kind of launch, and what is not known."""
        lines = [str(self.timeline)]
        for one in self._alike:
            count = sum(step.result is one for step in self.launches)
            kernel_us = one.us - one.launch_us
            how = f"limited by {one.limiting}"
            if one.share < 1:
                how += f"; sampled: {percent(one.share)} of the blocks ran, +-{duration(1e3 * one.spread_us)} between parts of the sample"
            lines.append(f"{kernel_label(one.kernel)}: {duration(1e3 * kernel_us)}, {plural(count, 'launch')} ({one.chip}, {how})")
        lines += (
            [f"the chip file has no rates for these parts, so they are assumed to be unlimited: {', '.join(self.missing)}"]
            if self.missing
            else []
        )
        return "\n".join([*lines, f"Predicted, nothing was measured. Not modelled: {'; '.join(NOT_MODELLED)}."])


@overload
def predict(
    call: KernelCall, *args: object, chip: str | Chip = "h200", every_block: bool = False, most_cycles: int | None = None
) -> Prediction: ...


@overload
def predict(
    call: BoundPlan,
    *,
    chip: str | Chip | Sequence[str | Chip] = "h200",
    every_block: bool = False,
    most_cycles: int | None = None,
    run_kernels: bool = True,
    call_ns: CallTime | None = None,
) -> PlanPrediction: ...


def predict(
    call: KernelCall | BoundPlan,
    *args: object,
    chip: str | Chip | Sequence[str | Chip] = "h200",
    every_block: bool = False,
    most_cycles: int | None = None,
    run_kernels: bool = True,
    call_ns: CallTime | None = None,
) -> Prediction | PlanPrediction:
    """Predict how long `call(*args)` takes on a chip that need not be present. The arrays among `args` are put back.

        prediction = ml.predict(kernel[grid, block], out, a, n, chip="a100")
        prediction.us, prediction.limiting           # between two events, caches warm; "DRAM", "issue slots", ..., or "latency"
        print(prediction)                            # with what each part of the chip does, and what the warps wait for
        line = ml.predict(ml.BoundPlan(plan, ...), chip=["h200", "h100"]).timeline

    The target has to be an emulator; its own chip does not matter. Some of the blocks run, on some multiprocessors, and stand for the
    rest; all of them run where blocks wait for each other, and with `every_block`. A kernel that still runs after `most_cycles` (by default
    an eighth of a second on an H200) counts as endless.

    A bound plan runs once, step after step, and gives a timeline of all its devices, with a prediction of each launch; `chip` names one
    for all devices, or one for each. Copies, puts, waits and the start of launches take what the chip files say, host functions what
    `call_ns(call)` returns (nothing without it). Launches that are alike (kernel, extents, numbers) are predicted once, on the memory
    that the first of them finds. Without `run_kernels` only the samples of launches run and the arrays stay as they were, which is
    quicker; it is for kernels whose work does not depend on what earlier ones computed.

    What the model leaves out, and how far it is from measured times, is on the page prediction.md. Raises BadLaunch for what an ordinary
    launch would refuse, BadPlan with the step for a launch of a plan, and ChipError for an unknown chip or one whose file lacks a number of
    a link that the plan needs; Deadlock, with the line, for a kernel that does not end.
    """
    if isinstance(call, BoundPlan):
        return _of_plan(call, chip, (every_block, most_cycles), run_kernels, call_ns)
    if not isinstance(chip, str | Chip):
        raise BadLaunch("a launch is predicted for one chip: name it as chip='a100', or call predict for each")
    launch = call.bind(*args)
    before = Snapshot(launch) if watched() else None  # what other observers make of the launch changes its arrays
    try:
        with apart(launch):
            return predict_launch(launch, load(chip) if isinstance(chip, str) else chip, every_block, most_cycles)
    finally:
        if before is not None:
            before.restore()


def _of_plan(
    bound: BoundPlan, chip: str | Chip | Sequence[str | Chip], how: tuple[bool, int | None], run_kernels: bool, call_ns: CallTime | None
) -> PlanPrediction:
    """Predict when each step of a plan would run."""
    chips = _chips(chip, len(bound.targets))
    emulators = [_emulator(target) for target in bound.targets]
    fixed = [fixed_work(execution, chips) for execution in bound.order]
    forecast = _Forecast(chips, emulators, how)
    work: list[Work] = []
    launches: list[StepResult[Prediction]] = []
    with plan_apart(bound):
        for execution, given, run in bound.one_by_one():
            own = fixed[execution.number]
            if given and not isinstance(execution.action, Put | Wait):
                found = forecast.of(execution, given)
                launches += [
                    StepResult(
                        "launch", kernel_label(one.kernel.title), execution.path, execution.turns, one.kernel.target.name, prediction
                    )
                    for one, prediction in zip(given, found, strict=True)
                ]
                own = replace(own, elapsed_ns=1e3 * max(one.us - one.launch_us for one in found))
            elif isinstance(execution.action, HostCall) and call_ns is not None:
                own = replace(own, elapsed_ns=call_ns(execution.action))
            work.append(own)
            if run_kernels or not given:
                run()
    return PlanPrediction(tuple(one.name for one in chips), simulate(bound.order, work), tuple(launches))


@dataclass
class _Forecast:
    """Predicts the launches of a plan, those that are alike once: the same kernel on the same chip, with the same extents and numbers."""

    chips: Sequence[Chip]
    emulators: Sequence[Emulator]
    how: tuple[bool, int | None]
    """Whether every block runs, and after how many cycles a launch counts as endless."""

    def __post_init__(self) -> None:
        self._known: dict[tuple[object, ...], Prediction] = {}

    def of(self, execution: Execution, launches: Sequence[Launch]) -> list[Prediction]:
        """Predict the launches of one execution. Raises BadPlan where several run together and wait for each other."""
        found = []
        for launch in launches:
            device = next(number for number, one in enumerate(self.emulators) if one is launch.kernel.target)
            if len(launches) > 1 and not self.emulators[device].may_leave_out_blocks(launch):
                raise BadPlan(
                    f"{execution}: its kernels run together and wait for each other, so none is predicted by itself; "
                    "BoundPlan.time() runs them with the emulator's clock"
                )
            found.append(self._one(execution, launch, device))
        return found

    def _one(self, execution: Execution, launch: Launch, device: int) -> Prediction:
        numbers = tuple(one.data if one.memory is None else (one.memory[0] % ALIGNMENT, one.memory[1]) for one in launch.arguments)
        chip = self.chips[device]
        module = launch.kernel.ref.module
        alike = chip, module, launch.kernel.name, launch.grid, launch.block, launch.shared_bytes, launch.cluster, numbers
        if alike not in self._known:
            try:
                self._known[alike] = predict_launch(launch, chip, *self.how)
            except BadLaunch as error:
                raise BadPlan(f"{execution}: {error}") from None
        return self._known[alike]


def _chips(chip: str | Chip | Sequence[str | Chip], devices: int) -> list[Chip]:
    """The chip of each device."""
    given: list[str | Chip] = [chip] * devices if isinstance(chip, str | Chip) else list(chip)
    if len(given) != devices:
        raise BadPlan(f"the plan is bound to {plural(devices, 'device')}, and `chip` names {len(given)}: name one for each, or one for all")
    return [load(one) if isinstance(one, str) else one for one in given]


def _emulator(target: Target) -> Emulator:
    if not isinstance(target, Emulator):
        raise BadPlan(
            f"times are predicted by the emulator, and the plan is bound to {target.name}: bind it to ml.devices('emulator:h200', 1)"
        )
    return target
