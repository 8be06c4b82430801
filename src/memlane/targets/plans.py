"""Plans bound to targets and memory, and run.

    run = ml.run(plan, {"host": host, "device": array}, targets=ml.devices("emulator:h200", 4), modules=[module])
    run["result"]                   # what was bound to the buffer, or the memory that was made for it
    print(run.timeline)             # modelled, where all targets are emulated

Binding happens here and nowhere else: a buffer becomes memory, a kernel reference a kernel of a loaded module, a device a target. Steps are
executed one after another in the order of `memlane.plan.executions`, which is one of the orders that the plan allows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from memlane.errors import BadPlan, DeviceError
from memlane.launch import DeviceArray, Kernel, LoadedModule, Target, module_digest, observed
from memlane.launch import Launch as BoundLaunch
from memlane.plan import (
    Buffer,
    Copy,
    Execution,
    HostCall,
    Launch,
    Plan,
    Repeat,
    Step,
    Together,
    View,
    check,
    executions,
    lifetimes,
)
from memlane.ptx import Module
from memlane.targets.names import target as named_target

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
        self._modules = _Modules(modules)
        for step in _launches(self.order):
            self._modules.check(step)

    def run(self) -> PlanRun:
        """Execute every step and wait for them."""
        ends = _Ends(self.plan)
        for execution in self.order:
            if not ends.is_over(execution, self._value):
                self._execute(execution)
        for target in self.targets:
            target.sync()
        return PlanRun(self.plan, {buffer.name: memory for buffer, memory in self.memory.items()}, ends.turns)

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

    def _execute(self, execution: Execution) -> None:
        action, device = execution.action, execution.step.device
        if isinstance(action, Launch):
            assert device is not None
            self._start(self._launch(action, device))
        elif isinstance(action, Copy):
            self._put(action.destination, self._get(action.source))
        elif isinstance(action, HostCall):
            self._call(action)
        else:
            self._together(action)

    def _launch(self, launch: Launch, device: int) -> BoundLaunch:
        kernel = self._modules.kernel(launch, self.targets[device])
        arguments = [self._device_view(value) if isinstance(value, View) else value for value in launch.arguments]
        return kernel[launch.grid, launch.block, None, launch.shared_bytes, launch.cluster].bind(*arguments)

    def _start(self, launch: BoundLaunch) -> None:
        launch.kernel.target.launch(observed(launch))

    def _together(self, action: Together) -> None:
        """Start every launch before waiting for one; emulated devices run in a thread each, because a launch returns when it has ended."""
        launches = [self._launch(launch, device) for device, launch in action.launches]
        if not all(launch.kernel.target.modelled for launch in launches):
            for launch in launches:
                self._start(launch)
            return
        with ThreadPoolExecutor(len(launches)) as pool:
            for done in [pool.submit(copy_context().run, self._start, launch) for launch in launches]:
                done.result()

    def _call(self, call: HostCall) -> None:
        try:
            function = pkgutil.resolve_name(call.function)
        except (ImportError, AttributeError) as error:
            raise BadPlan(f"host function {call.function} cannot be imported: {error}") from None
        function(*(self._host_view(value) if isinstance(value, View) else value for value in call.arguments))

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def _device_view(self, view: View) -> DeviceArray:
        """Return the elements of a view as an argument: a kernel gets the address of the first, whatever the strides."""
        memory = self.memory[view.buffer]
        if not isinstance(memory, DeviceArray):
            raise BadPlan(f"{view} lies in pinned memory, which kernels of {self.targets[0].name} cannot be handed: copy it to the device")
        shape = view.shape if view.is_contiguous else (max(0, view.bounds[1] - view.offset) // view.itemsize,)
        return DeviceArray(memory.target, memory.address + view.offset, shape, np.dtype(view.dtype), memory)

    def _host_view(self, view: View) -> npt.NDArray[Any]:
        """Return the elements of a view of memory on the host, where they lie."""
        memory = self.memory[view.buffer]
        assert isinstance(memory, np.ndarray)
        return _elements(memory.reshape(-1).view(np.uint8), view, view.offset)

    def _get(self, view: View) -> npt.NDArray[Any]:
        """Return a copy of the elements of a view, wherever they lie."""
        memory = self.memory[view.buffer]
        if not isinstance(memory, DeviceArray):
            return self._host_view(view).copy()
        low, high = view.bounds
        span = np.empty(high - low, np.uint8)
        if span.nbytes:
            memory.target.read(memory.address + low, span)
        return _elements(span, view, view.offset - low).copy()

    def _put(self, view: View, values: npt.NDArray[Any]) -> None:
        """Write the elements of a view; what lies between them stays."""
        memory = self.memory[view.buffer]
        values = values.view(np.dtype(view.dtype))
        if not isinstance(memory, DeviceArray):
            self._host_view(view)[...] = values
            return
        for address, piece in _contiguous(view, values):
            memory.target.write(memory.address + address, piece)

    def _value(self, view: View) -> bool:
        return bool(self._host_view(view).reshape(-1)[0])


def _elements(span: npt.NDArray[np.uint8], view: View, offset: int) -> npt.NDArray[Any]:
    """Return the elements of a view in a piece of memory in which the first one lies at `offset`."""
    if not view.size:
        return np.empty(view.shape, view.dtype)
    first = span[offset : offset + view.itemsize].view(view.dtype)
    return as_strided(first, view.shape, view.strides)


def _contiguous(view: View, values: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield pieces of a view that lie side by side, each with its offset in the buffer."""
    if view.size:
        outer = next(axes for axes in range(len(view.shape) + 1) if view[(0,) * axes].is_contiguous)
        for index in np.ndindex(*view.shape[:outer]):
            yield view[index].offset, np.ascontiguousarray(values[index])


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
