"""A target that runs nothing: it hands out addresses, keeps bytes in a dictionary and remembers what was launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import load
from memlane.errors import DeviceError
from memlane.launch import BoundCall, BoundCopy, BoundStep, Kernel, Launch, LaunchTime, LoadedModule, StepGraph, Stream, Target, same_kinds
from memlane.ptx import Module

PTX = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry scale(.param .u64 out, .param .u32 n, .param .f32 factor) { ret; }
.visible .entry pointers(.param .u64 .ptr .global .align 16 out, .param .u64 count) { ret; }
.visible .entry record(.param .align 8 .b8 value[24], .param .s16 small, .param .f64 wide, .param .b32 bits) { ret; }
.visible .entry plain() { ret; }
.visible .entry _Z3redILi256EEvPi(.param .u64 out) { ret; }
.visible .entry _Z3redILi512EEvPi(.param .u64 out) { ret; }
.visible .entry _ZN2ns4onlyEPi(.param .u64 out) { ret; }
"""


@dataclass
class Owner:
    """Gives memory back when nothing holds it any more."""

    memory: dict[int, bytearray]
    address: int

    def __del__(self) -> None:
        del self.memory[self.address]


@dataclass
class FakeTarget(Target):
    name: str = "fake"
    launches: list[Launch] = field(default_factory=list)
    graphs: list[tuple[BoundStep, ...]] = field(default_factory=list)
    memory: dict[int, bytearray] = field(default_factory=dict)
    allocations_left: int = -1
    """After so many there is no memory left; a negative number never ends."""
    foreign: dict[int, tuple[int, int, str]] = field(default_factory=dict)
    """By the `id` of an object: what `device_pointer` answers for it."""
    modelled: bool = True
    default_stream: Stream = field(default_factory=lambda: Stream(0))
    shared_room: int = 1000

    def __post_init__(self) -> None:
        self.chip = load("h200")
        self._next = 0x1000

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def allocate(self, nbytes: int) -> tuple[int, object]:
        if self.allocations_left == 0:
            raise DeviceError(f"{self.name} has no {nbytes} bytes of memory left")
        self.allocations_left -= 1
        address = self._next
        self._next += -(-nbytes // 256) * 256
        self.memory[address] = bytearray(nbytes)
        return address, Owner(self.memory, address)

    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        held, offset = self._lying(address)
        host[...] = np.frombuffer(held, host.dtype, host.size, offset).reshape(host.shape)

    def write(self, address: int, host: npt.NDArray[Any]) -> None:
        assert host.flags.c_contiguous
        held, offset = self._lying(address)
        held[offset : offset + host.nbytes] = host.tobytes()

    def _lying(self, address: int) -> tuple[bytearray, int]:
        """The allocation in which an address lies, and how far inside."""
        begin = max(start for start in self.memory if start <= address)
        return self.memory[begin], address - begin

    def load_module(self, module: Module) -> object:
        return f"handle of {module.name}"

    def symbol(self, loaded: LoadedModule, name: str) -> tuple[int, int]:
        raise NotImplementedError

    def launch(self, launch: Launch) -> None:
        self.launches.append(launch)

    def stream(self) -> Stream:
        return Stream(7)

    def sync(self) -> None:
        pass

    def time_launches(self, launches: Sequence[Launch]) -> tuple[LaunchTime, ...]:
        self.launches += launches
        return tuple(LaunchTime(10.0 + number) for number in range(len(launches)))

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> StepGraph:
        self.graphs.append(tuple(steps))
        return _FakeGraph(self, tuple(steps))

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        return 1

    def max_shared_bytes(self, kernel: Kernel) -> int:
        return self.shared_room

    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        return self.foreign.get(id(value))


@dataclass
class _FakeGraph:
    """Makes copies and calls, and remembers launches."""

    target: FakeTarget
    steps: tuple[BoundStep, ...]

    def replay(self, stream: Stream | None = None) -> None:
        for step in self.steps:
            if isinstance(step.action, BoundCopy):
                self.target.copy(step.action)
            elif isinstance(step.action, BoundCall):
                step.action.call()
            else:
                self.target.launch(step.action)

    def wait(self) -> None:
        pass

    def update(self, steps: Sequence[BoundStep]) -> None:
        assert same_kinds(self.steps, steps)
        self.steps = tuple(steps)

    def times_ns(self) -> list[tuple[float, float]]:
        return []
