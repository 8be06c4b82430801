"""Check launches on the emulator for invalid accesses, races and barrier errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

from memlane.launch import KernelCall, Launch, Layers, Observation, Report, apply_observers, observing
from memlane.launch.checking import demand_checker
from memlane.measure.isolation import without_observers
from memlane.measure.launch_observer import LaunchObserver
from memlane.measure.steps import PlanResult, observing_plan
from memlane.targets import BoundPlan


@dataclass(frozen=True)
class CheckedLaunch:
    """Reports of the checker for one launch."""

    number: int
    """Index among the observed launches."""
    launch: Launch
    reports: tuple[Report, ...]


class Checker(LaunchObserver):
    """Checks all launches that are made inside its `with` block, on the emulator.

    with ml.Checker() as checker:
        ...                         # launches
    for report in checker.reports:
        print(report)

    With `stop` the first finding ends its launch with CheckFailed; otherwise launches continue, without the invalid accesses. A `seed`
    shuffles the order in which the warps of a block are scheduled. A checker is an observer (see `memlane.launch.observing`).
    """

    def __init__(self, *, only_launch: int | None = None, stop: bool = False, seed: int | None = None) -> None:
        super().__init__(only_launch)
        self.checked: list[CheckedLaunch] = []
        """Launches that were checked."""
        self.sources: dict[str, str] = {}
        """Texts of the source files of their modules, by the names that reports use."""
        self._stop, self._seed = stop, seed

    @property
    def reports(self) -> Sequence[Report]:
        """Return the findings, in the order of the launches. Equal findings in several launches of a kernel are one, with their counts
        added."""
        found: dict[tuple[str, ...], Report] = {}
        for report in (report for checked in self.checked for report in checked.reports):
            other = report.other.place if report.other else ""
            buffer = report.memory.partition("+")[0] if report.kind == "undeclared access" else ""
            key = (report.kernel, report.kind, report.space, report.place, other, buffer)
            known = found.get(key)
            found[key] = report if known is None else replace(known, count=known.count + report.count)
        return list(found.values())

    def _replacement(self, number: int, launch: Launch) -> Launch:
        """Return the launch that is checked. Raises MemlaneError if the target is not an emulator."""
        demand_checker(launch.kernel.target)
        self.sources.update(launch.kernel.module.sources)

        def report(seen: Observation) -> None:
            self.checked.append(CheckedLaunch(number, launch, seen.reports or ()))

        mine = Layers(check=True, stop=self._stop, seed=self._seed, report=report, failed=self._on_failure(number, launch))
        return replace(launch, layers=launch.layers.merged(mine))


@overload
def check(call: KernelCall, *args: object, seed: int | None = None) -> list[Report]: ...


@overload
def check(call: BoundPlan, *, seed: int | None = None) -> PlanResult[tuple[Report, ...]]: ...


def check(call: KernelCall | BoundPlan, *args: object, seed: int | None = None) -> list[Report] | PlanResult[tuple[Report, ...]]:
    """Launch `call(*args)` once on the emulator, and report invalid behaviour: accesses out of bounds, misaligned or to freed memory, reads
    of uninitialised memory, data races, barriers that not all threads reach, mismatched masks.

    The launch continues after a finding, without the invalid access. Otherwise memory is left as the plain launch leaves it. `seed`
    shuffles the order of the warps. A bound plan runs once, step after step, and returns the reports of each launch, with its step, turn
    and device, and the copies between them; the accesses of a launch are compared with what its step declares.
    """
    checker = Checker(seed=seed)
    if isinstance(call, BoundPlan):
        with observing_plan(call, checker, serial=True):
            return checker.steps.with_results({one.number: one.reports for one in checker.checked})
    launch = call.bind(*args)
    with without_observers(launch), observing(checker):
        launch.kernel.target.launch(apply_observers(launch))
    return list(checker.reports)
