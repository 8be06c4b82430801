"""Bind the actions of a plan to targets and memory."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from memlane.errors import BadLaunch, BadPlan
from memlane.launch import (
    BoundCall,
    BoundCopy,
    BoundEnqueue,
    BoundStep,
    DeviceArray,
    End,
    Origin,
    Target,
    apply_observers,
    has_observers,
    show_step,
)
from memlane.launch import Launch as BoundLaunch
from memlane.plan import Action, Buffer, Copy, DeviceCall, Execution, HostCall, Launch, Put, Together, View, Wait, signals
from memlane.targets.binding import Memory, Modules, check_use
from memlane.targets.signals import Signals

BoundAction = BoundLaunch | BoundCopy | BoundCall | BoundEnqueue


class BoundActions:
    """The actions of a plan's steps on some targets, over memory that they keep alive."""

    def __init__(
        self,
        order: Sequence[Execution],
        targets: Sequence[Target],
        memory: Mapping[Buffer, Memory],
        modules: Modules,
        flags: Signals,
        stages: dict[int, npt.NDArray[Any]] | None = None,
    ) -> None:
        """Bind every step. Raises BadPlan, naming the step.

        `stages`: pinned staging memory for copies of pageable memory, if another binding has allocated it.
        """
        self.flags = flags
        self.order, self.targets, self.memory, self._modules = order, targets, memory, modules
        self._bound: dict[tuple[int, int | None], tuple[Action, list[tuple[BoundAction, Target | None]]]] = {}
        """Action, which is kept alive, and device -> bound actions."""
        self._stages = {} if stages is None else stages
        """Copy from or to pageable host memory -> its pinned staging memory."""
        for execution in order:
            try:
                self.of(execution)
            except BadLaunch as error:
                raise BadPlan(f"{execution}: {error}") from None

    def over(self, memory: Mapping[Buffer, Memory]) -> BoundActions:
        """Return the same steps over other memory."""
        return BoundActions(self.order, self.targets, memory, self._modules, self.flags, self._stages)

    def of_order(self, order: Sequence[Execution]) -> BoundActions:
        """Return the actions of other executions of the same plan, over the same memory."""
        if order is self.order:
            return self
        return BoundActions(order, self.targets, self.memory, self._modules, self.flags, self._stages)

    @property
    def launches(self) -> list[BoundLaunch]:
        """All launches, each once."""
        return [action for _, found in self._bound.values() for action, _ in found if isinstance(action, BoundLaunch)]

    def steps(self, order: Sequence[Execution]) -> tuple[list[BoundStep], list[range]]:
        """Return the steps of some executions, in order, and the positions of each execution's steps.

        Dependencies on other executions are taken to be satisfied. On GPUs a wait for flags has no edge from the put: its kernel polls
        the flags.
        """
        steps: list[BoundStep] = []
        places: list[range] = []
        ends: dict[int, list[int]] = {}
        done: dict[int, Execution] = {}
        for execution in order:
            begun = len(steps)
            needed = [number for number in execution.waits if number in done and not self.ordered_by_flags(done[number], execution)]
            done[execution.number] = execution
            waits = tuple(position for number in needed for position in ends[number])
            ends[execution.number] = []
            for bound, target in self.of(execution):
                action = self.observed_action(execution, bound, target)
                staged = self._staged(execution.action, action) if isinstance(action, BoundCopy) else (action,)
                beside = len(steps) > begun and isinstance(action, BoundLaunch)
                for number, one in enumerate(staged):
                    after = (len(steps) - 1,) if number else waits
                    steps.append(BoundStep(one, target, after, beside, is_urgent=execution.step.is_urgent))
                ends[execution.number].append(len(steps) - 1)
            places.append(range(begun, len(steps)))
        return steps, places

    def ordered_by_flags(self, before: Execution, execution: Execution) -> bool:
        """Return whether flags alone order an execution after `before`: on GPUs, where both run at the same time."""
        return signals(before.action, execution.action) and not self.targets[0].modelled

    def observed_action(self, execution: Execution, action: BoundAction, target: Target | None) -> BoundAction:
        """Return an action as changed by the observers, which are shown it together with its step."""
        if not has_observers():
            return apply_observers(action) if isinstance(action, BoundLaunch) else action
        device = None if target is None else self.targets.index(target)
        origin = Origin(execution.path, execution.turns, device, str(execution))
        if isinstance(action, BoundLaunch):
            return apply_observers(replace(action, origin=origin))
        show_step(BoundStep(action, target, origin=origin))
        return action

    def _staged(self, copy: Action, bound: BoundCopy) -> Sequence[BoundAction]:
        """Return the actions that replace a copy in a graph, in order.

        A graph may read pageable host memory when it is started rather than when the copy is due, so a host function moves the data from or
        to pinned memory; the same function does copies within the host.
        """
        assert isinstance(copy, Copy)
        to, of = copy.destination.buffer, copy.source.buffer
        if to.is_on_host and of.is_on_host:
            return (_host_copy(self._host_view(copy.destination), self._host_view(copy.source)),)
        if "host" not in (to.home, of.home):
            return (bound,)
        if id(copy) not in self._stages:
            self._stages[id(copy)] = self.targets[0].pinned(copy.source.shape, f"V{copy.source.itemsize}")
        stage = self._stages[id(copy)]
        end = End(int(stage.ctypes.data), stage.strides, owner=stage)
        if of.home == "host":
            return _host_copy(stage, self._host_view(copy.source)), replace(bound, source=end)
        return replace(bound, destination=end), _host_copy(self._host_view(copy.destination), stage)

    def of(self, execution: Execution) -> list[tuple[BoundAction, Target | None]]:
        """Return the actions of an execution: one, or one per device for concurrent launches."""
        action, device = execution.action, execution.step.device
        key = id(action), device
        if key not in self._bound:
            if isinstance(action, Together):
                found: list[tuple[BoundAction, Target | None]] = [self._launch(launch, number) for number, launch in action.launches]
            elif isinstance(action, Launch):
                assert device is not None
                found = [self._launch(action, device)]
            elif isinstance(action, Copy):
                found = [(self._copy(action), None if device is None else self.targets[device])]
            elif isinstance(action, Put | Wait):
                assert device is not None
                found = [(self._signal(action, device), self.targets[device])]
            elif isinstance(action, DeviceCall):
                assert device is not None
                found = [(self._device_call(action, self.targets[device]), self.targets[device])]
            else:
                found = [(self._call(action), None)]
            self._bound[key] = action, found
        return self._bound[key][1]

    def _launch(self, launch: Launch, device: int) -> tuple[BoundAction, Target | None]:
        target = self.targets[device]
        kernel = self._modules.kernel(launch, target)
        check_use(launch, kernel)
        arguments = [self._argument(value, target) if isinstance(value, View) else value for value in launch.arguments]
        arguments += self.flags.raised_by(launch)
        return kernel[launch.grid, launch.block, None, launch.shared_bytes, launch.cluster].bind(*arguments), target

    def _copy(self, copy: Copy) -> BoundCopy:
        return BoundCopy(self._end(copy.destination), self._end(copy.source), copy.source.shape, copy.source.itemsize)

    def _signal(self, action: Put | Wait, device: int) -> BoundLaunch:
        target = self.targets[device]
        if isinstance(action, Wait):
            return self.flags.wait(action, self._modules.signal_kernel("memlane_wait", target), device)
        for touch in action.touches:
            self._argument(touch.view, target)  # raises BadPlan for memory that the kernel cannot access
        return self.flags.put(action, map(self._copy, action.copies), self._modules.signal_kernel("memlane_put", target))

    def _call(self, call: HostCall) -> BoundCall:
        values = [self._host_view(value) if isinstance(value, View) else value for value in call.arguments]
        return BoundCall(partial(_imported(call.function), *values))

    def _device_call(self, call: DeviceCall, target: Target) -> BoundCall | BoundEnqueue:
        if call.enqueues and target.modelled:
            raise BadPlan(f"{call.function} enqueues work on a stream of a GPU, and {target.name} has none: run the plan on a GPU")
        function, values = _imported(call.function), [self._passed(value, target) for value in call.arguments]
        if call.enqueues:
            return BoundEnqueue(lambda stream: function(stream, *values))

        def run() -> None:
            with target.calling():
                function(*values)

        return BoundCall(run)

    def _passed(self, value: object, target: Target) -> object:
        """Return an argument of a function that uses memory of a device."""
        if not isinstance(value, View):
            return value
        return self._host_view(value) if value.buffer.is_on_host else self._argument(value, target)

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def _argument(self, view: View, target: Target) -> DeviceArray:
        """Return the elements of a view as an argument: a kernel gets the address of the first, whatever the strides."""
        memory = self.memory[view.buffer]
        if not isinstance(memory, DeviceArray) and target.modelled:
            raise BadPlan(f"{view} is in pinned memory, which kernels on {target.name} cannot access: copy it to the device")
        home = memory.target if isinstance(memory, DeviceArray) else target
        shape = view.shape if view.is_contiguous else (max(0, view.bounds[1] - view.offset) // view.itemsize,)
        return DeviceArray(home, self._end(view).address, shape, np.dtype(view.dtype), memory)

    def _end(self, view: View) -> End:
        memory = self.memory[view.buffer]
        if isinstance(memory, DeviceArray):
            return End(memory.address + view.offset, view.strides, memory.target, memory)
        return End(int(memory.ctypes.data) + view.offset, view.strides, owner=memory)

    def _host_view(self, view: View) -> npt.NDArray[Any]:
        """Return a NumPy view of a view's elements in host memory, without copying."""
        memory = self.memory[view.buffer]
        assert isinstance(memory, np.ndarray)
        if not view.size:
            return np.empty(view.shape, view.dtype)
        first = memory.reshape(-1).view(np.uint8)[view.offset : view.offset + view.itemsize].view(view.dtype)
        return as_strided(first, view.shape, view.strides)

    def value(self, view: View) -> bool:
        return bool(self._host_view(view).reshape(-1)[0])


def _imported(name: str) -> Callable[..., None]:
    try:
        function: Callable[..., None] = pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise BadPlan(f"host function {name} cannot be imported: {error}") from None
    return function


def _host_copy(to: npt.NDArray[Any], of: npt.NDArray[Any]) -> BoundCall:
    """Return a host function that copies elements as raw bytes of their size."""
    return BoundCall(partial(np.copyto, to.view(f"V{to.itemsize}"), of.view(f"V{of.itemsize}"), casting="no"))
