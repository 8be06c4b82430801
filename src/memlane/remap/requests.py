"""What a transfer is to move and how, and the plan that comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from memlane.errors import LayoutError
from memlane.layout import ArrayLayout
from memlane.plan import Launch, Plan, PlanBuilder, View
from memlane.ptx import Module

KERNELS, COPIES = 0, 1
"""Queues of the device."""
CHUNK_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""What `chunks="auto"` chooses among."""
LEAST_STREAMED = 8
"""The least of them for an upload that keeps no array: its ring is to be small beside the array."""
DEFAULT_CHUNKS = 16
"""Where nothing is predicted: what the paper has."""
RING = 3
"""Chunks that are on their way at once."""
Direction = Literal["upload", "download"]


@dataclass(frozen=True)
class HostArray:
    """What a plan knows of the array on the host."""

    shape: tuple[int, ...]
    dtype: str
    """As NumPy writes it, with the order of bytes: a plain type of the element, or `V12`."""
    pinned: bool
    strides: tuple[int, ...] | None = None
    """In bytes, of an array that is not in C order; None for one that is."""
    offset: int = 0
    """Bytes from the start of the memory to the first element, for strides that are negative."""
    span: int = 0
    """Bytes of the memory, for an array with strides."""

    @property
    def swapped(self) -> bool:
        return self.dtype.startswith(">")

    @property
    def staged(self) -> bool:
        """Whether chunks go through pinned memory of ours."""
        return not self.pinned or self.swapped or self.strides is not None

    @property
    def native(self) -> str:
        return self.dtype.lstrip("<>=|")

    def view(self, b: PlanBuilder) -> View:
        if self.strides is None:
            return replace(b.array("host", self.shape, self.native, "pinned" if self.pinned else "host"), dtype=self.dtype)
        whole = b.array("host", self.span, "u1", "pinned" if self.pinned else "host")
        return View(whole.buffer, self.dtype, self.shape, self.strides, self.offset)


@dataclass(frozen=True)
class Chunk:
    """A part of an array that has arrived: what `then` is called with to say what it starts on it."""

    number: int
    axis: int
    """The axis of the host array along which it was cut."""
    first: int
    """Its first index along that axis."""
    count: int
    """How many there are along it."""
    data: View
    """The elements of the chunk where they lie on the device; all of the array where the layout scatters them."""
    layout: ArrayLayout
    """The layout of the whole array, or of the chunk alone where the array is not kept."""
    whole: View | None
    """All of the array; None where it is not kept."""

    @property
    def array(self) -> View:
        """All of the array on the device. Raises LayoutError with `keep=False`, where only chunks are there."""
        if self.whole is None:
            raise LayoutError(
                "chunk.array names the whole array, which is never on the device with keep=False: give the kernel chunk.data, which holds "
                f"elements {self.first} to {self.first + self.count - 1} along axis {self.axis}, or leave out keep=False"
            )
        return self.whole


Consumer = Callable[[Chunk], Launch | None]


@dataclass(frozen=True)
class Request:
    """What is to be moved and how."""

    direction: Direction
    host: HostArray
    layout: ArrayLayout
    chunks: int
    overlap: bool = True
    threads: int = 1
    then: Consumer | None = None
    reads: Literal["chunk", "all"] = "chunk"
    chunk_layout: Callable[[tuple[int, ...]], ArrayLayout] | None = None
    """Returns the layout of a chunk of a given shape, for an upload that keeps no array but its chunks, until `then` has read them."""

    @property
    def keep(self) -> bool:
        """Whether the whole array stays on the device."""
        return self.chunk_layout is None


@dataclass(frozen=True)
class TransferPlan:
    """The plan of a transfer with the modules of its kernels. The buffer `host` is the host's array, `array` that of the device, if the
    array is kept there."""

    plan: Plan
    modules: tuple[Module, ...]
    """Those of the remaps, in the order of `kernels`."""
    axis: int
    borders: tuple[int, ...]
    """Where the chunks begin along the axis, and the end of the last one."""
    staged: tuple[str, ...] = ()
    """Names of pinned buffers that chunks are staged in."""
    kernels: tuple[str, ...] = ()
    """Digests of the modules."""

    @property
    def chunks(self) -> int:
        return len(self.borders) - 1
