"""Start, await, repeat and time transfers bound to memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from memlane.errors import DeviceError
from memlane.launch import Event, LoadedModule, Stream, Target, has_observers
from memlane.number_format import plural
from memlane.plan import Plan, Timeline
from memlane.ptx import Module
from memlane.remap.requests import TransferPlan
from memlane.remap.staging import copy, default_threads
from memlane.targets import BoundPlan, PlanGraph
from memlane.targets.binding import Memory

_MOST_KEPT = 1 << 29
"""Maximum bytes of pinned memory kept in a target's pool for later transfers."""


class Transfer:
    """An upload or download whose plan can be inspected before and after it ran.

    array = ml.upload(target, host, layout="column-major")
    print(array.transfer.plan)                  # what ran
    print(array.transfer.predicted)             # when each step was predicted to run; None if the chip file lacks numbers
    print(array.transfer.time())                # runs it once more and returns when each step ran
    array.transfer.run()                        # copies the present contents of the host's array
    done = await transfer                       # in an asyncio task; for a transfer started with `wait=False` or `keep=False`
    """

    def __init__(
        self,
        target: Target,
        made: TransferPlan,
        memory: Mapping[str, Memory],
        modules: Iterable[Module | LoadedModule] = (),
        *,
        predict: Callable[[], Timeline | None] = lambda: None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        self.target = target
        self.made = made
        self._predict = predict
        self.started = False
        self._memory = dict(memory)
        self._modules = (*loaded_modules(target, made), *modules)
        self._finish = finish
        self._bound: BoundPlan | None = None
        self._graph: PlanGraph | None = None
        self._borrowed: list[npt.NDArray[Any]] = []
        self._repeats = False
        self._event: Event | None = None
        """Event after the last start."""

    def __repr__(self) -> str:
        return f"<Transfer: {plural(self.chunks, 'chunk')}, {plural(len(self.plan.steps), 'step')} on {self.target.name}>"

    @cached_property
    def predicted(self) -> Timeline | None:
        """Predicted times of all steps; None if the chip file lacks a required number."""
        return self._predict()

    @property
    def plan(self) -> Plan:
        """The steps: copies, remaps and the consumer's launches."""
        return self.made.plan

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return self.made.chunks

    def start(self, stream: Stream | None = None) -> None:
        """Start the transfer, on a stream of the target if given. It returns at once on a GPU, and after the transfer on the emulator."""
        place = self.target.stream_of(stream)
        bound = self._binding()
        try:
            if self.target.modelled:
                bound.run()
            else:
                if self._graph is None or has_observers():
                    self._graph = bound.graph()
                self._graph.replay(place)
                self._event = self.target.record(place)
        except BaseException:  # including Ctrl-C: release everything acquired for the transfer
            self._abort()
            raise
        self.started = True

    def wait(self) -> None:
        """Wait for the last start. Raises the errors since then; waiting again does nothing."""
        if not self.started:
            return
        self.started = False
        try:
            if self._graph is not None:
                self._graph.wait()
            if self._finish is not None:
                self._finish()
        except BaseException:  # including Ctrl-C: release everything acquired for the transfer
            self._abort()
            raise
        if not self._repeats:
            self._release()

    def __await__(self) -> Generator[object, None, Transfer]:
        """Wait as `wait` does, without blocking other asyncio tasks."""
        if self.started and self._event is not None:
            yield from self._event.__await__()
        self.wait()
        return self

    def run(self, stream: Stream | None = None) -> None:
        """Transfer the present contents again, and wait. From the second time on everything is prepared."""
        self.wait()
        self._repeats = True
        self.start(stream)
        self.wait()

    def time(self) -> Timeline:
        """Run the transfer once more and return when each step ran: measured on GPUs, modelled on emulated devices."""
        self.wait()
        try:
            timeline = self._binding().time()
            if self._finish is not None:
                self._finish()
        except BaseException:  # including Ctrl-C: release everything acquired for the transfer
            self._abort()
            raise
        if not self._repeats:
            self._release()
        return timeline

    def _binding(self) -> BoundPlan:
        if self._bound is None:
            sizes = {buffer.name: buffer.nbytes for buffer in self.plan.buffers}
            staged: dict[str, Memory] = {}
            try:
                for name in self.made.staged:
                    self._borrowed.append(_borrow(self.target, sizes[name]))
                    staged[name] = self._borrowed[-1]
                self._bound = BoundPlan(self.plan, {**self._memory, **staged}, targets=[self.target], modules=self._modules)
            except BaseException:  # including Ctrl-C: release everything acquired for the transfer
                self._release()
                raise
        return self._bound

    def _abort(self) -> None:
        """Stop all work on memory of the caller, and return borrowed memory to the pool."""
        with suppress(Exception):  # the first error is already being raised
            self.target.sync()
        self._release()

    def _release(self) -> None:
        self._bound = self._graph = self._event = None
        for array in self._borrowed:
            _give_back(self.target, array)
        self._borrowed = []

    def __del__(self) -> None:
        if getattr(self, "_graph", None) is not None and self.started:
            with suppress(Exception):  # no caller is left to report errors to
                self._graph.wait()  # type: ignore[union-attr]
        if getattr(self, "_borrowed", None):
            self._release()


def loaded_modules(target: Target, made: TransferPlan) -> list[LoadedModule]:
    """Return the modules of remaps loaded on a target, which caches them for later transfers."""
    loaded: dict[str, LoadedModule] = target.__dict__.setdefault("_remap_modules", {})
    for digest, module in zip(made.kernels, made.modules, strict=True):
        if digest not in loaded:
            loaded[digest] = target.load(module)
    return [loaded[digest] for digest in made.kernels]


_kept: WeakKeyDictionary[Target, list[npt.NDArray[Any]]] = WeakKeyDictionary()
_lock = threading.Lock()


def _borrow(target: Target, nbytes: int) -> npt.NDArray[Any]:
    """Return pinned memory of at least `nbytes`, from the pool or newly allocated."""
    with _lock:
        fitting = [array for array in _kept.get(target, []) if array.nbytes >= nbytes]
        if fitting:
            found = min(fitting, key=lambda array: array.nbytes)
            _kept[target] = [array for array in _kept[target] if array is not found]
            return found
    try:
        return target.pinned(nbytes, np.uint8)
    except DeviceError as error:
        raise DeviceError(f"no pinned memory of {plural(nbytes, 'byte')} to stage a chunk in: {error}; pass a larger chunks=") from error


def _give_back(target: Target, array: npt.NDArray[Any]) -> None:
    with _lock:
        kept = _kept.setdefault(target, [])
        if sum(one.nbytes for one in kept) + array.nbytes <= _MOST_KEPT:
            kept.append(array)


_rates: WeakKeyDictionary[Target, dict[int, float]] = WeakKeyDictionary()


def host_gb_per_s(target: Target, threads: int | None = None) -> float:
    """Return the rate at which this host copies into pinned memory, in GB/s, measured once per number of threads."""
    count = default_threads() if threads is None else threads
    rates = _rates.setdefault(target, {})
    if count not in rates:
        source, staged = np.zeros(1 << 24, np.uint8), _borrow(target, 1 << 24)
        to = staged[: 1 << 24]
        copy(to, source, count)
        begun = perf_counter_ns()
        for _ in range(3):
            copy(to, source, count)
        rates[count] = 3 * to.nbytes / max(1, perf_counter_ns() - begun)
        _give_back(target, staged)
    return rates[count]
