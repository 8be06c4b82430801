"""Plans bound to targets and memory, and run.

    run = ml.run(plan, {"host": host, "device": array}, targets=ml.devices("emulator:h200", 4), modules=[module])
    run["result"]                   # what was bound to the buffer, or the memory that was made for it

Binding happens here and nowhere else: a buffer becomes memory, a kernel reference a kernel of a loaded module, a device a target. On GPUs
a plan runs as CUDA graphs over all its devices; a repeat of many turns is one graph of some of them, started again and again. On other
targets its steps run one after another in the order of `memlane.plan.executions`, which is one of the orders that the plan allows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from memlane.errors import BadPlan, DeviceError
from memlane.launch import (
    BoundCall,
    BoundCopy,
    BoundStep,
    DeviceArray,
    End,
    Kernel,
    LoadedModule,
    StepGraph,
    Target,
    module_digest,
    observed,
    watched,
)
from memlane.launch import Launch as BoundLaunch
from memlane.plan import (
    Action,
    Buffer,
    Copy,
    Execution,
    HostCall,
    Launch,
    Plan,
    Repeat,
    Segment,
    Step,
    Together,
    View,
    all_repeats,
    check,
    executions,
    lifetimes,
    segments,
)
from memlane.ptx import Module
from memlane.targets.names import target as named_target

BoundAction = BoundLaunch | BoundCopy | BoundCall
Memory = DeviceArray | npt.NDArray[Any]
"""What a buffer is bound to: an array of the target of its device, or an array of NumPy for a buffer on the host."""


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
        self.memory = self._bound(dict(bindings or {}))
        self._bound_by: dict[tuple[int, int | None], tuple[Action, list[tuple[BoundAction, Target | None]]]] = {}
        """By action, which is kept, and device."""
        self._graphs: list[tuple[Segment, StepGraph]] | None = None
        self._modules = _Modules(modules)
        for step in _launches(self.order):
            self._modules.check(step)

    def run(self) -> PlanRun:
        """Execute every step and wait for them."""
        turns = self._run_as_graphs() if self._takes_graphs else self._run_one_by_one()
        return PlanRun(self.plan, {buffer.name: memory for buffer, memory in self.memory.items()}, turns)

    # -- binding -----------------------------------------------------------------------------------------------------------------

    def _check_targets(self) -> None:
        devices, count = self.plan.devices, len(self.targets)
        if devices and devices[-1] >= count:
            raise BadPlan(
                f"the plan uses device {devices[-1]}, and there are targets for {count} devices: pass `targets`, one for each device"
            )
        if len(set(map(id, self.targets))) != count:
            raise BadPlan("two devices of a plan cannot be one target: ml.devices gives several")
        for device, other in self.plan.peers:
            try:
                self.targets[device].enable_peer(self.targets[other])
            except DeviceError as error:
                raise BadPlan(f"kernels on device {device} reach memory of device {other}, but {error}") from None

    def _bound(self, bindings: dict[str, Memory]) -> dict[Buffer, Memory]:
        names = {buffer.name for buffer in self.plan.buffers}
        for name in bindings:
            if name not in names:
                raise BadPlan(f"the plan has no buffer {name!r} to bind; it has {', '.join(sorted(names)) or 'none'}")
        kept = lifetimes(self.order)
        memory: dict[Buffer, Memory] = {}
        for buffer in self.plan.buffers:
            if buffer.name in bindings:
                memory[buffer] = self._checked(buffer, bindings[buffer.name])
            elif buffer in kept and kept[buffer].is_input:
                first = self.order[kept[buffer].first]
                raise BadPlan(
                    f"buffer {buffer.name!r} is not bound, and {first} reads it before anything is written there: bind it to memory"
                )
            elif isinstance(buffer.home, int):
                memory[buffer] = self.targets[buffer.home].empty(buffer.nbytes, np.uint8)
            elif buffer.home == "pinned":
                memory[buffer] = self.targets[0].pinned(buffer.nbytes, np.uint8)
            else:
                memory[buffer] = np.empty(buffer.nbytes, np.uint8)
        return memory

    def _checked(self, buffer: Buffer, memory: object) -> Memory:
        where = f"buffer {buffer.name!r}"
        if isinstance(buffer.home, int):
            home = self.targets[buffer.home]
            if not isinstance(memory, DeviceArray):
                raise BadPlan(f"{where} lives on device {buffer.home}: bind an array of {home.name} to it, not a {type(memory).__name__}")
            if memory.target is not home:
                raise BadPlan(
                    f"{where} lives on device {buffer.home}, {home.name}, but is bound to an array of {memory.target.name_beside(home)}"
                )
        elif not isinstance(memory, np.ndarray):
            raise BadPlan(f"{where} lives on the host: bind an array of NumPy to it, not a {type(memory).__name__}")
        elif not memory.flags.c_contiguous:
            raise BadPlan(f"{where} is bound to an array that is not C-contiguous: bind np.ascontiguousarray(x), or a larger buffer")
        elif not memory.flags.writeable and any(
            touch.writes and touch.view.buffer == buffer for one in self.order for touch in one.action.touches
        ):
            raise BadPlan(f"{where} is written by the plan, but is bound to a read-only array: bind a copy")
        if memory.nbytes < buffer.nbytes:
            raise BadPlan(f"{where} has {buffer.nbytes} bytes, but is bound to an array of {memory.nbytes}")
        return memory

    # -- executing ---------------------------------------------------------------------------------------------------------------

    @property
    def _takes_graphs(self) -> bool:
        """Graphs end where a repeat inside another one may end early: that is for the host to see."""
        inner = (item for repeat in self.plan.steps if isinstance(repeat, Repeat) for item in all_repeats(repeat.steps))
        return not any(target.modelled for target in self.targets) and all(item.until is None for item in inner)

    def _run_one_by_one(self) -> dict[tuple[int, ...], int]:
        ends = _Ends(self.plan)
        for execution in self.order:
            if ends.is_over(execution, self._value):
                continue
            for target in self.targets if not self.targets[0].modelled else ():
                target.sync()  # steps of other devices, which this one may wait for
            starts = [partial(self._start, action, target) for action, target in self._bound_actions(execution)]
            if len(starts) > 1:
                self._start_together(starts)
            else:
                starts[0]()
        for target in self.targets:
            target.sync()
        return ends.turns

    def _start(self, action: BoundAction, target: Target | None) -> None:
        if isinstance(action, BoundLaunch):
            action.kernel.target.launch(observed(action))
        elif isinstance(action, BoundCall):
            action.call()
        else:
            (target or self.targets[0]).copy(action)

    def _start_together(self, starts: Sequence[Callable[[], None]]) -> None:
        """Start every launch before waiting for one. Each takes a thread, because a launch of an emulated device returns at its end."""
        with ThreadPoolExecutor(len(starts)) as pool:
            for done in [pool.submit(copy_context().run, start) for start in starts]:
                done.result()

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

    def _graph(self, order: Sequence[Execution], timed: bool = False) -> StepGraph:
        return self.targets[0].graph_of_steps(self._bound_steps(order), timed=timed)

    def _bound_steps(self, order: Sequence[Execution]) -> list[BoundStep]:
        """Return the steps of some executions that follow each other; what they wait for before these is over."""
        steps: list[BoundStep] = []
        first = order[0].number if order else 0
        ends: list[range] = []
        for execution in order:
            waits = tuple(position for number in execution.waits if number >= first for position in ends[number - first])
            actions = self._bound_actions(execution)
            made = [BoundStep(observed(one) if isinstance(one, BoundLaunch) else one, target, waits) for one, target in actions]
            ends.append(range(len(steps), len(steps) + len(made)))
            steps += made
        return steps

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
            return End(memory.address + view.offset, view.strides, is_on_host=False)
        return End(int(memory.ctypes.data) + view.offset, view.strides, is_on_host=True)

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


def _launches(order: Sequence[Execution]) -> Iterator[Launch]:
    seen: set[int] = set()
    for execution in order:
        action = execution.action
        if id(action) not in seen:
            seen.add(id(action))
            yield from (launch for _, launch in action.launches) if isinstance(action, Together) else ()
            if isinstance(action, Launch):
                yield action


class _Modules:
    """The modules that kernels of a plan are from, loaded on each target that launches one."""

    def __init__(self, modules: Iterable[Module | LoadedModule]) -> None:
        self._modules: dict[str, Module] = {}
        self._loaded: dict[tuple[str, int], LoadedModule] = {}
        for module in modules:
            text = module.module if isinstance(module, LoadedModule) else module
            digest = module_digest(text)
            self._modules[digest] = text
            if isinstance(module, LoadedModule):
                self._loaded[digest, id(module.target)] = module

    def check(self, launch: Launch) -> None:
        if launch.kernel.module not in self._modules:
            raise BadPlan(f"the module of kernel {launch.kernel} was not given: pass it in `modules`")
        if launch.kernel.name not in self._modules[launch.kernel.module].kernels:
            raise BadPlan(f"the module of kernel {launch.kernel} has no kernel of that name")

    def kernel(self, launch: Launch, target: Target) -> Kernel:
        key = launch.kernel.module, id(target)
        if key not in self._loaded:
            self._loaded[key] = target.load(self._modules[launch.kernel.module])
        return self._loaded[key][launch.kernel.name]


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
