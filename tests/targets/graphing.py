"""Emulated devices that run plans as a GPU does: as graphs, in any order that the steps' waits allow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.launch import BoundCall, BoundCopy, BoundStep, End, Launch, Stream, same_kinds


class GraphingEmulator(Emulator):
    """It takes itself for a GPU. A graph may read ordinary memory of the host when it is started, so no copy may touch it."""

    modelled = False

    def __init__(self, device: int = 0, seed: int = 0, memory_bytes: int | None = None) -> None:
        super().__init__(load("h200"), device=device, memory_bytes=memory_bytes)
        self.random = random.Random(seed)
        self.pinned_memory: list[npt.NDArray[Any]] = []

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        self.pinned_memory.append(super().pinned(shape, dtype))
        return self.pinned_memory[-1]

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        return any(0 <= host.ctypes.data - one.ctypes.data < max(1, one.nbytes) for one in self.pinned_memory)

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> ShuffledGraph:
        return ShuffledGraph(self, tuple(steps))


@dataclass
class ShuffledGraph:
    target: GraphingEmulator
    steps: tuple[BoundStep, ...]

    def replay(self, stream: Stream | None = None) -> None:
        left = set(range(len(self.steps)))
        while left:
            ready = [number for number in left if not left.intersection(self.steps[number].waits)]
            number = self.target.random.choice(ready)
            self._run(self.steps[number])
            left.remove(number)

    def _run(self, step: BoundStep) -> None:
        action = step.action
        if isinstance(action, BoundCall):
            action.call()
        elif isinstance(action, BoundCopy):
            for end in (action.destination, action.source):
                assert not end.is_on_host or self._is_pinned(end)
            assert isinstance(step.target, Emulator)
            step.target.copy(action)
        else:
            assert isinstance(action, Launch)
            action.kernel.target.launch(action)

    def _is_pinned(self, end: End) -> bool:
        return any(0 <= end.address - one.ctypes.data < max(1, one.nbytes) for one in self.target.pinned_memory)

    def wait(self) -> None:
        pass

    def update(self, steps: Sequence[BoundStep]) -> None:
        assert same_kinds(self.steps, steps)
        self.steps = tuple(steps)

    def times_ns(self) -> list[tuple[float, float]]:
        return [(float(number), number + 1.0) for number in range(len(self.steps))]
