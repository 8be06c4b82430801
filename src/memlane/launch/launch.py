"""One kernel launch as data, and its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memlane.chip import LANES, ModelledTime
from memlane.launch.observation import NO_LAYERS, Layers

if TYPE_CHECKING:
    from memlane.launch.kernel import Kernel

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Stream:
    """A queue of work of one target: its launches run one after another, those of two streams may overlap."""

    number: int
    """0 is the target's default stream."""
    handle: object = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument, ready to be handed over: its bytes in the layout of the parameter."""

    data: bytes
    text: str
    """For messages and records, for example `f4[1024, 1024]` or `1024`."""
    owner: object = field(default=None, repr=False, compare=False)
    memory: tuple[int, int] | None = None
    """For an array: its device address and its size in bytes, so that an observer can save and restore it."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch as data. `kernel[grid, block].bind(...)` builds it, observers rewrite it, a target executes it."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    """Dynamic shared memory per block."""
    stream: Stream = Stream(0)
    layers: Layers = NO_LAYERS
    cluster: Dim3 | None = None
    """Blocks of a cluster, as the launch asks for them; None leaves it to the kernel (`cluster_of`)."""

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps_per_block(self) -> int:
        return -(-self.threads_per_block // LANES)


@dataclass(frozen=True)
class LaunchTime:
    """How long one launch took, by itself."""

    elapsed_ns: float
    model: ModelledTime | None = None
    """Where the time is modelled, what ruled it; None where it was measured."""
