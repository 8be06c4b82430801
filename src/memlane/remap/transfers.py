"""Plans of uploads and downloads: in chunks, each laid out anew on the device while the next one is on its way.

    host (pinned)     ---copy---> chunk on the device ---remap kernel---> array
    host (pageable)   ---threads---> ring of pinned chunks ---copy---> chunk on the device ---remap kernel---> array

Copies have a queue, kernels have another, and the host's copies one of their own; a chunk's memory is used again when its remap is over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from memlane.chip import Chip
from memlane.errors import ChipError, LayoutError
from memlane.layout import ArrayLayout
from memlane.model import predicted
from memlane.plan import HostCall, Launch, Plan, PlanBuilder, StepRef, Timeline, View
from memlane.ptx import Module
from memlane.remap.kernels import Remap, remap_by_function, remap_of
from memlane.remap.movement import movement_of, strides_of
from memlane.remap.staging import COPY

KERNELS, COPIES = 0, 1
"""Queues of the device."""
CHUNK_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""What `chunks="auto"` chooses among."""
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
    array: View
    """All of the array."""


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


@dataclass(frozen=True)
class TransferPlan:
    """The plan of a transfer with the modules of its kernels. The buffer `host` is the host's array, `array` that of the device."""

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


def plan_of(request: Request) -> TransferPlan:
    """Return the plan of an upload or a download. LayoutError where the array and the layout disagree."""
    # A consumer may hold arrays of the caller, which a cache must not keep alive.
    return _plan_of(request) if request.then is None else _plan_of.__wrapped__(request)


@lru_cache(maxsize=64)
def _plan_of(request: Request) -> TransferPlan:
    host, layout = request.host, request.layout
    if host.shape != layout.shape:
        raise LayoutError(f"an array of shape {host.shape} cannot have the layout {layout}, which is for one of shape {layout.shape}")
    return _Writer(request).write()


def chunk_axis(layout: ArrayLayout) -> int:
    """Return the axis along which an array is cut: the first, or a longer one where the first is short."""
    if movement_of(layout, 1) is None:
        return 0  # the layout's own function takes whole rows
    longest = max(range(len(layout.shape)), key=lambda axis: (layout.shape[axis], -axis))
    return 0 if layout.shape[0] >= 1024 or layout.shape[longest] < 4 * layout.shape[0] else longest


def borders_of(layout: ArrayLayout, axis: int, chunks: int) -> tuple[int, ...]:
    """Return where chunks begin along an axis: at multiples of what kernels take at once, so that the last may be shorter."""
    extent = layout.shape[axis]
    parts = strides_of(layout)
    block = 1
    for count, _ in parts[axis][1:] if parts else ():
        block *= count
    quantum = 256
    while quantum > 1 and extent < quantum * chunks:
        quantum //= 2
    while quantum % block:
        quantum += quantum if quantum < block else 1
    per = -(-extent // chunks)
    per = min(extent, -(-per // quantum) * quantum)
    return (*range(0, extent, per), extent)


class _Writer:
    def __init__(self, request: Request) -> None:
        self.request, self.host, self.layout = request, request.host, request.layout
        self.axis = chunk_axis(self.layout)
        self.borders = borders_of(self.layout, self.axis, request.chunks)
        self.b = PlanBuilder()
        self.on_host = self.host.view(self.b)
        self.array = self.b.array("array", self.layout.storage_shape, f"V{self.on_host.itemsize}", 0)
        self.modules: dict[str, Module] = {}
        self.direct = self.layout.is_row_major and self.layout.size == self.layout.count
        """Whether chunks are copied to where they stay."""
        largest = max(after - before for before, after in pairwise(self.borders))
        self.chunk_elements = self.layout.count // self.layout.shape[self.axis] * largest
        self.slots = min(RING, len(self.borders) - 1)
        self.last: list[StepRef] = []
        """What the next step waits for where nothing overlaps."""

    def write(self) -> TransferPlan:
        device = [] if self.direct else [self._slot(f"chunk {slot}", 0) for slot in range(self.slots)]
        pinned = [self._slot(f"pinned {slot}", "pinned") for slot in range(self.slots)] if self.host.staged else []
        move = self._upload if self.request.direction == "upload" else self._download
        move(device, pinned)
        staged = tuple(view.buffer.name for view in pinned)
        return TransferPlan(self.b.plan(), tuple(self.modules.values()), self.axis, self.borders, staged, tuple(self.modules))

    def _slot(self, name: str, home: Literal[0, "pinned"]) -> View:
        return self.b.array(name, self.chunk_elements, f"V{self.on_host.itemsize}", home)

    def _upload(self, device: list[View], pinned: list[View]) -> None:
        copied: list[StepRef] = []
        done: list[StepRef] = []
        everything: list[StepRef] = []
        for number, (first, end) in enumerate(pairwise(self.borders)):
            slot, again = number % self.slots, number - self.slots
            part = self._part(self.on_host, first, end)
            waits: list[StepRef] = []
            source = part
            if pinned:
                source = _shaped(pinned[slot], part.shape)
                filled = replace(source, dtype=self.host.native) if self.host.swapped else replace(source, dtype=part.dtype)
                waits = [self._call(filled, part, copied[again : again + 1] if again >= 0 else [], f"stage {number}")]
            if self.direct:
                arrived = self._copy(self._part(_shaped(self.array, self.layout.shape), first, end), source, waits, f"upload {number}")
                copied.append(arrived)
                done.append(arrived)
            else:
                chunk = _shaped(device[slot], part.shape)
                arrived = self._copy(chunk, source, [*waits, *(done[again : again + 1] if again >= 0 else [])], f"upload {number}")
                copied.append(arrived)
                done.append(self._remap(self._into(chunk, first, end), [arrived], f"remap {number}"))
            everything.append(done[-1])
            if self.request.then is not None and self.request.reads == "chunk":
                everything += self._consume(Chunk(number, self.axis, first, end - first, self._data(first, end), self.array), [done[-1]])
        if self.request.then is not None and self.request.reads == "all":
            self._consume(Chunk(0, self.axis, 0, self.borders[-1], self.array, self.array), everything)

    def _download(self, device: list[View], pinned: list[View]) -> None:
        copied: list[StepRef] = []
        freed: list[StepRef] = []
        for number, (first, end) in enumerate(pairwise(self.borders)):
            slot, again = number % self.slots, number - self.slots
            part = self._part(self.on_host, first, end)
            waits: list[StepRef] = []
            if self.direct:
                source = self._part(_shaped(self.array, self.layout.shape), first, end)
            else:
                source = _shaped(device[slot], part.shape)
                waits = [self._remap(self._from(source, first, end), copied[again : again + 1] if again >= 0 else [], f"remap {number}")]
            destination = _shaped(pinned[slot], part.shape) if pinned else part
            if pinned and again >= 0:
                waits = [*waits, freed[again]]
            copied.append(self._copy(destination, source, waits, f"download {number}"))
            if pinned:
                filled = replace(destination, dtype=self.host.native if self.host.swapped else part.dtype)
                freed.append(self._call(part, filled, [copied[-1]], f"unstage {number}"))

    # -- steps: one after another where nothing overlaps -------------------------------------------------------------------------

    def _waits(self, waits: list[StepRef]) -> list[StepRef]:
        return waits if self.request.overlap else [*waits, *self.last]

    def _ran(self, step: StepRef) -> StepRef:
        self.last = [step]
        return step

    def _copy(self, to: View, of: View, waits: list[StepRef], label: str) -> StepRef:
        return self._ran(self.b.copy(to, of, queue=COPIES, after=self._waits(waits), label=label))

    def _call(self, to: View, of: View, waits: list[StepRef], label: str) -> StepRef:
        return self._ran(self.b.call(COPY, to, of, self.request.threads, after=self._waits(waits), reads=[of], writes=[to], label=label))

    def _remap(self, remap: Remap, waits: list[StepRef], label: str) -> StepRef:
        self.modules[remap.launch.kernel.module] = remap.module
        return self._ran(self.b.add(remap.launch, device=0, queue=KERNELS, after=self._waits(waits), label=label))

    def _consume(self, chunk: Chunk, waits: list[StepRef]) -> list[StepRef]:
        assert self.request.then is not None
        launch = self.request.then(chunk)
        if launch is None:
            return []
        step = self.b.add(launch, device=0, queue=KERNELS, after=self._waits(waits), label=f"then {chunk.number}")
        return [self._ran(step)]

    # -- parts -------------------------------------------------------------------------------------------------------------------

    def _part(self, view: View, first: int, end: int) -> View:
        return view[(*(slice(None) for _ in range(self.axis)), slice(first, end))]

    def _data(self, first: int, end: int) -> View:
        """Return where the elements of a chunk lie in the array; all of it for a layout whose offsets are no sum of products."""
        parts = strides_of(self.layout)
        if parts is None or any(len(one) > 1 for one in parts):
            return self.array
        steps = [one[0][1] * self.array.itemsize for one in parts]
        shape = tuple(end - first if axis == self.axis else extent for axis, extent in enumerate(self.layout.shape))
        return View(self.array.buffer, self.array.dtype, shape, tuple(steps), self.array.offset + first * steps[self.axis])

    def _into(self, chunk: View, first: int, end: int) -> Remap:
        movement = movement_of(self.layout, chunk.itemsize, chunk.shape)
        if movement is None:
            return remap_by_function(self.layout, self.array, chunk, first, end - first)
        return remap_of(movement, self._start(first, end), chunk)

    def _from(self, chunk: View, first: int, end: int) -> Remap:
        movement = movement_of(self.layout, chunk.itemsize, chunk.shape)
        if movement is None:
            return remap_by_function(self.layout, chunk, self.array, first, end - first, back=True)
        return remap_of(movement.reversed(), chunk, self._start(first, end))

    def _start(self, first: int, end: int) -> View:
        """Return the elements of a chunk in the array, the first of which is the movement's first."""
        data = self._data(first, end)
        if data is not self.array:
            return data
        index = tuple(first if axis == self.axis else 0 for axis in range(len(self.layout.shape)))
        offset = self.layout(*index)
        assert isinstance(offset, int)
        return self.array.buffer.view(self.array.dtype, None, offset * self.array.itemsize)


def _shaped(view: View, shape: tuple[int, ...]) -> View:
    """Return the first elements of a contiguous view in another shape."""
    return view.buffer.view(view.dtype, shape, view.offset)


def prediction(transfer: TransferPlan, chip: Chip, host_gb_per_s: float, then_ns: float = 0.0) -> Timeline | None:
    """Return when each step of a transfer runs on a chip; None where the chip's file lacks a number that this needs.

    A remap kernel is taken to read and write at the rate of the chip's copies inside itself, copies on the host to go at `host_gb_per_s`,
    and each launch of a consumer to take `then_ns`.
    """
    rate = chip.copy_gb_per_s or chip.dram_gb_per_s

    def kernel_ns(launch: Launch, device: int) -> float:
        if launch.kernel.module not in transfer.kernels:
            return then_ns
        return sum(view.nbytes for view in (*(launch.reads or ()), *(launch.writes or ()))) / rate

    def call_ns(call: HostCall) -> float:
        return sum(view.nbytes for view in call.writes or ()) / host_gb_per_s

    try:
        return predicted(transfer.plan, [chip], kernel_ns, call_ns=call_ns)
    except ChipError:
        return None


def best_chunks(request: Request, chip: Chip, host_gb_per_s: float, then_ns: float = 0.0) -> int:
    """Return the number of chunks with which a transfer is predicted to end first; 16, as the paper has it, where nothing is known."""
    find = _best_chunks if request.then is None else _best_chunks.__wrapped__
    return find(request, chip, host_gb_per_s, then_ns)


@lru_cache(maxsize=256)
def _best_chunks(request: Request, chip: Chip, host_gb_per_s: float, then_ns: float) -> int:
    times: dict[int, float] = {}
    for chunks in CHUNK_COUNTS:
        made = plan_of(replace(request, chunks=chunks))
        if made.chunks in times:
            continue
        timeline = prediction(made, chip, host_gb_per_s, then_ns)
        if timeline is None:
            return DEFAULT_CHUNKS
        times[made.chunks] = timeline.elapsed_ns
    return min(times, key=lambda chunks: (times[chunks], chunks))
