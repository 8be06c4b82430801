"""Count the transactions of the accesses of launches."""

from __future__ import annotations

from dataclasses import replace
from typing import overload

from memlane.errors import MemlaneError
from memlane.instrument import SiteTable, site_table, uncounted
from memlane.launch import KernelCall, Launch, Launcher, Layers, LoadedModule, Observation, apply_observers, observing, suspend_observers
from memlane.measure.device_counters import DeviceCounters
from memlane.measure.isolation import without_observers
from memlane.measure.launch_observer import LaunchObserver
from memlane.measure.merged_accesses import merged_loads_twin
from memlane.measure.observed_counts import branch_counts, site_counts
from memlane.measure.steps import PlanResult, observing_plan
from memlane.measure.verdicts import judge_of
from memlane.record import Counts, SiteCounts
from memlane.targets import BoundPlan


class Counter(LaunchObserver):
    """Counts the transactions of all launches that are made inside its `with` block.

    with ml.Counter() as counter:
        ...                         # launches
    for counts in counter.finish():     # a Counts for each launch
        print(counts)

    On the emulator it counts the accesses of the plain kernel. On a GPU the kernel runs with instructions that reduce the addresses of each
    access to its transactions; that is slow, and its time means nothing. A counter is an observer (see `memlane.launch.observing`).
    """

    def __init__(self, *, only_launch: int | None = None, merged: bool = False) -> None:
        """`only_launch`: count only the launch with this number, from 0.

        `merged`: also count the wide accesses that ptxas formed from several narrow ones (`Counts.merged`); each module is then compared
        with its SASS before its first launch.
        """
        super().__init__(only_launch)
        self.counted = 0
        """Launches that were issued with counting."""
        self.sources: dict[str, str] = {}
        """Texts of the source files of their modules, by the names that sites use."""
        self._merged = merged
        self._observations: list[tuple[int, Observation, tuple[SiteCounts, ...]]] = []
        self._device_counters: dict[LoadedModule, DeviceCounters] = {}
        self._targets: dict[Launcher, None] = {}

    def _replacement(self, number: int, launch: Launch) -> Launch:
        """Return the launch that counts."""
        self.counted += 1
        self.sources.update(launch.kernel.module.sources)
        self._targets[launch.kernel.target] = None
        if launch.kernel.target.observes:
            return self._observed_launch(number, launch)
        with suspend_observers():
            loaded = launch.kernel.loaded
            if loaded not in self._device_counters:
                self._device_counters[loaded] = DeviceCounters(loaded, merged=self._merged)
            return self._device_counters[loaded].counting_launch(number, launch)

    def _observed_launch(self, number: int, launch: Launch) -> Launch:
        """Return the launch for a target that observes by itself. Earlier observers have to see the plain kernel, so it then has no merged
        loads."""
        alone = launch.layers == Layers() and launch.layers.report is None
        failed = self._on_failure(number, launch)
        with suspend_observers():
            wide = merged_loads_twin(launch.kernel.loaded) if self._merged and alone else None
        if wide is None:
            mine = Layers(counts=True, report=lambda seen: self._keep(number, seen), failed=failed)
            return replace(launch, layers=launch.layers.merged(mine))
        wide.twin.copy_constants()

        def keep(seen: Observation) -> None:
            self._keep(number, *wide.plain(launch, seen))

        return replace(launch, kernel=wide.twin.loaded[launch.kernel.name], layers=Layers(counts=True, report=keep, failed=failed))

    def _keep(self, number: int, seen: Observation, merged: tuple[SiteCounts, ...] = ()) -> None:
        """Keep the observation of a launch unless it broke off: partial counts would be taken for the whole."""
        if not seen.broke_off:
            self._observations.append((number, seen, merged))

    def finish(self) -> list[Counts]:
        """Wait for the counted launches and return the counts of each, in the order in which they were made."""
        if not self._targets:
            raise MemlaneError("nothing was launched through memlane inside the counter")
        return [counts for _, counts in self.collect()]

    def collect(self) -> list[tuple[int, Counts]]:
        """Do the same as `finish`, but return each result with its launch's number among the observed launches, from 0."""
        with suspend_observers():
            for target in self._targets:
                target.sync()
            counted = [pair for counters in self._device_counters.values() for pair in counters.collect()]
        counted += [(number, replace(counts_of(observation), merged=merged)) for number, observation, merged in self._observations]
        return sorted(((number, self._with_sources(counts)) for number, counts in counted), key=lambda pair: pair[0])

    def _with_sources(self, counts: Counts) -> Counts:
        """Return the counts of a launch with the text of their sources."""
        files = {one.site.file for one in counts.sites}
        return replace(counts, sources={name: text for name, text in self.sources.items() if name in files})


def counts_of(observation: Observation) -> Counts:
    """Return the counts by site of one launch that the emulator observed."""
    launch = observation.launch
    kernel, module = launch.kernel, launch.kernel.module
    table: SiteTable = site_table(module)
    return Counts(
        chip=kernel.target.chip.name,
        target=kernel.target.name,
        kernel=kernel.title,
        grid=launch.grid,
        block=launch.block,
        sites=site_counts(observation, table.of_kernel[kernel.name]),
        branches=branch_counts(observation, kernel),
        how="emulated",
        thread_instructions=observation.thread_instructions,
        skipped=tuple(one for one in uncounted(table, sees_maps=True) if kernel.title in one.kernels),
        judge=judge_of(kernel.loaded),
    )


@overload
def count(call: KernelCall, *args: object, merged: bool = False) -> Counts: ...


@overload
def count(call: BoundPlan, *, merged: bool = False) -> PlanResult[Counts]: ...


def count(call: KernelCall | BoundPlan, *args: object, merged: bool = False) -> Counts | PlanResult[Counts]:
    """Launch `call(*args)` once and return the sectors, wavefronts and lanes of each memory access, and the fewest possible.

    counts = ml.count(kernel[grid, block], out, a, n)
    counts.total().sectors, [(site.site.line, site.conflicts) for site in counts.sites]
    for step in ml.count(ml.BoundPlan(plan, ...)).launches:
        print(step.place, step.device, step.result.total().sectors)

    Memory is left as the plain launch leaves it. With `merged` the wide accesses that ptxas forms from several narrow ones are counted too
    (`Counts.merged`). A bound plan runs once, step after step, and returns a result for each launch, with its step, turn and device, and
    the copies between them.
    """
    counter = Counter(merged=merged)
    if isinstance(call, BoundPlan):
        with observing_plan(call, counter, serial=True):
            return counter.steps.with_results(dict(counter.collect()))
    launch = call.bind(*args)
    with without_observers(launch):
        with observing(counter):
            launch.kernel.target.launch(apply_observers(launch))
        return counter.finish()[0]
