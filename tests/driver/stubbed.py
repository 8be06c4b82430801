"""A GPU without a GPU: the device's own code over a driver that notes what it is asked for and answers that it is done."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from cuda import core
from cuda.bindings import driver as real

from memlane.chip import load
from memlane.driver import calls, cluster, context, device, fast_launch, graph, streams
from memlane.driver.library import DeviceKernel, Library
from memlane.launch import LoadedModule
from memlane.ptx import Module

DEFAULT_HANDLE, CONTEXT = 1, 9


@dataclass
class StubDriver:
    """Notes every call by its name and arguments."""

    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Calls that fail."""
    nodes: Any = field(default_factory=lambda: itertools.count(100))
    captured: set[int] = field(default_factory=set)
    """Handles of the streams from which a graph is captured."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return getattr(real, name)
        return lambda *args: self._call(name, args)

    def _call(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.calls.append((name, args))
        if name in self.refused:
            return (real.CUresult.CUDA_ERROR_INVALID_VALUE,)
        code = real.CUresult.CUDA_SUCCESS
        if name.startswith("cuGraphAdd"):
            return code, next(self.nodes)
        if name == "cuStreamIsCapturing":
            status = real.CUstreamCaptureStatus
            active, none = status.CU_STREAM_CAPTURE_STATUS_ACTIVE, status.CU_STREAM_CAPTURE_STATUS_NONE
            return code, active if int(args[0]) in self.captured else none
        if name == "cuGetErrorString":
            return code, b"said by the stub"
        return (code, 7) if name in ("cuCtxGetCurrent", "cuCtxPopCurrent", "cuPointerGetAttribute") else (code,)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [args for one, args in self.calls if one == name]


@dataclass
class StubEvent:
    behind: str
    is_done: bool = False

    def sync(self) -> None:
        self.is_done = True


@dataclass(eq=False)
class StubStream:
    handle: int
    notes: list[str]
    captured: set[int] = field(default_factory=set)

    @property
    def is_nonblocking(self) -> bool:
        assert self.handle not in self.captured, "CUDA refuses to tell the flags of a captured stream, and ends the capture"
        return self.handle % 2 == 0

    def record(self, event: object = None, options: object = None) -> StubEvent:
        self.notes.append(f"event on {self.handle}")
        return StubEvent(f"stream {self.handle}")

    def wait(self, other: Any) -> None:
        self.notes.append(f"{self.handle} waits for {other.handle if isinstance(other, StubStream) else other.behind}")


@dataclass
class StubGraph:
    handle: int
    notes: list[str]

    def launch(self, stream: StubStream) -> None:
        self.notes.append(f"graph {self.handle} on {stream.handle}")


@dataclass
class StubDefinition:
    notes: list[str]
    numbers: Any
    handle: int = 50

    def instantiate(self) -> StubGraph:
        return StubGraph(next(self.numbers), self.notes)


@dataclass
class QuickDriver:
    """The driver's library as ctypes calls it."""

    context: int = CONTEXT
    code: int = 0
    """What a launch answers."""
    sizes: tuple[int, ...] = (8, 8, 4)
    launches: list[tuple[list[int], list[bytes]]] = field(default_factory=list)
    """Shape and arguments of each."""

    def cuCtxGetCurrent(self, found: Any) -> int:  # noqa: N802
        ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p))[0] = self.context
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:  # noqa: N802
        *shape, stream, pointers, _extra = rest
        given = [ctypes.string_at(pointers[number], size) for number, size in enumerate(self.sizes)]
        self.launches.append(([function.value, *(one.value for one in shape), stream.value], given))
        return self.code


class StubBuffer:
    """Memory of the device's own pool."""


@dataclass
class StubMemory:
    """Addresses that count up."""

    next: int = 1 << 20

    def __call__(self, nbytes: int) -> tuple[int, object]:
        address = self.next
        self.next += -(-nbytes // 256) * 256
        return address, StubBuffer()


class StubbedDevice:
    """A `Device` whose driver is a `StubDriver`: `device` is what is tested, `driver` and `notes` what it did."""

    def __init__(self, patch: pytest.MonkeyPatch, notes: list[str] | None = None) -> None:
        self.driver, self.notes = StubDriver(), [] if notes is None else notes
        default, numbers = StubStream(DEFAULT_HANDLE, self.notes), itertools.count(1)
        for module in (calls, cluster, context, device, graph, streams):
            patch.setattr(module, "driver", self.driver)
        for module in (device, streams):
            patch.setattr(module, "DEFAULT", default)
        patch.setattr(graph, "GraphDefinition", lambda: StubDefinition(self.notes, numbers))
        patch.setattr(device, "is_pinned", lambda address: True)
        patch.setattr(device, "core", SimpleNamespace(Buffer=StubBuffer, EventOptions=core.EventOptions))
        stream = SimpleNamespace(from_handle=lambda handle: StubStream(handle, self.notes, self.driver.captured))
        per_thread = StubStream(2, self.notes)
        patch.setattr(streams, "core", SimpleNamespace(Stream=stream, PER_THREAD_DEFAULT_STREAM=per_thread, EventOptions=core.EventOptions))
        self.quick = QuickDriver()
        patch.setattr(fast_launch, "_library", lambda: self.quick)
        patch.setattr(fast_launch, "core", SimpleNamespace(Buffer=StubBuffer))
        made = object.__new__(device.Device)
        made.name, made.fmad, made._peers, made.chip, made.compute_capability = "cuda:0", True, set(), load("h200"), (9, 0)
        made.context = object.__new__(context.Context)
        made.context.name, made.context.running, made.context.handle = made.name, {}, CONTEXT
        made._device = made.context.device = SimpleNamespace(device_id=0)
        made.streams = streams.Streams(made.context)
        made.default_stream = made.streams.default
        memory: Callable[[int], tuple[int, object]] = StubMemory()
        patch.setattr(made, "allocate", memory)
        self.device = made

    def load(self, module: Module) -> LoadedModule:
        """A module whose kernels do nothing."""
        return LoadedModule(self.device, module, Library(None, b"", {name: _kernel(number) for number, name in enumerate(module.kernels)}))


def _kernel(number: int) -> DeviceKernel:
    made = object.__new__(DeviceKernel)
    made.function, made.max_threads_per_block, made.registers, made.max_dynamic_bytes = 1000 + number, 1024, 32, 1 << 16
    made.static_shared_bytes, made._allowed = 0, 1 << 16
    return made
