"""Bind plans to targets and memory, and run them.

    run = ml.run(plan, {"host": host, "device": array}, targets=ml.devices("emulator:h200", 4), modules=[module])
    run["result"]                   # the memory bound to the buffer, or allocated for it

Binding happens only here: a buffer becomes memory, a kernel reference a kernel of a loaded module, a device a target. On GPUs a plan runs
as CUDA graphs over all its devices; a repeat of many turns is one graph of some of them, replayed. Device calls that enqueue nothing are
made between graphs (`plan_pieces`). On other targets the steps run one after another in the order of `memlane.plan.executions`, one of the
orders that the plan allows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

from memlane.emulate.engine import Clocked, Engine, needs_clock
from memlane.errors import BadPlan, DeviceError
from memlane.launch import (
    BoundCall,
    BoundEnqueue,
    BoundStep,
    DeviceArray,
    Event,
    LoadedModule,
    StepGraph,
    Stream,
    Target,
    has_observers,
)
from memlane.launch import Launch as BoundLaunch
from memlane.plan import (
    EarlyEnds,
    Execution,
    Plan,
    Repeat,
    Segment,
    Span,
    Timeline,
    all_repeats,
    all_steps,
    check,
    executions,
    replayed_turns,
    segments,
)
from memlane.ptx import Module
from memlane.targets.binding import Memory, Modules, bound_memory, declared
from memlane.targets.bound_actions import BoundActions
from memlane.targets.names import target as named_target
from memlane.targets.plan_graphs import PlanGraph, SeparateGraphs, steps_of_device
from memlane.targets.plan_pieces import PlanPieces, is_made_between_graphs
from memlane.targets.signals import Signals


@dataclass(frozen=True, eq=False)
class PlanRun:
    """The result of a plan that has run. `run["name"]` is the memory of a buffer."""

    plan: Plan
    memory: Mapping[str, Memory]
    turns: Mapping[tuple[int, ...], int]
    """Path of each repeat that may end early -> number of turns of its last run."""

    def __getitem__(self, name: str) -> Memory:
        if name not in self.memory:
            raise BadPlan(f"the plan has no buffer {name!r}; it has {', '.join(self.memory)}")
        return self.memory[name]


def run(
    plan: Plan,
    bindings: Mapping[str, Memory] | None = None,
    *,
    targets: Sequence[Target] | None = None,
    modules: Iterable[Module | LoadedModule] = (),
) -> PlanRun:
    """Check a plan, bind it, run it once and wait for it.

    `bindings`: memory of buffers, by name; other buffers are allocated, unless the plan reads them before it writes them. `targets`: one
    for each device of the plan, in the order of their numbers; by default the target of `ml.target()`, for a plan of one device. `modules`:
    the modules of the plan's kernels. Raises BadPlan and LaunchError; executions before an error keep their effects.
    """
    return BoundPlan(plan, bindings, targets=targets, modules=modules).run()


class BoundPlan:
    """A plan bound to targets and memory, which it keeps alive. It can run repeatedly, and be timed."""

    def __init__(
        self,
        plan: Plan,
        bindings: Mapping[str, Memory] | None = None,
        *,
        targets: Sequence[Target] | None = None,
        modules: Iterable[Module | LoadedModule] = (),
    ) -> None:
        """Check and bind the plan, like `run` but without running it."""
        check(plan)
        self.plan = plan
        self.targets = (named_target(),) if targets is None else tuple(targets)
        self._check_targets()
        turns, repeats = replayed_turns(plan), [item for item in plan.steps if isinstance(item, Repeat)]
        self._is_reduced = self._can_use_graphs and not self._has_calls and any(turns(one) < one.count for one in repeats)
        """Whether graphs replay turns, so that not all need to be enumerated."""
        self._replayed = executions(plan, turns) if self._is_reduced else executions(plan)
        """Executions that graphs consist of: of a repeat of many turns those that are replayed."""
        self.memory = bound_memory(plan, self._replayed, self.targets, bindings or {})
        self._graphs: list[tuple[Segment, StepGraph]] | None = None
        self._streams: tuple[Stream, ...] = ()
        """Stream of each device, for a plan whose devices replay their own graphs."""
        known = Modules(modules)
        known.check(self._replayed)
        flags = {buffer: memory for buffer in plan.flags if isinstance(memory := self.memory[buffer], DeviceArray)}
        self._actions = BoundActions(self._replayed, self.targets, self.memory, known, Signals(self._replayed, self.targets, flags))

    @cached_property
    def order(self) -> list[Execution]:
        """Every execution of every step, in an order that the plan allows."""
        return executions(self.plan) if self._is_reduced else self._replayed

    def run(self) -> PlanRun:
        """Execute every step and wait for them."""
        return self.start().wait()

    def _result(self, turns: Mapping[tuple[int, ...], int]) -> PlanRun:
        return PlanRun(self.plan, {buffer.name: memory for buffer, memory in self.memory.items()}, turns)

    def run_observed(self, *, serial: bool = False) -> PlanRun:
        """Execute every step and wait for them; observers see each execution of a step once, as a separate launch or copy.

        `serial`: run the steps one after another on GPUs too; otherwise GPUs run the plan as one graph if they can, so that steps overlap
        as in the graph.
        """
        with self._actions.flags.counting():
            if serial or self._has_calls or not self._can_use_graphs or self._may_end_early:
                turns = self._run_one_by_one()
            else:
                graph, turns = self._graph(self.order), {}
                graph.replay()
                graph.wait()
        return self._result(turns)

    @property
    def is_prepared(self) -> bool:
        """Whether its CUDA graphs exist, so that `start` only starts them."""
        return self._graphs is not None and not has_observers()

    def start(self, stream: object = None) -> StartedPlan:
        """Start every step on a stream of the first target or of another library, and return an object to wait for or to await.

        On GPUs the host continues at once, unless a repeat may end early, which the host has to check. On other targets the plan has run
        when this returns.
        """
        place = self.targets[0].stream_of(stream)
        one_by_one = not self._can_use_graphs or (self._has_calls and (has_observers() or self._may_end_early))
        graphs = [] if one_by_one or self._has_calls else self._segment_graphs()
        flags, turns = self._actions.flags, dict[tuple[int, ...], int]()
        with flags.counting(later=True):
            if one_by_one:
                turns = self._run_one_by_one()
            elif self._has_calls:
                self._pieces.run(place)
            elif self._is_separable:
                turns = self._start_separately(graphs, place)
            else:
                turns = self._start_graphs(graphs, place)
        started = self._pieces.graphs if self._has_calls and not one_by_one else [graph for _, graph in graphs]
        return StartedPlan(self._result(turns), self.targets[0].record(place), started, flags)

    def time(self) -> Timeline:
        """Execute every step once, wait, and return when each ran: measured on GPUs, modelled on emulated devices.

        On GPUs the whole plan is one graph with events around each step; times of two devices are some microseconds off. On emulated
        devices launches take the time of the emulator's clock, everything else that of the chip file. Raises BadPlan for a repeat that may
        end early.
        """
        self._refuse_early_ends()
        if self._can_use_graphs:
            self._refuse_calls()
            steps, places = self._actions.steps(self.order)
            graph = self.targets[0].graph_of_steps(steps, timed=True)
            graph.replay()
            times = graph.times_ns()
            return self._measured([[times[position] for position in own] for own in places])
        if not all(target.modelled for target in self.targets):
            raise BadPlan("times of emulated devices and of GPUs cannot be combined: give the plan targets of one kind")
        return self._run_on_clock(EarlyEnds(self.plan))

    def one_by_one(self) -> Iterator[tuple[Execution, tuple[BoundLaunch, ...], Callable[[], None]]]:
        """Yield the executions in an order that the plan allows, each with its unobserved launches and a function that executes it.

        The caller decides whether to call it. Raises BadPlan if a repeat may end early.
        """
        self._refuse_early_ends()
        with self._actions.flags.counting():
            for execution in self.order:
                launches = tuple(action for action, _ in self._actions.of(execution) if isinstance(action, BoundLaunch))
                yield execution, launches, partial(self._start, execution)

    @property
    def _may_end_early(self) -> bool:
        return any(repeat.until is not None for repeat in all_repeats(self.plan.steps))

    @cached_property
    def _has_calls(self) -> bool:
        """Whether there are device calls that are made between graphs."""
        return any(is_made_between_graphs(step.action) for step in all_steps(self.plan.steps))

    @cached_property
    def _pieces(self) -> PlanPieces:
        return PlanPieces(self.order, self._actions, self.targets[0])

    def _refuse_calls(self) -> None:
        if self._has_calls:
            raise BadPlan(
                "a plan whose device calls are made between CUDA graphs is not a single graph, so a GPU cannot time its steps: run it"
            )

    def _refuse_early_ends(self) -> None:
        if self._may_end_early:
            raise BadPlan(
                "a plan with a repeat that may end early cannot be timed in advance: run it, or give the repeat a fixed number of turns"
            )

    def _measured(self, times: Sequence[Sequence[tuple[float, float]]]) -> Timeline:
        """Return the timeline of the executions from the times of their steps, one per device for concurrent launches."""
        spans = [Span.of(one, min(own)[0], max(end for _, end in own)) for one, own in zip(self.order, times, strict=True)]
        first = min((span.start_ns for span in spans), default=0.0)
        return Timeline(tuple(replace(one, start_ns=one.start_ns - first, end_ns=one.end_ns - first) for one in spans), is_modelled=False)

    def _run_on_clock(self, ends: EarlyEnds) -> Timeline:
        """Execute the steps on emulated devices, each at its modelled time."""
        return Engine(self.targets).run(self.order, self._start, lambda execution: ends.is_over(execution, self._actions.value))

    # -- binding -----------------------------------------------------------------------------------------------------------------

    def _check_targets(self) -> None:
        devices, count = self.plan.devices, len(self.targets)
        if devices and devices[-1] >= count:
            raise BadPlan(
                f"the plan uses device {devices[-1]}, but there are targets for only {count}: pass `targets`, one for each device"
            )
        if len(set(map(id, self.targets))) != count:
            raise BadPlan("two devices of a plan cannot be the same target: ml.devices makes several")
        for device, other in self.plan.peers:
            try:
                self.targets[device].enable_peer(self.targets[other])
            except DeviceError as error:
                raise BadPlan(f"kernels on device {device} access memory of device {other}, but {error}") from None
        for pair in self.plan.copied:  # a graph can copy between GPUs only if they are peers; streams can copy without a link
            lower, upper = (self.targets[one] for one in pair)
            if not (lower.modelled or upper.modelled):
                with suppress(DeviceError):
                    lower.enable_peer(upper)
                    upper.enable_peer(lower)

    # -- executing ---------------------------------------------------------------------------------------------------------------

    @property
    def _can_use_graphs(self) -> bool:
        """Whether the plan can run as graphs: all targets are GPUs, and no nested repeat may end early, which the host would have to
        check."""
        inner = (item for repeat in self.plan.steps if isinstance(repeat, Repeat) for item in all_repeats(repeat.steps))
        return not any(target.modelled for target in self.targets) and all(item.until is None for item in inner)

    def _run_one_by_one(self) -> dict[tuple[int, ...], int]:
        ends = EarlyEnds(self.plan)
        launches = self._actions.launches
        if self.targets[0].modelled and needs_clock(self.order, self.targets, launches):
            self._run_on_clock(ends)
            return ends.turns
        for execution in self.order:
            if ends.is_over(execution, self._actions.value):
                continue
            for target in self.targets if not self.targets[0].modelled else ():
                target.sync()  # this execution may depend on steps of other devices
            self._start(execution)
        for target in self.targets:
            target.sync()
        return ends.turns

    def _start(self, execution: Execution, clocked: Clocked = lambda launch: launch) -> None:
        """Start the action of one execution, or its concurrent launches; `clocked` maps them after the observers."""
        actions = [(self._actions.observed_action(execution, action, target), target) for action, target in self._actions.of(execution)]
        launches = [action for action, _ in actions if isinstance(action, BoundLaunch)]
        if len(launches) == 1 and launches[0].layers.check:
            launches = [replace(launches[0], layers=replace(launches[0].layers, declared=declared(execution, self.memory)))]
        launches = [clocked(launch) for launch in launches]
        if len(launches) > 1:
            launches[0].kernel.target.launch_together(launches)
            return
        for action, target in actions:
            if isinstance(action, BoundLaunch):
                action.kernel.target.launch(*launches)
            elif isinstance(action, BoundCall):
                action.call()
            elif isinstance(action, BoundEnqueue):
                assert target is not None
                graph = target.graph_of_steps([BoundStep(action, target)])
                graph.replay()
                graph.wait()
            else:
                (target or self.targets[0]).copy(action)

    @cached_property
    def _is_separable(self) -> bool:
        """Whether flags alone order the steps of different devices, so that each device can replay its own graph.

        Each dependency between devices then leads from a put to its wait in the same turn. Between two replays each device has the order of
        its stream, so no join is needed.
        """
        if not self.plan.flags or any(one.step.device is None for one in self._replayed):
            return False
        pairs = ((self._replayed[number], one) for one in self._replayed for number in one.waits)
        return all(before.step.device == one.step.device or self._actions.ordered_by_flags(before, one) for before, one in pairs)

    def _segment_graphs(self) -> list[tuple[Segment, StepGraph]]:
        graphs = self._graphs
        if graphs is None or has_observers():  # observers may change the launches, so their graphs are not cached
            prepare = self._separate_graphs if self._is_separable else self._graph
            order = self.order if has_observers() else self._replayed  # observers are told the turn of each launch
            graphs = [(segment, prepare(segment.order)) for segment in segments(self.plan, order)]
            self._graphs = self._graphs if has_observers() else graphs
        return graphs

    def _start_graphs(self, graphs: Sequence[tuple[Segment, StepGraph]], stream: Stream) -> dict[tuple[int, ...], int]:
        turns: dict[tuple[int, ...], int] = {}
        over: set[tuple[int, ...]] = set()
        for segment, graph in graphs:
            for _ in range(0 if segment.path in over else segment.times):
                graph.replay(stream)
                if segment.until is not None:
                    graph.wait()
                    turns[segment.path] = turns.get(segment.path, 0) + segment.turns
                    if self._actions.value(segment.until):
                        over.add(segment.path)
                        break
        return turns

    def graph(self) -> PlanGraph:
        """Return the whole plan as one graph that can be started repeatedly; the plan must not have repeats of many turns.

        Raises BadLaunch if the targets have no graphs, and BadPlan for a repeat that may end early, which only `run` supports.
        """
        if self._may_end_early:
            raise BadPlan("a plan with a repeat that may end early cannot be a single graph: run it")
        if not self.targets[0].modelled:
            self._refuse_calls()
        actions = self._actions.of_order(self.order)
        steps, places = actions.steps(self.order)
        return PlanGraph(self.plan, self.targets, actions, self.targets[0].graph_of_steps(steps), places)

    def _start_separately(self, graphs: Sequence[tuple[Segment, StepGraph]], place: Stream) -> dict[tuple[int, ...], int]:
        """Start a separate graph per device, ordered after earlier work on a stream and before later work on it."""
        # Each graph waits for all devices: a device's stores into another's memory must follow the pending work there.
        begin = [self.targets[0].record(place), *(target.record() for target in self.targets[1:])]
        for target, stream in zip(self.targets, self._streams, strict=True):
            for event in begin:
                target.wait_for(event, stream)
        turns = self._start_graphs(graphs, place)
        for target, stream in zip(self.targets, self._streams, strict=True):
            self.targets[0].wait_for(target.record(stream), place)
        return turns

    def _separate_graphs(self, order: Sequence[Execution]) -> StepGraph:
        """Return a graph for each device with steps, on streams of their own, which separate devices that share a GPU's default stream."""
        if not self._streams:
            self._streams = tuple(target.stream() for target in self.targets)
        steps, _ = self._actions.steps(order)
        own = [(target, steps_of_device(steps, target), stream) for target, stream in zip(self.targets, self._streams, strict=True)]
        return SeparateGraphs([(target.graph_of_steps(some), stream) for target, some, stream in own if some])

    def _graph(self, order: Sequence[Execution]) -> StepGraph:
        return self.targets[0].graph_of_steps(self._actions.steps(order)[0])


@dataclass(frozen=True, eq=False)
class StartedPlan:
    """A plan that is running. `await bound.start()` returns its result without blocking the host."""

    result: PlanRun
    event: Event
    _graphs: Sequence[StepGraph]
    _flags: Signals

    def done(self) -> bool:
        """Return whether the plan has run, without waiting."""
        return self.event.done()

    def wait(self) -> PlanRun:
        """Wait, and return the plan's result. Raises the errors of its kernels and host functions."""
        with self._flags.counting():
            self.event.wait()
            for graph in self._graphs:
                graph.wait()
        return self.result

    def __await__(self) -> Generator[object, None, PlanRun]:
        yield from self.event.__await__()
        return self.wait()
