"""Predict how long launches and whole plans take on other chips: kernels by the model of kernels, copies by the chip files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

from memlane.chip import Chip, load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch, BadPlan
from memlane.launch import KernelCall, Launch, Target, has_observers
from memlane.measure.isolation import without_observers
from memlane.measure.memory import Snapshot
from memlane.measure.prediction import predict_launch
from memlane.measure.steps import StepResult, plan_without_observers
from memlane.model import Work, fixed_work, simulate
from memlane.model.kernel import NOT_MODELLED, Prediction
from memlane.number_format import duration, percent, plural
from memlane.plan import Execution, HostCall, Put, Timeline, Wait
from memlane.targets import BoundPlan
from memlane.titles import kernel_label

CallTime = Callable[[HostCall], float]
"""Function that returns how long a host function takes, in ns."""
ALIGNMENT = 256
"""Modulus of addresses in bytes: the remainder determines the sectors and lines accessed, the rest does not matter."""


@dataclass(frozen=True)
class PlanPrediction:
    """Predicted timeline of a plan on given chips, and predicted durations of its launches."""

    chips: tuple[str, ...]
    """Names of the chips, one per device of the plan."""
    timeline: Timeline
    """Timeline as from `BoundPlan.time`: `ml.draw` draws it."""
    launches: tuple[StepResult[Prediction], ...]
    """Launches in the order of the plan. Equal launches share one prediction."""

    @property
    def us(self) -> float:
        """Microseconds from the start of the first step to the end of the last."""
        return self.timeline.elapsed_ns / 1e3

    @property
    def missing(self) -> tuple[str, ...]:
        """Rates that the chip files lack, so that launches were predicted without them."""
        found = [f"{one.chip}: {rate}" for one in self._alike for rate in one.missing]
        return tuple(dict.fromkeys(found))

    @property
    def _alike(self) -> list[Prediction]:
        """The distinct predictions."""
        return list({id(one.result): one.result for one in self.launches if one.result is not None}.values())

    def __str__(self) -> str:
        """Return the table of the timeline, a line for each kind of launch, and what is unknown."""
        lines = [str(self.timeline)]
        for one in self._alike:
            count = sum(step.result is one for step in self.launches)
            kernel_us = one.us - one.launch_us
            how = f"limited by {one.limiting}"
            if one.share < 1:
                spread = duration(1e3 * one.spread_us)
                how += f"; {percent(one.share)} of the blocks ran; predictions from parts of this sample differ by +-{spread}"
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
    """Predict how long `call(*args)` takes on a chip that need not be present. The arrays among `args` are restored.

        prediction = ml.predict(kernel[grid, block], out, a, n, chip="a100")
        prediction.us, prediction.limiting           # between two events, caches warm; "DRAM", "issue slots", ..., or "latency"
        print(prediction)                            # with what each part of the chip does, and what the warps wait for
        line = ml.predict(ml.BoundPlan(plan, ...), chip=["h200", "h100"]).timeline

    The target has to be an emulator; its own chip does not matter. A sample of the blocks runs, on some multiprocessors, and represents the
    rest; all blocks run if they wait for each other, or with `every_block`. A kernel that still runs after `most_cycles` (by default an
    eighth of a second on an H200) counts as endless.

    A bound plan runs once, step after step, and returns a timeline of all its devices, with a prediction of each launch; `chip` names one
    chip for all devices, or one for each. Copies, puts, waits and launch starts take the times of the chip files, host functions the times
    that `call_ns(call)` returns (zero without it). Equal launches (kernel, extents, numbers) are predicted once, on the memory that the
    first of them finds. Without `run_kernels` only the samples of launches run and the arrays stay unchanged, which is faster; use it for
    kernels whose work does not depend on earlier results.

    The page prediction.md lists what the model leaves out and its error against measured times. Raises BadLaunch for what an ordinary
    launch would refuse, BadPlan with the step for a launch of a plan, and ChipError for an unknown chip or one whose file lacks a number of
    a link that the plan needs; Deadlock, with the line, for a kernel that does not end.
    """
    if isinstance(call, BoundPlan):
        return _of_plan(call, chip, (every_block, most_cycles), run_kernels, call_ns)
    if not isinstance(chip, str | Chip):
        raise BadLaunch("a launch is predicted for one chip: name it as chip='a100', or call predict for each")
    launch = call.bind(*args)
    before = Snapshot(launch) if has_observers() else None  # the launches of other observers change its arrays
    try:
        with without_observers(launch):
            return predict_launch(launch, load(chip) if isinstance(chip, str) else chip, every_block, most_cycles)
    finally:
        if before is not None:
            before.restore()


def _of_plan(
    bound: BoundPlan, chip: str | Chip | Sequence[str | Chip], how: tuple[bool, int | None], run_kernels: bool, call_ns: CallTime | None
) -> PlanPrediction:
    """Predict when each step of a plan runs."""
    chips = _chips(chip, len(bound.targets))
    emulators = [_emulator(target) for target in bound.targets]
    fixed = [fixed_work(execution, chips) for execution in bound.order]
    forecast = _Forecast(chips, emulators, how)
    work: list[Work] = []
    launches: list[StepResult[Prediction]] = []
    with plan_without_observers(bound):
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
    """Predicts the launches of a plan, equal ones once: the same kernel on the same chip, with the same extents and numbers."""

    chips: Sequence[Chip]
    emulators: Sequence[Emulator]
    how: tuple[bool, int | None]
    """Whether every block runs, and after how many cycles a launch counts as endless."""

    def __post_init__(self) -> None:
        self._known: dict[tuple[object, ...], Prediction] = {}

    def of(self, execution: Execution, launches: Sequence[Launch]) -> list[Prediction]:
        """Predict the launches of one execution. Raises BadPlan if several run together and wait for each other."""
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
        """Predict one launch, or return the prediction of an equal one. Raises BadPlan."""
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
    """Return the chip of each device. Raises BadPlan for a wrong number of chips."""
    given: list[str | Chip] = [chip] * devices if isinstance(chip, str | Chip) else list(chip)
    if len(given) != devices:
        raise BadPlan(f"the plan is bound to {plural(devices, 'device')}, and `chip` names {len(given)}: name one for each, or one for all")
    return [load(one) if isinstance(one, str) else one for one in given]


def _emulator(target: Target) -> Emulator:
    """Return the target if it is an emulator. Raises BadPlan otherwise."""
    if not isinstance(target, Emulator):
        raise BadPlan(
            f"times are predicted by the emulator, and the plan is bound to {target.name}: bind it to ml.devices('emulator:h200', 1)"
        )
    return target
