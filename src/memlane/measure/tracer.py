"""Trace launches: an observer that issues every launch with probes, and collects the records."""

from __future__ import annotations

from dataclasses import replace

from memlane.errors import DeviceError, LaunchError, MemlaneError
from memlane.instrument import Ranges, Sampling, Selection, TraceOptions
from memlane.launch import KernelCall, Launch, Launcher, LoadedModule, apply_observers, observing, suspend_observers
from memlane.measure.arena import Arena
from memlane.measure.assemble import assemble_trace
from memlane.measure.device_counters import DeviceCounters
from memlane.measure.instrumented_module import InstrumentedModule, borrow_instrumented, probe
from memlane.measure.isolation import without_observers
from memlane.measure.launch_observer import LaunchObserver
from memlane.measure.memory import Snapshot, not_restorable
from memlane.measure.perturbation import times_of
from memlane.measure.plan import LaunchPlan
from memlane.measure.prediction import predicted_time
from memlane.measure.runs import LaunchRecord
from memlane.measure.steps import observing_plan
from memlane.record import CopyInfo, Counts, PredictedTime, Trace
from memlane.targets import BoundPlan

MOST_PREDICTED = 12
"""Maximum number of kernels, with distinct extents, that are predicted."""


def records_lost(error: MemlaneError) -> MemlaneError:
    """Return the error of a GPU that failed while it was traced, with a note that the records are lost."""
    lost = type(error)(f"{error}. The records until then are lost with the GPU memory; the emulator would keep them")
    for note in getattr(error, "__notes__", ()):
        lost.add_note(note)
    return lost


class Tracer(LaunchObserver):
    """Traces all launches that are made inside its `with` block.

    with ml.Tracer(ml.TraceOptions.of(every=32)) as tracer:
        ...                         # launches, on any streams, alone, in schedules and in graphs
    trace = tracer.finish()         # one Trace of all of them

    The traced launches compute the same results as the plain ones. One tracer serves one device, or several of one kind. A tracer is an
    observer (see `memlane.launch.observing`).
    """

    adds_clock_reads = True

    def __init__(
        self,
        options: TraceOptions | None = None,
        *,
        only_launch: int | None = None,
        records_per_warp: int | None = None,
        counts: bool | str = False,
        perturbation: bool = False,
        predictions: bool = False,
    ) -> None:
        """`options`: the probe, and which part of each launch to trace, such as `TraceOptions.of(blocks="0-3", every=32)`.

        `only_launch`: trace only the launch with this number, from 0.

        `records_per_warp`: capacity in records per warp; by default the number of its sites if none lies in a loop, else as many as fit a
        fixed share of memory. Records beyond that are dropped and counted as lost.

        `counts`: on a GPU, count the transactions too, by a counting launch before the traced one. The arrays of the launch and the
        variables of its module are restored in between; other memory that the kernel changes (through pointers in memory) is changed twice.
        With `"safe"` a launch is counted only if all memory that it writes can be restored, and `uncounted` gives the reasons for the
        others. The emulator observes the transactions in the traced launch itself and always counts.

        `perturbation`: time each launch without and with probes before it is traced, by separate launches after which the same memory is
        restored. Registers and resident blocks without and with probes are kept in every trace taken on a GPU.

        `predictions`: on the emulator, predict the first launch of each kernel and extents without probes, and its time without the excess
        of its costliest accesses (`LaunchInfo.predicted`), after the program has ended.
        """
        super().__init__(only_launch)
        self.options = replace(options or TraceOptions(), tagged=True)
        if not isinstance(counts, bool) and counts != "safe":
            raise MemlaneError(f"counts is True, False or 'safe', not {counts!r}")
        self._counts = counts
        self.uncounted: dict[str, str] = {}
        """Reason why a launch of a kernel was not counted, by the kernel's title."""
        self._perturbation, self._predictions = perturbation, predictions
        self._device_counters: dict[LoadedModule, DeviceCounters] = {}
        self.traced = 0
        """Launches that were issued with probes."""
        self.plans: list[LaunchPlan] = []
        """Plan of each of these launches; logged to `memlane.measure` before the launch starts."""
        self._records_per_warp = records_per_warp
        self._probed: dict[LoadedModule, tuple[InstrumentedModule, Arena]] = {}
        self._records: list[LaunchRecord] = []
        self._targets: dict[Launcher, None] = {}

    def _replacement(self, number: int, launch: Launch) -> Launch:
        """Return the launch with probes in its kernel. Raises MemlaneError for a target of another kind."""
        target = launch.kernel.target
        first = next(iter(self._targets), target)
        if (target.chip, target.modelled) != (first.chip, first.modelled):
            raise MemlaneError(
                f"a trace holds devices of one kind, but launches went to {first.name} and to {target.name}; choose one with --target"
            )
        self._targets[target] = None
        self.traced += 1
        with suspend_observers():
            return self._with_probes(launch)

    def _with_probes(self, launch: Launch) -> Launch:
        """Return the launch with probes, after counting and timing it if requested."""
        probed, arena = self._prepare(launch.kernel.loaded)
        record = LaunchRecord(launch, probed, 1 + len(self._records))
        self._records.append(record)
        if self._counts and not launch.kernel.target.observes:
            why = not_restorable(launch) if self._counts == "safe" else ""
            if why:
                self.uncounted[launch.kernel.title] = why
            else:
                record.counted = self._count(launch)
        if self._perturbation:
            record.times = times_of(launch, self.options, self._records_per_warp)
        plan = arena.plan(launch)
        self.plans.append(plan)
        plan.tell()
        room = arena.make_room(launch, plan)
        probed.twin.copy_constants()
        layers = record.layers(probed.accesses_of(launch, room.records)) if launch.kernel.target.observes else launch.layers
        return replace(probed.twin_of(launch, record.tag, room.first), layers=layers)

    def _count(self, launch: Launch) -> Counts:
        """Return the transactions of the launch, from a separate run whose effect on the arrays is undone."""
        loaded = launch.kernel.loaded
        if loaded not in self._device_counters:
            self._device_counters[loaded] = DeviceCounters(loaded)
        counters = self._device_counters[loaded]
        before = Snapshot(launch)
        launch.kernel.target.launch(counters.counting_launch(len(self._records), launch))
        [(_, counts)] = counters.collect()
        before.restore()
        return counts.checked

    def _prepare(self, loaded: LoadedModule) -> tuple[InstrumentedModule, Arena]:
        """Return the instrumented module and its buffers, made at its first launch."""
        if loaded not in self._probed:
            self.adopt(probe(loaded, self.options))
        return self._probed[loaded]

    def adopt(self, probed: InstrumentedModule) -> None:
        """Use this instrumented module for the launches of its original, instead of a new one."""
        self._probed[probed.original] = (probed, Arena(probed, self._records_per_warp))

    def finish(self) -> Trace:
        """Wait for the traced launches and return their records. Raises MemlaneError if nothing was launched.

        A launch that broke off on the emulator (a trap, a bad access, a deadlock) keeps its records until then, and `LaunchInfo.failed`
        gives the reason. On a GPU all device memory is lost with it, the records too, and the error says so.
        """
        if not self._targets:
            raise MemlaneError("nothing was launched through memlane inside the tracer")
        try:
            with suspend_observers():
                for target in self._targets:
                    target.sync()
                collected = {probed: arena.collect() for probed, arena in self._probed.values()}
        except (DeviceError, LaunchError) as error:
            raise records_lost(error) from error
        copies = [CopyInfo(one.path, one.turns, one.device, one.nbytes or 0, one.source, one.destination) for one in self.steps.copies]
        found = assemble_trace(next(iter(self._targets)), self.options.scheme, self._records, collected, copies)
        return self._with_predictions(found) if self._predictions and found.modelled else found

    def _with_predictions(self, trace: Trace) -> Trace:
        """Return the trace with the predicted times of its launches; equal kernels and extents share the prediction of the first."""
        first: dict[tuple[object, ...], Launch] = {}
        for record in self._records:
            one = record.launch
            first.setdefault((one.kernel.title, one.grid, one.block, one.shared_bytes), one)
        known: dict[tuple[object, ...], PredictedTime | None] = {}
        launches = []
        for info in trace.launches:
            alike = info.kernel, info.grid, info.block, info.shared_bytes
            if not info.failed and info.counts and alike in first:
                if alike not in known and len(known) < MOST_PREDICTED:
                    with suspend_observers():
                        known[alike] = predicted_time(first[alike], info.counts)
                info = replace(info, predicted=known.get(alike))
            launches.append(info)
        return replace(trace, launches=tuple(launches))


def trace(
    call: KernelCall | BoundPlan,
    *args: object,
    scheme: str = "dependent",
    selection: Selection | None = None,
    records_per_warp: int | None = None,
    counts: bool = False,
    perturbation: bool = False,
    blocks: Ranges | None = None,
    warps: Ranges | None = None,
    sms: Ranges | None = None,
    executions: Ranges | None = None,
    every: int = 1,
    seed: int = 0,
    whole_blocks: bool = False,
    stores: str = "issued",
    staging: str = "auto",
) -> Trace:
    """Launch `call(*args)` once with probes around its memory accesses, wait for it, and return when each started and completed.

    trace = ml.trace(kernel[grid, block], out, a, n, every=32)
    frame = trace.table.to_pandas()             # see Trace for the columns; times are in cycles

    Memory is left as the plain launch leaves it. `scheme` and `selection` as in `memlane.instrument.TraceOptions`; `records_per_warp`,
    `counts` and `perturbation` as for `Tracer`. On the emulator the trace always includes the transactions of each access.

    Select a part of the launch with `blocks` (linear indices), `warps` (numbers in their block) and `sms`, such as `"0-3,17"`, `range(0,
    4)` or `[0, 5]`; with `executions`, such as `"10-20"`, of each site by a thread, from 0; and sample one in `every` warps, or with
    `whole_blocks` all warps of one in `every` blocks, chosen by `seed`. Other warps run the original code. Raises MemlaneError for windows
    that overlap or are empty.

    Stores are timed until they are `issued`; with `stores="block"` or `"device"` until every thread of their block, or of the device, sees
    them, which costs a load or a fence for each.

    With `staging="shared"` records go into shared memory first, if the launch has enough of it without lower occupancy.

    A bound plan (`ml.BoundPlan`) runs once, and the trace holds all its launches, on all its devices; each of `Trace.launches` has its step
    (`path`), `turns` and `device`, and `Trace.copies` holds the copies.
    """
    window = Sampling.of(blocks=blocks, warps=warps, sms=sms, executions=executions, every=every, seed=seed, whole_blocks=whole_blocks)
    options = TraceOptions(scheme, selection or Selection(), window, stores, staging)
    tracer = Tracer(options, records_per_warp=records_per_warp, counts=counts, perturbation=perturbation)
    if isinstance(call, BoundPlan):
        with observing_plan(call, tracer, serial=False):
            return tracer.finish()
    launch = call.bind(*args)
    with without_observers(launch), borrow_instrumented(launch.kernel.loaded, tracer.options) as probed:
        tracer.adopt(probed)
        with observing(tracer):
            launch.kernel.target.launch(apply_observers(launch, once=True))
        return tracer.finish()
