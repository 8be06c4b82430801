"""Describe transfers and the plans made for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from memlane.errors import LayoutError
from memlane.layout import ArrayLayout
from memlane.plan import Launch, Plan, PlanBuilder, View
from memlane.ptx import Module

KERNELS, COPIES = 0, 1
"""Queue numbers of the device, for kernels and for copies."""
CHUNK_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""Candidates for `chunks="auto"`."""
LEAST_STREAMED = 8
"""Minimum chunk count for an upload that keeps no array: its ring should be small compared with the array."""
DEFAULT_CHUNKS = 16
"""Chunk count if nothing can be predicted, the paper's choice."""
RING = 3
"""Number of chunks in flight."""
Direction = Literal["upload", "download"]


@dataclass(frozen=True)
class HostArray:
    """The properties of a host array that a plan needs."""

    shape: tuple[int, ...]
    dtype: str
    """Element type in NumPy's notation with the byte order: a plain type, or `V12`."""
    pinned: bool
    strides: tuple[int, ...] | None = None
    """Strides in bytes of an array that is not in C order; else None."""
    offset: int = 0
    """Bytes from the start of the memory to the first element, for negative strides."""
    span: int = 0
    """Bytes of the memory, for an array with strides."""

    @property
    def swapped(self) -> bool:
        return self.dtype.startswith(">")

    @property
    def staged(self) -> bool:
        """Whether chunks are staged in pinned memory."""
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
    """A part of an array that has arrived, the argument of `then`."""

    number: int
    axis: int
    """Axis of the host array along which it was cut."""
    first: int
    """First index along that axis."""
    count: int
    """Extent along that axis."""
    data: View
    """Elements of the chunk on the device; the whole array if the layout scatters them."""
    layout: ArrayLayout
    """Layout of the whole array, or of the chunk alone if the array is not kept."""
    whole: View | None
    """The whole array; None if it is not kept."""

    @property
    def array(self) -> View:
        """The whole array on the device. Raises LayoutError with `keep=False`, where only chunks are on the device."""
        if self.whole is None:
            raise LayoutError(
                "chunk.array names the whole array, which is never on the device with keep=False: give the kernel chunk.data, which holds "
                f"elements {self.first} to {self.first + self.count - 1} along axis {self.axis}, or leave out keep=False"
            )
        return self.whole


Consumer = Callable[[Chunk], Launch | None]


@dataclass(frozen=True)
class Request:
    """A requested transfer with its options."""

    direction: Direction
    host: HostArray
    layout: ArrayLayout
    chunks: int
    overlap: bool = True
    threads: int = 1
    then: Consumer | None = None
    reads: Literal["chunk", "all"] = "chunk"
    chunk_layout: Callable[[tuple[int, ...]], ArrayLayout] | None = None
    """Function from a chunk's shape to its layout, for an upload that keeps only chunks, until `then` has read them."""

    @property
    def keep(self) -> bool:
        """Whether the whole array stays on the device."""
        return self.chunk_layout is None


@dataclass(frozen=True)
class TransferPlan:
    """The plan of a transfer with the modules of its kernels.

    The buffer `host` is the host's array, `array` the device's, if it is kept there.
    """

    plan: Plan
    modules: tuple[Module, ...]
    """Modules of the remaps, in the order of `kernels`."""
    axis: int
    borders: tuple[int, ...]
    """Start of each chunk along the axis, and the end of the last one."""
    staged: tuple[str, ...] = ()
    """Names of the pinned buffers for staging chunks."""
    kernels: tuple[str, ...] = ()
    """Digests of the modules."""

    @property
    def chunks(self) -> int:
        return len(self.borders) - 1
