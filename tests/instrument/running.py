"""Instrumented kernels on the emulator, with the memory that their probes write to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane import chip
from memlane.emulate import Emulator
from memlane.instrument import (
    COUNTERS,
    HEADER_BYTES,
    NO_ENTRY,
    POINTER,
    SLICE_DTYPE,
    BufferLayout,
    Counted,
    Decoded,
    Selection,
    Traced,
    TraceOptions,
    buffer_layout,
    count,
    decode,
    entry,
    initial_header,
    read_counters,
    trace,
)
from memlane.launch import COUNT_FIELDS, Layers, LoadedModule, Observation
from memlane.ptx import Module
from memlane.record import BranchCounts, SiteCounts

CHIP = chip.load("h200")
Shape = int | tuple[int, ...]


@dataclass
class Run:
    """A launch that is to be made on fresh arrays: NumPy arrays are copied to the target, and the first is its result.

    What was instrumented and compiled once is used again.
    """

    module: Module
    kernel: str
    grid: Shape
    block: Shape
    arguments: tuple[Any, ...]
    rules: chip.Chip = CHIP
    """By which the counting kernel counts."""

    def __post_init__(self) -> None:
        self.target = Emulator(CHIP)
        self._traced: dict[str, tuple[Traced, LoadedModule]] = {}

    @cached_property
    def _plain(self) -> LoadedModule:
        return self.target.load(self.module)

    @cached_property
    def _counting(self) -> tuple[Counted, LoadedModule]:
        counted = count(self.module, self.rules)
        return counted, self.target.load(counted.module)

    def _tracing(self, options: TraceOptions) -> tuple[Traced, LoadedModule]:
        key = repr(options)
        if key not in self._traced:
            traced = trace(self.module, options)
            self._traced[key] = traced, self.target.load(traced.module)
        return self._traced[key]

    def plain(self) -> npt.NDArray[Any]:
        """The result of the plain kernel."""
        return self._launch(self._plain)

    def traced(
        self,
        scheme: str = "dependent",
        layout: BufferLayout | None = None,
        selection: Selection | None = None,
        times: int = 1,
        places: list[int] | None = None,
        staging: str = "global",
        shared_bytes: int | None = None,
    ) -> tuple[npt.NDArray[Any], Decoded, Traced]:
        """The result of the traced kernel, and what it recorded; with `layout` None without a buffer. `places` receives, of the first
        slice, how many places others than lane 0 asked for. `shared_bytes`: dynamic shared memory, if not what the scheme needs."""
        traced, loaded = self._tracing(TraceOptions(scheme, selection or Selection(), staging=staging))
        held = np.zeros(buffer_layout(1, 0).nbytes if layout is None else layout.nbytes, np.uint8)
        held[:HEADER_BYTES] = initial_header(layout or buffer_layout(1, 0))
        address, owner = self.target.allocate(held.nbytes)
        self.target.write(address, held)
        self.target.write(self.target.symbol(loaded, POINTER)[0], NO_ENTRY if layout is None else entry(address, layout))
        for _ in range(times):
            extra = traced.extra_shared_bytes if layout is not None else 0
            result = self._launch(loaded, extra if shared_bytes is None else shared_bytes)
        self.target.read(address, held)
        assert owner is not None
        if places is not None and layout is not None:
            first = HEADER_BYTES + layout.slice_bytes
            places.append(int(held[first : first + SLICE_DTYPE.itemsize].view(SLICE_DTYPE)["overflow"][0]))
        return result, decode(held), traced

    def counted(self) -> tuple[npt.NDArray[Any], tuple[SiteCounts, ...], tuple[BranchCounts, ...]]:
        """The result of the counting kernel, and what it counted."""
        counted, loaded = self._counting
        held = np.zeros(counted.nbytes, np.uint8)
        address, owner = self.target.allocate(held.nbytes)
        self.target.write(address, held)
        self.target.write(self.target.symbol(loaded, COUNTERS)[0], np.array([address], np.uint64))
        result = self._launch(loaded)
        self.target.read(address, held)
        assert owner is not None
        return result, *read_counters(counted, held, loaded[self.kernel].title)

    def observed(self) -> dict[int, dict[str, int]]:
        """What the emulator counts by itself, by instruction of the plain kernel."""
        seen: list[Observation] = []
        call = self._plain[self.kernel][self.grid, self.block]
        launch = call.bind(*self._arguments())
        self.target.launch(replace(launch, layers=Layers(counts=True, report=seen.append)))
        return {index: dict(zip(COUNT_FIELDS, map(int, fields), strict=True)) for index, fields in seen[0].counts.items()}

    def _arguments(self) -> list[Any]:
        return [self.target.array(one) if isinstance(one, np.ndarray) else one for one in self.arguments]

    def _launch(self, loaded: LoadedModule, shared_bytes: int = 0) -> npt.NDArray[Any]:
        arguments = self._arguments()
        loaded[self.kernel][self.grid, self.block, None, shared_bytes](*arguments)
        result: npt.NDArray[Any] = arguments[0].numpy()
        return result
