"""Write plans step by step: a builder returns references that later steps can wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memlane.errors import BadPlan
from memlane.plan.actions import Action, Copy, DeviceCall, Dim3, HostCall, KernelRef, Launch, Put, Together, Value, Wait
from memlane.plan.buffers import Buffer, Home, View
from memlane.plan.plan import Plan, Repeat, Step

Extents = int | tuple[int, ...]
FLAG_WORDS = 32
"""Words of a flag: it fills a cache line, so that no other data moves with it between devices."""


class HasRef(Protocol):
    """A kernel of a loaded module, with its reference for plans and the arguments through which it reads and writes."""

    @property
    def ref(self) -> KernelRef: ...

    def argument_use(self, is_array: Sequence[bool]) -> tuple[tuple[int, ...], tuple[int, ...]] | None: ...


@dataclass(frozen=True, slots=True)
class StepRef:
    """Reference to a step added to a builder, for dependencies."""

    builder: PlanBuilder
    position: int


class PlanBuilder:
    """Builder of a plan from steps.

    b = ml.PlanBuilder()
    host, device = b.array("host", n, "f4", "pinned"), b.array("device", n, "f4", 0)
    for chunk in range(8):
        part = slice(chunk * n // 8, (chunk + 1) * n // 8)
        arrived = b.copy(device[part], host[part], queue=1)
        b.launch(kernel, grid, block, device[part], n // 8, after=[arrived], reads=[device[part]], writes=[device[part]])
    plan = b.plan()
    """

    def __init__(self, outer: PlanBuilder | None = None) -> None:
        self._items: list[Step | Repeat] = []
        self._open = False
        self._outer = outer
        self._as_step: StepRef | None = None
        """Reference to a closed repeat, for steps around it."""
        self._names: set[str] = set() if outer is None else outer._names

    def array(self, name: str, shape: Extents, dtype: npt.DTypeLike, home: Home = 0) -> View:
        """Create a buffer, and return a view of all its elements in C order."""
        if name in self._names:
            raise BadPlan(f"the plan already has an array {name!r}: use a different name")
        self._names.add(name)
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = prod(extents) * np.dtype(dtype).itemsize
        return Buffer(name, nbytes, home).view(dtype, extents)

    def launch(
        self,
        kernel: KernelRef | HasRef,
        grid: Extents,
        block: Extents,
        *arguments: Value,
        device: int | None = None,
        queue: int = 0,
        after: Waits = (),
        reads: Sequence[View] | None = None,
        writes: Sequence[View] | None = None,
        shared_bytes: int = 0,
        cluster: Extents | None = None,
        label: str = "",
        is_urgent: bool = False,
        raises: Iterable[View] = (),
    ) -> StepRef:
        """Add a launch. Its device defaults to that of the first argument on a device.

        Blocks of an urgent launch start before those of others that wait for room on the device. `raises`: flags that the kernel itself
        raises (`Launch.raises`).
        """
        launch = planned(kernel, grid, block, *arguments, reads=reads, writes=writes, shared_bytes=shared_bytes, cluster=cluster)
        launch = replace(launch, raises=tuple(raises))
        return self.add(launch, device=device, queue=queue, after=after, label=label, is_urgent=is_urgent)

    def add(
        self,
        launch: Launch,
        *,
        device: int | None = None,
        queue: int = 0,
        after: Waits = (),
        label: str = "",
        is_urgent: bool = False,
    ) -> StepRef:
        """Add a launch made by `planned`. Its device defaults to that of the first argument on a device."""
        if device is None:
            homes = (one.buffer.home for one in launch.arguments if isinstance(one, View))
            device = next((home for home in homes if isinstance(home, int)), 0)
        return self._add(Step(launch, device, queue, self._positions(after), label=label, is_urgent=is_urgent))

    def copy(
        self,
        destination: View,
        source: View,
        *,
        device: int | None = None,
        queue: int = 0,
        after: Waits = (),
        label: str = "",
    ) -> StepRef:
        """Add a copy. Its device defaults to the source's, else the destination's."""
        homes = (source.buffer.home, destination.buffer.home)
        if device is None:
            device = next((home for home in homes if isinstance(home, int)), None)
        return self._add(Step(Copy(destination, source), device, queue, self._positions(after), label=label))

    def call(
        self,
        function: str,
        *arguments: Value,
        queue: int = 0,
        after: Waits = (),
        reads: Sequence[View] | None = None,
        writes: Sequence[View] | None = None,
        label: str = "",
    ) -> StepRef:
        """Add a call of a host function, named as `package.module:function`."""
        call = HostCall(function, arguments, _tuple(reads), _tuple(writes))
        return self._add(Step(call, None, queue, self._positions(after), label=label))

    def device_call(
        self,
        function: str,
        *arguments: Value,
        device: int,
        queue: int = 0,
        after: Waits = (),
        reads: Sequence[View] | None = None,
        writes: Sequence[View] | None = None,
        enqueues: bool = False,
        label: str = "",
    ) -> StepRef:
        """Add a call of a function that uses memory of a device, named as `package.module:function` (see `DeviceCall`)."""
        call = DeviceCall(function, arguments, _tuple(reads), _tuple(writes), enqueues)
        return self._add(Step(call, device, queue, self._positions(after), label=label))

    def together(
        self,
        launches: Iterable[tuple[int, Launch]],
        *,
        queue: int = 0,
        after: Waits = (),
        label: str = "",
    ) -> StepRef:
        """Add launches (made by `planned`) that run concurrently, each on its own device, and may signal each other."""
        step = Step(Together(tuple(launches)), None, queue, self._positions(after), label=label)
        return self._add(step)

    def flag(self, name: str, device: int) -> View:
        """Create a flag in the memory of the device that waits for it. One put raises it, and one wait waits for it."""
        return self.array(name, FLAG_WORDS, "u4", device)

    def put(
        self,
        copies: Iterable[tuple[View, View]],
        flags: Iterable[View],
        *,
        device: int,
        queue: int = 0,
        after: Waits = (),
        label: str = "",
    ) -> StepRef:
        """Add a put: a kernel of a device stores elements into memory of others and raises flags there.

        `copies`: pairs of a destination and a source of equal shape and type; without any, only the flags are raised. Puts and waits are
        urgent, because other devices wait for them.
        """
        action = Put(tuple(Copy(to, of) for to, of in copies), tuple(flags))
        return self._add(Step(action, device, queue, self._positions(after), label=label, is_urgent=True))

    def wait(self, flags: Iterable[View], *, device: int, queue: int = 0, after: Waits = (), label: str = "") -> StepRef:
        """Add a wait of a device for flags in its memory. `after` must contain the puts that raise them."""
        return self._add(Step(Wait(tuple(flags)), device, queue, self._positions(after), label=label, is_urgent=True))

    def action(self, step: StepRef) -> Action:
        """Return the action of a step of this builder."""
        (position,) = self._positions([step])
        item = self._items[position]
        assert isinstance(item, Step)
        return item.action

    def carry(self, step: StepRef, to: Waits) -> None:
        """Make steps of the next turn wait for `step` of this turn; allowed only in a repeat."""
        (waited,) = self._positions([step])
        for position in self._positions(to):
            item = self._items[position]
            if isinstance(item, Repeat):
                raise BadPlan(
                    f"the repeat {item.name!r} cannot wait for a step of the previous turn: make its first steps wait for a step "
                    "that precedes the repeat"
                )
            self._items[position] = replace(item, after_last_turn=(*item.after_last_turn, waited))

    @contextmanager
    def repeat(
        self,
        count: int,
        *,
        rotate: Sequence[Sequence[View]] = (),
        until: View | None = None,
        every: int = 1,
        after: Waits = (),
        label: str = "",
    ) -> Iterator[PlanBuilder]:
        """Collect the steps of a repeat in the `with` block, through the yielded builder. After the block, steps may wait for the whole
        repeat: `after=[loop]`."""
        waits = self._positions(after)
        inner = PlanBuilder(self)
        self._open = True
        try:
            yield inner
        finally:
            self._open = False
        groups = tuple(tuple(view.buffer for view in group) for group in rotate)
        self._items.append(Repeat(tuple(inner._items), count, groups, until, every, waits, label))
        inner._as_step = StepRef(self, len(self._items) - 1)

    def plan(self) -> Plan:
        """Return the plan of all steps so far. Raises BadPlan if it is invalid."""
        return Plan(tuple(self._items))

    def _add(self, step: Step) -> StepRef:
        if self._open:
            raise BadPlan(
                f"{step.name} was added outside a repeat whose block is still open: add it through the builder of the repeat, or after "
                "the block"
            )
        self._items.append(step)
        return StepRef(self, len(self._items) - 1)

    def _positions(self, waits: Waits) -> tuple[int, ...]:
        found = []
        for one in (waits,) if isinstance(waits, StepRef | PlanBuilder) else waits:
            step = one._as_step if isinstance(one, PlanBuilder) else one
            if step is None:
                raise BadPlan("a step cannot wait for a repeat whose block is still open: add the step after the block")
            if step.builder._root is not self._root:
                raise BadPlan("a step cannot wait for a step of another plan: add both with the same builder")
            if step.builder is not self:
                raise BadPlan(
                    "a step cannot wait across the boundary of a repeat: pass `after` to `repeat` to make the repeat wait, or wait for "
                    "the whole repeat with after=[loop] after its block"
                )
            found.append(step.position)
        return tuple(found)

    @property
    def _root(self) -> PlanBuilder:
        return self if self._outer is None else self._outer._root


Waits = StepRef | PlanBuilder | Iterable[StepRef | PlanBuilder]
"""Dependencies of a step: steps, and repeats given by the builders of their blocks."""


def planned(
    kernel: KernelRef | HasRef,
    grid: Extents,
    block: Extents,
    *arguments: Value,
    reads: Sequence[View] | None = None,
    writes: Sequence[View] | None = None,
    shared_bytes: int = 0,
    cluster: Extents | None = None,
) -> Launch:
    """Return a launch for a plan. Raises BadPlan if `kernel` is not a kernel.

    Without `reads` and `writes`, the kernel's PTX gives the arguments through which it reads and writes. A `KernelRef` has no PTX.
    """
    ref = kernel if isinstance(kernel, KernelRef) else getattr(kernel, "ref", None)
    if not isinstance(ref, KernelRef):
        raise BadPlan(f"a launch needs a kernel of a loaded module, or its ref, not a {type(kernel).__name__}")
    clusters = None if cluster is None else _dim3(cluster)
    launch = Launch(ref, _dim3(grid), _dim3(block), arguments, shared_bytes, clusters, _tuple(reads), _tuple(writes))
    if isinstance(kernel, KernelRef) or reads is not None:
        return launch
    through = kernel.argument_use([isinstance(one, View) for one in arguments])
    return launch if through is None else replace(launch, reads_through=through[0], writes_through=through[1])


def _dim3(extents: Extents) -> Dim3:
    given = (extents,) if isinstance(extents, int) else tuple(extents)
    if not 1 <= len(given) <= 3 or any(extent < 1 for extent in given):
        raise BadPlan(f"a grid, block or cluster has one to three extents of at least 1, not {given}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _tuple(views: Sequence[View] | None) -> tuple[View, ...] | None:
    return None if views is None else tuple(views)
