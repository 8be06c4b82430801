"""Plans bound to targets and memory, and run.

    run = ml.run(plan, {"host": host, "device": array}, targets=ml.devices("emulator:h200", 4), modules=[module])
    run["result"]                   # what was bound to the buffer, or the memory that was made for it

Binding happens here and nowhere else: a buffer becomes memory, a kernel reference a kernel of a loaded module, a device a target. On GPUs
a plan runs as CUDA graphs over all its devices; a repeat of many turns is one graph of some of them, started again and again. On other
targets its steps run one after another in the order of `memlane.plan.executions`, which is one of the orders that the plan allows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from memlane.emulate.engine import Clocked, Engine, needs_clock
from memlane.errors import BadLaunch, BadPlan, DeviceError
from memlane.launch import (
    BoundCall,
    BoundCopy,
    BoundStep,
    DeviceArray,
    End,
    LoadedModule,
    StepGraph,
    Target,
    observed,
    watched,
)
from memlane.launch import Launch as BoundLaunch
from memlane.plan import (
    Action,
    Copy,
    Execution,
    HostCall,
    Launch,
    Plan,
    Repeat,
    Segment,
    Span,
    Step,
    Timeline,
    Together,
    View,
    all_repeats,
    check,
    executions,
    segments,
)
from memlane.ptx import Module
from memlane.targets.binding import Memory, Modules, bound_memory, declared
from memlane.targets.names import target as named_target

BoundAction = BoundLaunch | BoundCopy | BoundCall


@dataclass(frozen=True, eq=False)
class PlanRun:
    """What a plan that has run left behind. `run["name"]` is the memory of a buffer."""

    plan: Plan
    memory: Mapping[str, Memory]
    turns: Mapping[tuple[int, ...], int]
    """By path of each repeat that could end early: after how many turns it did, the last time it ran."""

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

    `bindings`: the memory of buffers, by name; of others it is made here, unless the plan reads them before it writes there. `targets`: one
    for each device of the plan, in the order of their numbers; by default the target that `ml.target()` gives, for a plan of one device.
    `modules`: those that the plan's kernels are from. Raises BadPlan and LaunchError. What was executed before an error stays.
    """
    return BoundPlan(plan, bindings, targets=targets, modules=modules).run()


class BoundPlan:
    """A plan with targets for its devices and memory for its buffers, which it keeps alive; it can run again and again."""

    def __init__(
        self,
        plan: Plan,
        bindings: Mapping[str, Memory] | None = None,
        *,
        targets: Sequence[Target] | None = None,
        modules: Iterable[Module | LoadedModule] = (),
    ) -> None:
        """Check and bind; as `run` without running."""
        check(plan)
        self.plan = plan
        self.targets = (named_target(),) if targets is None else tuple(targets)
        self.order = executions(plan)
        self._check_targets()
        self.memory = bound_memory(plan, self.order, self.targets, bindings or {})
        self._bound_by: dict[tuple[int, int | None], tuple[Action, list[tuple[BoundAction, Target | None]]]] = {}
        """By action, which is kept, and device."""
        self._graphs: list[tuple[Segment, StepGraph]] | None = None
        self._stages: dict[int, tuple[BoundAction, ...]] = {}
        """By copy from or to ordinary memory of the host, what a graph does for it."""
        self._modules = Modules(modules)
        self._modules.check(self.order)
        for execution in self.order:
            try:
                self._bound_actions(execution)
            except BadLaunch as error:
                raise BadPlan(f"{execution}: {error}") from None

    def run(self) -> PlanRun:
        """Execute every step and wait for them."""
        turns = self._run_as_graphs() if self._takes_graphs else self._run_one_by_one()
        return PlanRun(self.plan, {buffer.name: memory for buffer, memory in self.memory.items()}, turns)

    def time(self) -> Timeline:
        """Execute every step once, wait, and return when each ran: measured on GPUs, modelled on emulated devices.

        On GPUs the whole plan is one graph with events around each step; times of two devices are some microseconds off. On emulated
        devices launches take what the emulator's clock says, all else what the chip file does. A repeat that may end early has no times.
        """
        if any(repeat.until is not None for repeat in all_repeats(self.plan.steps)):
            raise BadPlan("a plan with a repeat that may end early has no times beforehand: run it, or give the repeat its number of turns")
        if self._takes_graphs:
            steps, places = self._bound_steps(self.order)
            graph = self.targets[0].graph_of_steps(steps, timed=True)
            graph.replay()
            times = graph.times_ns()
            return self._measured([[times[position] for position in own] for own in places])
        if not all(target.modelled for target in self.targets):
            raise BadPlan("times of emulated devices and of GPUs do not fit together: give the plan targets of one kind")
        return self._run_on_clock(_Ends(self.plan))

    def _measured(self, times: Sequence[Sequence[tuple[float, float]]]) -> Timeline:
        """Return the timeline of the executions from the times of their steps: one for each device of those that run together."""
        spans = [Span.of(one, min(own)[0], max(end for _, end in own)) for one, own in zip(self.order, times, strict=True)]
        first = min((span.start_ns for span in spans), default=0.0)
        return Timeline(tuple(replace(one, start_ns=one.start_ns - first, end_ns=one.end_ns - first) for one in spans), is_modelled=False)

    def _run_on_clock(self, ends: _Ends) -> Timeline:
        """Execute the steps on emulated devices, each when its modelled time has come."""

        def execute(execution: Execution, clocked: Clocked) -> None:
            actions = self._bound_actions(execution)
            self._start(execution, [(clocked(action) if isinstance(action, BoundLaunch) else action, target) for action, target in actions])

        return Engine(self.targets).run(self.order, execute, lambda execution: ends.is_over(execution, self._value))

    # -- binding -----------------------------------------------------------------------------------------------------------------

    def _check_targets(self) -> None:
        devices, count = self.plan.devices, len(self.targets)
        if devices and devices[-1] >= count:
            raise BadPlan(
                f"the plan uses device {devices[-1]}, and there is a target for {count} only: pass `targets`, one for each device"
            )
        if len(set(map(id, self.targets))) != count:
            raise BadPlan("two devices of a plan cannot be one target: ml.devices gives several")
        for device, other in self.plan.peers:
            try:
                self.targets[device].enable_peer(self.targets[other])
            except DeviceError as error:
                raise BadPlan(f"kernels on device {device} reach memory of device {other}, but {error}") from None

    # -- executing ---------------------------------------------------------------------------------------------------------------

    @property
    def _takes_graphs(self) -> bool:
        """Graphs end where a repeat inside another one may end early: that is for the host to see."""
        inner = (item for repeat in self.plan.steps if isinstance(repeat, Repeat) for item in all_repeats(repeat.steps))
        return not any(target.modelled for target in self.targets) and all(item.until is None for item in inner)

    def _run_one_by_one(self) -> dict[tuple[int, ...], int]:
        ends = _Ends(self.plan)
        launches = [action for _, found in self._bound_by.values() for action, _ in found if isinstance(action, BoundLaunch)]
        if self.targets[0].modelled and needs_clock(self.order, self.targets, launches):
            self._run_on_clock(ends)
            return ends.turns
        for execution in self.order:
            if ends.is_over(execution, self._value):
                continue
            for target in self.targets if not self.targets[0].modelled else ():
                target.sync()  # steps of other devices, which this one may wait for
            self._start(execution, self._bound_actions(execution))
        for target in self.targets:
            target.sync()
        return ends.turns

    def _start(self, execution: Execution, actions: Sequence[tuple[BoundAction, Target | None]]) -> None:
        """Start what one execution does: one action, or launches that run together."""
        launches = [observed(action) for action, _ in actions if isinstance(action, BoundLaunch)]
        if len(launches) == 1 and launches[0].layers.check:
            launches = [replace(launches[0], layers=replace(launches[0].layers, declared=declared(execution, self.memory)))]
        if len(launches) > 1:
            launches[0].kernel.target.launch_together(launches)
            return
        for action, target in actions:
            if isinstance(action, BoundLaunch):
                action.kernel.target.launch(*launches)
            elif isinstance(action, BoundCall):
                action.call()
            else:
                (target or self.targets[0]).copy(action)

    def _run_as_graphs(self) -> dict[tuple[int, ...], int]:
        if self._graphs is None or watched():  # observers want to see the launches
            self._graphs = [(segment, self._graph(segment.order)) for segment in segments(self.plan, self.order)]
        turns: dict[tuple[int, ...], int] = {}
        over: set[tuple[int, ...]] = set()
        for segment, graph in self._graphs:
            for _ in range(0 if segment.path in over else segment.times):
                graph.replay()
                if segment.until is not None:
                    graph.wait()
                    turns[segment.path] = turns.get(segment.path, 0) + segment.turns
                    if self._value(segment.until):
                        over.add(segment.path)
                        break
        for _, graph in self._graphs:
            graph.wait()
        return turns

    def graph(self) -> StepGraph:
        """Return the whole plan as one graph, to be started again and again; of a plan without repeats of many turns.

        Raises BadLaunch where the targets have no graphs, and BadPlan for a repeat that may end early, which only `run` can do.
        """
        if any(repeat.until is not None for repeat in all_repeats(self.plan.steps)):
            raise BadPlan("a plan with a repeat that may end early is no single graph: run it")
        return self._graph(self.order)

    def _graph(self, order: Sequence[Execution], timed: bool = False) -> StepGraph:
        return self.targets[0].graph_of_steps(self._bound_steps(order)[0], timed=timed)

    def _bound_steps(self, order: Sequence[Execution]) -> tuple[list[BoundStep], list[range]]:
        """Return the steps of some executions that follow each other, and by execution the positions of its steps. What they wait for
        before these is over."""
        steps: list[BoundStep] = []
        first = order[0].number if order else 0
        places: list[range] = []
        ends: list[list[int]] = []
        for execution in order:
            begun = len(steps)
            waits = tuple(position for number in execution.waits if number >= first for position in ends[number - first])
            ends.append([])
            for action, target in self._bound_actions(execution):
                staged = self._staged(execution.action, action) if isinstance(action, BoundCopy) else (action,)
                beside = len(steps) > begun and isinstance(action, BoundLaunch)
                for number, one in enumerate(staged):
                    after = (len(steps) - 1,) if number else waits
                    steps.append(BoundStep(observed(one) if isinstance(one, BoundLaunch) else one, target, after, beside))
                ends[-1].append(len(steps) - 1)
            places.append(range(begun, len(steps)))
        return steps, places

    def _staged(self, copy: Action, bound: BoundCopy) -> Sequence[BoundAction]:
        """Return what a graph does for a copy, one after another. A graph may read ordinary memory of the host when it is started, and not
        when the copy is due, so a host function moves it from or to pinned memory; and so what stays on the host."""
        assert isinstance(copy, Copy)
        to, of = copy.destination.buffer, copy.source.buffer
        if to.is_on_host and of.is_on_host:
            return (_moving(self._host_view(copy.destination), self._host_view(copy.source)),)
        if "host" not in (to.home, of.home):
            return (bound,)
        if id(copy) not in self._stages:
            stage = self.targets[0].pinned(copy.source.shape, f"V{copy.source.itemsize}")
            end = End(int(stage.ctypes.data), stage.strides)
            if of.home == "host":
                chain: tuple[BoundAction, ...] = _moving(stage, self._host_view(copy.source)), replace(bound, source=end)
            else:
                chain = replace(bound, destination=end), _moving(self._host_view(copy.destination), stage)
            self._stages[id(copy)] = chain
        return self._stages[id(copy)]

    def _bound_actions(self, execution: Execution) -> list[tuple[BoundAction, Target | None]]:
        """Return what an execution does: one action, or one for each device of launches that run together."""
        action, device = execution.action, execution.step.device
        key = id(action), device
        if key not in self._bound_by:
            if isinstance(action, Together):
                found: list[tuple[BoundAction, Target | None]] = [self._launch(launch, number) for number, launch in action.launches]
            elif isinstance(action, Launch):
                assert device is not None
                found = [self._launch(action, device)]
            elif isinstance(action, Copy):
                ends = self._end(action.destination), self._end(action.source)
                found = [(BoundCopy(*ends, action.source.shape, action.source.itemsize), None if device is None else self.targets[device])]
            else:
                found = [(self._call(action), None)]
            self._bound_by[key] = action, found
        return self._bound_by[key][1]

    def _launch(self, launch: Launch, device: int) -> tuple[BoundAction, Target | None]:
        target = self.targets[device]
        kernel = self._modules.kernel(launch, target)
        arguments = [self._argument(value, target) if isinstance(value, View) else value for value in launch.arguments]
        return kernel[launch.grid, launch.block, None, launch.shared_bytes, launch.cluster].bind(*arguments), target

    def _call(self, call: HostCall) -> BoundCall:
        try:
            function = pkgutil.resolve_name(call.function)
        except (ImportError, AttributeError) as error:
            raise BadPlan(f"host function {call.function} cannot be imported: {error}") from None
        values = [self._host_view(value) if isinstance(value, View) else value for value in call.arguments]
        return BoundCall(partial(function, *values))

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def _argument(self, view: View, target: Target) -> DeviceArray:
        """Return the elements of a view as an argument: a kernel gets the address of the first, whatever the strides."""
        memory = self.memory[view.buffer]
        if not isinstance(memory, DeviceArray) and target.modelled:
            raise BadPlan(f"{view} lies in pinned memory, which kernels on {target.name} do not reach: copy it to the device")
        home = memory.target if isinstance(memory, DeviceArray) else target
        shape = view.shape if view.is_contiguous else (max(0, view.bounds[1] - view.offset) // view.itemsize,)
        return DeviceArray(home, self._end(view).address, shape, np.dtype(view.dtype), memory)

    def _end(self, view: View) -> End:
        memory = self.memory[view.buffer]
        if isinstance(memory, DeviceArray):
            return End(memory.address + view.offset, view.strides, memory.target)
        return End(int(memory.ctypes.data) + view.offset, view.strides)

    def _host_view(self, view: View) -> npt.NDArray[Any]:
        """Return the elements of a view of memory on the host, where they lie."""
        memory = self.memory[view.buffer]
        assert isinstance(memory, np.ndarray)
        if not view.size:
            return np.empty(view.shape, view.dtype)
        first = memory.reshape(-1).view(np.uint8)[view.offset : view.offset + view.itemsize].view(view.dtype)
        return as_strided(first, view.shape, view.strides)

    def _value(self, view: View) -> bool:
        return bool(self._host_view(view).reshape(-1)[0])


def _moving(to: npt.NDArray[Any], of: npt.NDArray[Any]) -> BoundCall:
    """A host function that copies elements, whatever their types are called."""
    return BoundCall(partial(np.copyto, to.view(f"V{to.itemsize}"), of.view(f"V{of.itemsize}"), casting="no"))


@dataclass
class _Ends:
    """Which repeats have ended early while a plan runs."""

    plan: Plan
    turns: dict[tuple[int, ...], int] = field(default_factory=dict)
    _looked: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, bool]] = field(default_factory=dict)
    """By repeat and turns of those around it: the last turn before which was looked, and whether it has ended."""

    def is_over(self, execution: Execution, value: Any) -> bool:
        """Whether an execution is not to be made, because a repeat around it has ended. Looks at the values of repeats on the way."""
        items: Sequence[Step | Repeat] = self.plan.steps
        for depth, position in enumerate(execution.path[:-1]):
            repeat = items[position]
            assert isinstance(repeat, Repeat)
            items = repeat.steps
            if repeat.until is None:
                continue
            path, around, turn = execution.path[: depth + 1], execution.turns[:depth], execution.turns[depth]
            looked, over = self._looked.get((path, around), (0, False))
            if not over and turn > looked:
                if turn % repeat.every == 0:
                    over = value(repeat.until)
                self._looked[path, around] = turn, over
            if over:
                return True
            self.turns[path] = turn + 1
        return False
