"""A target that runs nothing: it hands out addresses, keeps bytes in a dictionary and remembers what was launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import load
from memlane.launch import BoundStep, Kernel, Launch, LaunchTime, LoadedModule, StepGraph, Stream, Target
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
class FakeTarget(Target):
    name: str = "fake"
    launches: list[Launch] = field(default_factory=list)
    graphs: list[tuple[BoundStep, ...]] = field(default_factory=list)
    memory: dict[int, bytes] = field(default_factory=dict)
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
        address = self._next
        self._next += -(-nbytes // 256) * 256
        self.memory[address] = bytes(nbytes)
        return address, f"owner of {address}"

    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        host[...] = np.frombuffer(self.memory[address], host.dtype, host.size).reshape(host.shape)

    def write(self, address: int, host: npt.NDArray[Any]) -> None:
        assert host.flags.c_contiguous
        self.memory[address] = host.tobytes()

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
        return _FakeGraph()

    def resident_blocks(self, kernel: Kernel, threads_per_block: int, shared_bytes: int) -> int:
        return 1

    def max_shared_bytes(self, kernel: Kernel) -> int:
        return self.shared_room

    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        return self.foreign.get(id(value))


class _FakeGraph:
    def replay(self, stream: Stream | None = None) -> None:
        pass

    def wait(self) -> None:
        pass

    def times_ns(self) -> list[tuple[float, float]]:
        return []
