"""Run the lab: its parts in order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.reduction.counting import reasons
from memlane.lab.reduction.ladder import STEPS
from memlane.lab.reduction.measure import SIDE, compare_with_peers, eager, floors, gains, head, ladder, predicted_step, random_array
from memlane.lab.reduction.settings import COURSE_SIZE, Settings, size_name
from memlane.lab.reduction.tables import Measurements, figures, rows, tables
from memlane.lab.result import Result, reached_on
from memlane.launch import Target
from memlane.targets import target as target_of

SOURCES = ["src/memlane/lab/reduction", "src/memlane/lab/figures.py"]
LADDER, REASONS, PREDICTED, PEERS, AXES, BEYOND = "ladder", "reasons", "predicted", "peers", "axes", "beyond"
CASES = (LADDER, REASONS, PREDICTED, PEERS, AXES, BEYOND)
BESIDE = (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30)
"""Sizes that are compared with the peers."""


@dataclass(frozen=True)
class Effort:
    """Amount of measurement."""

    sizes: tuple[int, ...]
    beside: tuple[int, ...]
    counted: int
    """Elements of the sums that are counted."""
    predicted: int
    """Elements of the sums that are predicted, where time is modelled."""
    rounds: int


FULL = Effort((COURSE_SIZE, 1 << 24, 1 << 28), BESIDE, 1 << 17, 0, 15)
QUICK = Effort((COURSE_SIZE,), BESIDE[:3], 1 << 14, 0, 3)
MODELLED, MODELLED_QUICK = Effort((1 << 16,), (), 1 << 16, COURSE_SIZE, 1), Effort((1 << 12,), (), 1 << 12, 1 << 12, 1)


def run(target: Target, request: Request) -> Result:
    """Run with the sizes and block sizes that suit the target."""
    return run_with(target, request, Settings())


def run_with(target: Target, request: Request, settings: Settings) -> Result:
    """Measure the chosen parts. A target that models time has only the ladder, its reasons and its predicted times."""
    chosen = request.chosen(CASES)
    effort = MODELLED if target.modelled else FULL
    if request.quick:
        effort = MODELLED_QUICK if target.modelled else QUICK
    if settings.sizes:
        effort = replace(effort, sizes=settings.sizes)
    found, cases = Measurements(target.chip, floors(target, effort.rounds)), Cases()
    for name in cases.each(one for one in _PARTS if one in chosen):
        with cases.measuring(name):
            _PARTS[name](target, request, effort, settings, found)
    measured = (*reached_on("h200", target, rows(found)), *cases.failed)
    return Result("reduction", measured, tables(found), figures(found), interrupted=cases.interrupted)


def _ladder(target: Target, request: Request, effort: Effort, settings: Settings, found: Measurements) -> None:
    array = random_array(target, max(effort.sizes), np.int32)
    for n in effort.sizes:
        for block in settings.blocks:
            request.tell(f"{size_name(n)}, blocks of {block}")
            found.timed += ladder(target, array, n, block, effort.rounds)


def _reasons(target: Target, request: Request, effort: Effort, settings: Settings, found: Measurements) -> None:
    """Count on the target if it observes, else on the emulator of its chip."""
    observing = target if target.observes else target_of(f"emulator:{target.chip.name}")
    for step in STEPS:
        request.tell(f"reasons of step {step.number}")
        found.reasons[step.number] = reasons(observing, step, effort.counted, settings.blocks[0])


def _predicted(target: Target, request: Request, effort: Effort, settings: Settings, found: Measurements) -> None:
    """Predict the course's size for the target's chip, from samples of the blocks."""
    if not target.modelled:
        return
    array = random_array(target, effort.predicted, np.int32)
    for block in settings.blocks:
        for step in STEPS:
            request.tell(f"prediction of step {step.number}")
            found.predicted.append(predicted_step(array, step, effort.predicted, block))


def _peers(target: Target, request: Request, effort: Effort, settings: Settings, found: Measurements) -> None:
    if target.modelled:
        return
    array = random_array(target, max(effort.beside), np.int32)
    for n in effort.beside:
        request.tell(f"{size_name(n)}, and the same with PyTorch and CuPy")
        found.beside.append(compare_with_peers(target, head(array, n), size_name(n), effort.rounds))
    request.tell("one call")
    found.called = eager(target, head(array, 1 << 16), 20 * effort.rounds)


def _axes(target: Target, request: Request, effort: Effort, settings: Settings, found: Measurements) -> None:
    if target.modelled:
        return
    side = 2048 if request.quick else SIDE
    matrix = random_array(target, (side, side), np.float32)
    for axis in (0, 1):
        request.tell(f"axis {axis}")
        found.beside.append(compare_with_peers(target, matrix, f"{side} x {side} float32, axis {axis}", effort.rounds, axis))


def _beyond(target: Target, request: Request, effort: Effort, settings: Settings, found: Measurements) -> None:
    if target.modelled or request.quick:
        return
    request.tell("ideas beyond")
    found.gains += gains(target, random_array(target, 1 << 28, np.int32), effort.rounds)


_PARTS = {LADDER: _ladder, REASONS: _reasons, PREDICTED: _predicted, PEERS: _peers, AXES: _axes, BEYOND: _beyond}

REDUCTION = Lab(
    "reduction",
    "The seven steps of the reduction course and five more: how fast each is, why, and compared with PyTorch and CuPy.",
    CASES,
    run,
)
