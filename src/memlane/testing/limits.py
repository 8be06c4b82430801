"""Limit the transactions of launches: `ml.check(kernel[grid, block], ..., max_sectors_per_request=4)` and the mark `memlane`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from memlane.diagnose.limits import Limits
from memlane.errors import CheckFailed
from memlane.launch import KernelCall, Launch, Observation, Report, apply_observers, observing
from memlane.measure import Checker, Counter
from memlane.measure import check as check_correctness
from memlane.measure.counter import counts_of
from memlane.measure.isolation import without_observers
from memlane.measure.steps import PlanResult, observing_plan
from memlane.record import Counts
from memlane.targets import BoundPlan


@overload
def check(
    call: KernelCall,
    *args: object,
    seed: int | None = None,
    max_sectors_per_request: float | None = None,
    max_conflicts: float | None = None,
    max_excess_bytes: float | None = None,
) -> list[Report]: ...


@overload
def check(
    call: BoundPlan,
    *,
    seed: int | None = None,
    max_sectors_per_request: float | None = None,
    max_conflicts: float | None = None,
    max_excess_bytes: float | None = None,
) -> PlanResult[tuple[Report, ...]]: ...


def check(
    call: KernelCall | BoundPlan,
    *args: object,
    seed: int | None = None,
    max_sectors_per_request: float | None = None,
    max_conflicts: float | None = None,
    max_excess_bytes: float | None = None,
) -> list[Report] | PlanResult[tuple[Report, ...]]:
    """Launch `call(*args)` once on the emulator and return reports of its errors.

    Errors are accesses out of bounds, misaligned or to freed memory, reads of memory that was never written, data races, barriers that not
    all threads reach, mismatched masks.

        assert ml.check(kernel[grid, block], out, a, n) == []
        ml.check(kernel[grid, block], out, a, n, max_sectors_per_request=4, max_conflicts=0)

    The launch continues after a finding; harmful accesses are skipped. Apart from them, memory ends up as after a plain launch. `seed`
    shuffles the order of the warps.

    With limits the transactions are counted too. Raises CheckFailed, with the finding, if an operation on a source line exceeds one:
    average sectors of global memory per request, wavefronts of shared memory above the ideal, bytes of sectors above the ideal. Raises
    MemlaneError for a limit that is not a number from 0 on, and if the target is not an emulator.

    A bound plan (`ml.BoundPlan`) runs once, step after step, and returns the reports of each launch, with its step, turn and device; the
    memory that a launch accesses is compared with the declaration of its step.
    """
    limits = Limits(max_sectors_per_request, max_conflicts, max_excess_bytes)
    if isinstance(call, BoundPlan):
        return _check_plan(call, limits, seed)
    if not limits.any:
        return check_correctness(call, *args, seed=seed)
    checker, counter, launch = Checker(seed=seed), Counter(), call.bind(*args)
    with without_observers(launch):
        with observing(checker), observing(counter):
            launch.kernel.target.launch(apply_observers(launch))
        _require(limits, counter.finish(), launch)
    return list(checker.reports)


def _check_plan(plan: BoundPlan, limits: Limits, seed: int | None) -> PlanResult[tuple[Report, ...]]:
    if not limits.any:
        return check_correctness(plan, seed=seed)
    checker, counter = Checker(seed=seed), Counter()
    with observing_plan(plan, checker, counter, serial=True):
        for (_, counts), one in zip(counter.collect(), checker.checked, strict=True):
            _require(limits, [counts], one.launch)
    return checker.steps.with_results({one.number: one.reports for one in checker.checked})


def judge(limits: Limits, launch: Launch, seen: Observation) -> None:
    """Raise CheckFailed if the counts of a launch exceed the limits."""
    _require(limits, [counts_of(seen)], launch)


def _require(limits: Limits, counted: Sequence[Counts], launch: Launch) -> None:
    told = [text for counts in counted for text in limits.beyond(counts, launch.kernel.module.sources)]
    if told:
        raise CheckFailed("\n".join(told))
