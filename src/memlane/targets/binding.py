"""Bind the names in a plan: buffers to memory, kernels to loaded modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import BadPlan, DeviceError
from memlane.launch import Declared, DeclaredBuffer, DeviceArray, Kernel, LoadedModule, Target, module_digest
from memlane.number_format import plural
from memlane.plan import (
    Action,
    Buffer,
    DeviceCall,
    Execution,
    HostCall,
    Launch,
    Plan,
    Together,
    View,
    Wait,
    all_steps,
    lifetimes,
    raised_flags,
)
from memlane.ptx import Module
from memlane.targets.signals import signal_module

Memory = DeviceArray | npt.NDArray[Any]
"""The memory of a buffer: an array on the target of its device, or a NumPy array for a buffer on the host."""


def bound_memory(plan: Plan, order: Sequence[Execution], targets: Sequence[Target], bindings: Mapping[str, Memory]) -> dict[Buffer, Memory]:
    """Return the memory of each buffer of a plan: the checked binding, or newly allocated memory.

    Raises BadPlan for a binding that does not fit, and for an unbound buffer that is read before the plan writes to it.
    """
    names = {buffer.name for buffer in plan.buffers}
    for name in bindings:
        if name not in names:
            raise BadPlan(f"the plan has no buffer {name!r} to bind; it has {', '.join(sorted(names)) or 'none'}")
    kept, flags = lifetimes(order), set(plan.flags)
    memory: dict[Buffer, Memory] = {}
    for buffer in plan.buffers:
        if buffer in flags:
            _check_unbound(buffer, bindings)
            memory[buffer] = _allocate(buffer, plan, targets, is_flag=True)
        elif buffer.name in bindings:
            memory[buffer] = _check_memory(buffer, bindings[buffer.name], order, targets)
        elif buffer in kept and kept[buffer].is_input:
            first = order[kept[buffer].first]
            raise BadPlan(f"buffer {buffer.name!r} is not bound, and {first} reads it before anything is written there: bind it to memory")
        else:
            memory[buffer] = _allocate(buffer, plan, targets)
    return memory


def _allocate(buffer: Buffer, plan: Plan, targets: Sequence[Target], is_flag: bool = False) -> Memory:
    """Return new memory for a buffer; flags are zeroed. Raises DeviceError if there is not enough."""
    (shape, dtype), home = _shape_and_type(buffer, plan), buffer.home
    try:
        if isinstance(home, int):
            return targets[home].zeros(shape, dtype) if is_flag else targets[home].empty(shape, dtype)
        return targets[0].pinned(shape, dtype) if home == "pinned" else np.empty(shape, dtype)
    except (DeviceError, MemoryError) as error:
        where = targets[home].name if isinstance(home, int) else "the host"
        raise DeviceError(f"not enough memory on {where} for buffer {buffer.name!r} of {plural(buffer.nbytes, 'byte')}: {error}") from None


def _check_unbound(buffer: Buffer, bindings: Mapping[str, Memory]) -> None:
    if buffer.name in bindings:
        raise BadPlan(f"buffer {buffer.name!r} is a flag, whose memory is made with the plan: leave it out")


def rebound_memory(
    plan: Plan, order: Sequence[Execution], targets: Sequence[Target], before: Mapping[Buffer, Memory], bindings: Mapping[str, Memory]
) -> dict[Buffer, Memory]:
    """Return the memory of each buffer after some have been rebound. Raises BadPlan if shape or type differ from the former memory."""
    buffers = {buffer.name: buffer for buffer in before}
    memory = dict(before)
    for flag in plan.flags:
        _check_unbound(flag, bindings)
    for name, value in bindings.items():
        if name not in buffers:
            raise BadPlan(f"the plan has no buffer {name!r} to bind; it has {', '.join(sorted(buffers)) or 'none'}")
        found, held = _check_memory(buffers[name], value, order, targets), before[buffers[name]]
        if (found.shape, found.dtype) != (held.shape, held.dtype):
            was, given = (f"{one.dtype}[{', '.join(map(str, one.shape))}]" for one in (held, found))
            raise BadPlan(f"buffer {name!r} is bound to {was} and cannot be rebound to {given}: bind an array of the same shape and type")
        memory[buffers[name]] = found
    return memory


def _shape_and_type(buffer: Buffer, plan: Plan) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and the type of new memory for a buffer: those of a view of all of it, or one row of the views' element type."""
    views = [view for step in all_steps(plan.steps) for view in _views(step.action) if view.buffer == buffer]
    whole = next((view for view in views if view.nbytes == buffer.nbytes and view.is_contiguous and view.dtype != "u1"), None)
    if whole is not None:
        return whole.shape, np.dtype(whole.dtype)
    kind = next((np.dtype(view.dtype) for view in views if view.dtype != "u1" and buffer.nbytes % view.itemsize == 0), np.dtype("u1"))
    return (buffer.nbytes // kind.itemsize,), kind


def _views(action: Action) -> Iterator[View]:
    """Yield the views among an action's arguments, and those that it declares to touch."""
    if isinstance(action, Together):
        for _, launch in action.launches:
            yield from _views(launch)
        return
    yield from action.flags if isinstance(action, Wait) else raised_flags(action)
    if isinstance(action, Launch | HostCall | DeviceCall):
        yield from (value for value in action.arguments if isinstance(value, View))
    yield from (touch.view for touch in action.touches)


def _check_memory(buffer: Buffer, memory: object, order: Sequence[Execution], targets: Sequence[Target]) -> Memory:
    where = f"buffer {buffer.name!r}"
    if isinstance(buffer.home, int):
        home = targets[buffer.home]
        if not isinstance(memory, DeviceArray):
            raise BadPlan(f"{where} belongs to device {buffer.home}: bind an array of {home.name} to it, not a {type(memory).__name__}")
        if memory.target is not home:
            raise BadPlan(
                f"{where} belongs to device {buffer.home}, {home.name}, but is bound to an array on {memory.target.name_beside(home)}"
            )
    elif not isinstance(memory, np.ndarray):
        raise BadPlan(f"{where} belongs to the host: bind a NumPy array to it, not a {type(memory).__name__}")
    elif not memory.flags.c_contiguous:
        raise BadPlan(f"{where} is bound to an array that is not C-contiguous: bind a contiguous copy, np.ascontiguousarray(x)")
    elif not memory.flags.writeable and any(touch.writes and touch.view.buffer == buffer for one in order for touch in one.action.touches):
        raise BadPlan(f"{where} is written by the plan, but is bound to a read-only array: bind a copy")
    elif buffer.home == "pinned" and not targets[0].is_pinned(memory):
        remedy = "make the array with target.pinned(shape, dtype), or place the buffer on 'host'"
        raise BadPlan(f"{where} is pinned, but is bound to pageable memory: {remedy}")
    if memory.nbytes < buffer.nbytes:
        raise BadPlan(f"{where} has {plural(buffer.nbytes, 'byte')}, but is bound to an array of {memory.nbytes}")
    return memory


def declared(execution: Execution, memory: Mapping[Buffer, Memory]) -> Declared | None:
    """Return the declared reads and writes of a launch, with addresses, for the checker; None if nothing is declared."""
    launch = execution.action
    if not isinstance(launch, Launch) or (launch.reads is None and launch.reads_through is None):
        return None
    touches = launch.touches
    written = [*(touch.view for touch in touches if touch.writes), *launch.raises]
    areas = [
        DeclaredBuffer(
            buffer.name,
            array.address,
            buffer.nbytes,
            tuple(touch.view for touch in touches if touch.reads and touch.view.buffer == buffer),
            tuple(view for view in written if view.buffer == buffer),
        )
        for buffer, array in memory.items()
        if isinstance(array, DeviceArray)
    ]
    return Declared(str(execution), tuple(areas), is_derived=launch.reads is None)


def check_use(launch: Launch, kernel: Kernel) -> None:
    """Raise BadPlan if a plan claims that a kernel does not access an array that it may access.

    That happens if the plan was edited, or made by an older version of memlane.
    """
    if launch.reads_through is None or launch.writes_through is None:
        return
    found = kernel.argument_use([isinstance(one, View) for one in launch.arguments])
    for verb, kept, real in zip(("read", "write"), (launch.reads_through, launch.writes_through), found or ((), ()), strict=True):
        missing = sorted(set(real) - set(kept))
        if missing:
            raise BadPlan(
                f"{launch.kernel} may {verb} through argument {missing[0] + 1}, {launch.arguments[missing[0]]}, but the plan says that "
                "it does not: make a new plan, or pass reads= and writes= to the launch"
            )


def _launches(order: Sequence[Execution]) -> Iterator[Launch]:
    seen: set[int] = set()
    for execution in order:
        action = execution.action
        if id(action) not in seen:
            seen.add(id(action))
            if isinstance(action, Together):
                yield from (launch for _, launch in action.launches)
            elif isinstance(action, Launch):
                yield action


class Modules:
    """The modules of a plan's kernels, loaded on each target that launches one."""

    def __init__(self, modules: Iterable[Module | LoadedModule]) -> None:
        self._modules: dict[str, Module] = {}
        self._loaded: dict[tuple[str, int], LoadedModule] = {}
        for module in modules:
            text = module.module if isinstance(module, LoadedModule) else module
            digest = module_digest(text)
            self._modules[digest] = text
            if isinstance(module, LoadedModule):
                self._loaded[digest, id(module.target)] = module

    def check(self, order: Sequence[Execution]) -> None:
        """Raise BadPlan if a kernel of a plan is in none of the modules."""
        for launch in _launches(order):
            self._check(launch)

    def _check(self, launch: Launch) -> None:
        if launch.kernel.module not in self._modules:
            raise BadPlan(f"the module of kernel {launch.kernel} was not given: pass it in `modules`")
        if launch.kernel.name not in self._modules[launch.kernel.module].kernels:
            raise BadPlan(f"the module of kernel {launch.kernel} has no kernel of that name")

    def kernel(self, launch: Launch, target: Target) -> Kernel:
        return self._kernel(launch.kernel.module, launch.kernel.name, target)

    def signal_kernel(self, name: str, target: Target) -> Kernel:
        """Return the kernel of puts or waits, whose module is built in."""
        digest = module_digest(signal_module())
        self._modules.setdefault(digest, signal_module())
        return self._kernel(digest, name, target)

    def _kernel(self, digest: str, name: str, target: Target) -> Kernel:
        key = digest, id(target)
        if key not in self._loaded:
            self._loaded[key] = target.load(self._modules[digest])
        return self._loaded[key][name]
