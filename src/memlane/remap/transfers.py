"""Plan uploads and downloads in chunks, each remapped on the device while the next one is copied.

    host (pinned)     ---copy---> chunk on the device ---remap kernel---> array
    host (pageable)   ---threads---> ring of pinned chunks ---copy---> chunk on the device ---remap kernel---> array

Copies, kernels and host copies have a queue each; a chunk's memory is reused after its remap. An upload that keeps no array ends in a ring
of chunks, each in a layout of its own, reused after the consumer has read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal

import numpy as np

from memlane.chip import Chip
from memlane.errors import ChipError, LayoutError
from memlane.layout import ArrayLayout
from memlane.model import predicted
from memlane.plan import HostCall, KernelRef, Launch, PlanBuilder, StepRef, Timeline, View, planned
from memlane.ptx import Module
from memlane.remap.kernels import Remap, remap_by_function, remap_of
from memlane.remap.movement import movement_of, strides_of
from memlane.remap.requests import CHUNK_COUNTS, COPIES, DEFAULT_CHUNKS, KERNELS, LEAST_STREAMED, RING, Chunk, Request, TransferPlan
from memlane.remap.staging import COPY


def plan_of(request: Request) -> TransferPlan:
    """Return the plan of an upload or a download. Raises LayoutError if array and layout disagree."""
    # A consumer may hold arrays of the caller, which a cache must not keep alive.
    return _plan_of(request) if request.then is None else _plan_of.__wrapped__(request)


@lru_cache(maxsize=64)
def _plan_of(request: Request) -> TransferPlan:
    host, layout = request.host, request.layout
    if host.shape != layout.shape:
        raise LayoutError(f"an array of shape {host.shape} cannot have the layout {layout}, which is for one of shape {layout.shape}")
    return _Writer(request).write()


def chunk_axis(layout: ArrayLayout) -> int:
    """Return the axis along which an array is cut: the first, or a longer one if the first is short."""
    if movement_of(layout, 1) is None:
        return 0  # the layout's own function takes whole rows
    longest = max(range(len(layout.shape)), key=lambda axis: (layout.shape[axis], -axis))
    return 0 if layout.shape[0] >= 1024 or layout.shape[longest] < 4 * layout.shape[0] else longest


def borders_of(layout: ArrayLayout, axis: int, chunks: int) -> tuple[int, ...]:
    """Return where chunks begin along an axis: at multiples of what kernels process at once, so that the last may be shorter."""
    extent = layout.shape[axis]
    return (*range(0, extent, _extent_of_chunk(layout, axis, chunks)), extent)


def _extent_of_chunk(layout: ArrayLayout, axis: int, chunks: int) -> int:
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
    return min(extent, -(-per // quantum) * quantum)


@dataclass(frozen=True)
class Chunking:
    """How an array is cut into chunks, and their memory on the device."""

    axis: int
    slots: int
    """Number of chunks in flight."""
    direct: bool
    """Whether chunks are copied straight to their final place, without a kernel."""
    chunk_elements: int
    """Elements of the largest chunk, as on the host."""
    laid_out_elements: int
    """Elements of the largest chunk in its own layout, if no array is kept; else 0."""

    @classmethod
    def of(cls, request: Request) -> Chunking:
        layout = request.layout
        axis = chunk_axis(layout)
        extent, per = layout.shape[axis], _extent_of_chunk(layout, axis, request.chunks)
        largest, last = (_chunk_shape(layout.shape, axis, count) for count in (per, extent % per or per))
        direct = layout.is_row_major and layout.size == layout.count
        own = 0 if request.chunk_layout is None or direct else max(request.chunk_layout(shape).size for shape in (largest, last))
        return cls(axis, min(RING, -(-extent // per)), direct, prod(largest), own)


def device_bytes(request: Request) -> int:
    """Return the device memory that a transfer allocates: the array of an upload, if kept, and the ring."""
    chunking = Chunking.of(request)
    array = request.layout.size if request.keep and request.direction == "upload" else 0
    waiting = 0 if chunking.direct and request.keep else chunking.chunk_elements
    return (array + chunking.slots * (waiting + chunking.laid_out_elements)) * np.dtype(request.host.native).itemsize


def most_chunks(request: Request) -> int:
    """Return the number of chunks that minimises the device memory of a transfer."""
    return request.layout.shape[chunk_axis(request.layout)]


def _chunk_shape(shape: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    return (*shape[:axis], count, *shape[axis + 1 :])


class _Writer:
    def __init__(self, request: Request) -> None:
        self.request, self.host, self.layout = request, request.host, request.layout
        self.chunking = Chunking.of(request)
        self.axis, self.slots, self.direct = self.chunking.axis, self.chunking.slots, self.chunking.direct
        self.borders = borders_of(self.layout, self.axis, request.chunks)
        self.b = PlanBuilder()
        self.on_host = self.host.view(self.b)
        self.element = f"V{self.on_host.itemsize}"
        self.modules: dict[str, Module] = {}
        self.last: list[StepRef] = []
        """Dependencies of the next step if nothing overlaps."""
        self.copied: list[StepRef] = []
        """Copy of each chunk across the link."""
        if request.keep:
            self.array = self.b.array("array", self.layout.storage_shape, self.element, 0)

    def write(self) -> TransferPlan:
        waiting = [] if self.direct and self.request.keep else self._ring("chunk", self.chunking.chunk_elements, 0)
        pinned = self._ring("pinned", self.chunking.chunk_elements, "pinned") if self.host.staged else []
        if self.request.direction == "download":
            self._download(waiting, pinned)
        elif self.request.keep:
            self._upload(waiting, pinned)
        else:
            self._stream(waiting, pinned)
        staged = tuple(view.buffer.name for view in pinned)
        return TransferPlan(self.b.plan(), tuple(self.modules.values()), self.axis, self.borders, staged, tuple(self.modules))

    def _ring(self, name: str, elements: int, home: Literal[0, "pinned"]) -> list[View]:
        return [self.b.array(f"{name} {slot}", elements, self.element, home) for slot in range(self.slots)]

    def _upload(self, waiting: list[View], pinned: list[View]) -> None:
        done: list[StepRef] = []
        everything: list[StepRef] = []
        for number, (first, end) in enumerate(pairwise(self.borders)):
            source, waits = self._source(number, first, end, pinned)
            if self.direct:
                arrived = self._copy(self._part(_shaped(self.array, self.layout.shape), first, end), source, waits, f"upload {number}")
                done.append(arrived)
            else:
                chunk = _shaped(waiting[number % self.slots], source.shape)
                arrived = self._copy(chunk, source, [*waits, *self._slot_freed(done, number)], f"upload {number}")
                done.append(self._remap(self._into(chunk, first, end), [arrived], f"remap {number}"))
            self.copied.append(arrived)
            everything.append(done[-1])
            if self.request.then is not None and self.request.reads == "chunk":
                data = self._data(first, end)
                everything += self._add_consumer(Chunk(number, self.axis, first, end - first, data, self.layout, self.array), [done[-1]])
        if self.request.then is not None and self.request.reads == "all":
            self._add_consumer(Chunk(0, self.axis, 0, self.borders[-1], self.array, self.layout, self.array), everything)

    def _stream(self, waiting: list[View], pinned: list[View]) -> None:
        """Write an upload that keeps no array: each chunk has its own layout, in memory that later chunks reuse."""
        assert self.request.chunk_layout is not None
        laid_out = [] if self.direct else self._ring("laid out", self.chunking.laid_out_elements, 0)
        remapped: list[StepRef] = []
        consumed: list[StepRef] = []
        for number, (first, end) in enumerate(pairwise(self.borders)):
            source, waits = self._source(number, first, end, pinned)
            layout, slot = self.request.chunk_layout(source.shape), number % self.slots
            chunk = _shaped(waiting[slot], source.shape)
            read = consumed if self.direct else remapped
            self.copied.append(self._copy(chunk, source, [*waits, *self._slot_freed(read, number)], f"upload {number}"))
            data, ready = chunk, self.copied[-1]
            if not self.direct:
                stored = _shaped(laid_out[slot], layout.storage_shape)
                remap = _remap_whole(layout, stored, chunk)
                ready = self._remap(remap, [ready, *self._slot_freed(consumed, number)], f"remap {number}")
                remapped.append(ready)
                data = _elements(layout, stored, layout.shape) or stored
            consumed += self._add_consumer(Chunk(number, self.axis, first, end - first, data, layout, None), [ready]) or [ready]

    def _download(self, waiting: list[View], pinned: list[View]) -> None:
        freed: list[StepRef] = []
        for number, (first, end) in enumerate(pairwise(self.borders)):
            part = self._part(self.on_host, first, end)
            waits: list[StepRef] = []
            if self.direct:
                source = self._part(_shaped(self.array, self.layout.shape), first, end)
            else:
                source = _shaped(waiting[number % self.slots], part.shape)
                waits = [self._remap(self._from(source, first, end), self._slot_freed(self.copied, number), f"remap {number}")]
            destination = _shaped(pinned[number % self.slots], part.shape) if pinned else part
            if pinned:
                waits = [*waits, *self._slot_freed(freed, number)]
            self.copied.append(self._copy(destination, source, waits, f"download {number}"))
            if pinned:
                filled = replace(destination, dtype=self.host.native if self.host.swapped else part.dtype)
                freed.append(self._call(part, filled, [self.copied[-1]], f"unstage {number}"))

    def _source(self, number: int, first: int, end: int, pinned: list[View]) -> tuple[View, list[StepRef]]:
        """Return the source of a chunk's copy across the link, staged if necessary, and the dependencies of the copy."""
        part = self._part(self.on_host, first, end)
        if not pinned:
            return part, []
        staged = _shaped(pinned[number % self.slots], part.shape)
        filled = replace(staged, dtype=self.host.native) if self.host.swapped else replace(staged, dtype=part.dtype)
        return staged, [self._call(filled, part, self._slot_freed(self.copied, number), f"stage {number}")]

    def _slot_freed(self, steps: list[StepRef], number: int) -> list[StepRef]:
        """Return the step after which the slot of a chunk is free again; `steps` has one step for each earlier chunk."""
        again = number - self.slots
        return steps[again : again + 1] if again >= 0 else []

    # -- steps: one after another where nothing overlaps -------------------------------------------------------------------------

    def _waits(self, waits: list[StepRef]) -> list[StepRef]:
        return waits if self.request.overlap else [*waits, *self.last]

    def _record_step(self, step: StepRef) -> StepRef:
        self.last = [step]
        return step

    def _copy(self, to: View, of: View, waits: list[StepRef], label: str) -> StepRef:
        return self._record_step(self.b.copy(to, of, queue=COPIES, after=self._waits(waits), label=label))

    def _call(self, to: View, of: View, waits: list[StepRef], label: str) -> StepRef:
        return self._record_step(
            self.b.call(COPY, to, of, self.request.threads, after=self._waits(waits), reads=[of], writes=[to], label=label)
        )

    def _remap(self, remap: Remap, waits: list[StepRef], label: str) -> StepRef:
        self.modules[remap.launch.kernel.module] = remap.module
        return self._record_step(self.b.add(remap.launch, device=0, queue=KERNELS, after=self._waits(waits), label=label))

    def _add_consumer(self, chunk: Chunk, waits: list[StepRef]) -> list[StepRef]:
        assert self.request.then is not None
        launch = self.request.then(chunk)
        if launch is None:
            return []
        step = self.b.add(launch, device=0, queue=KERNELS, after=self._waits(waits), label=f"then {chunk.number}")
        return [self._record_step(step)]

    # -- parts -------------------------------------------------------------------------------------------------------------------

    def _part(self, view: View, first: int, end: int) -> View:
        return view[(*(slice(None) for _ in range(self.axis)), slice(first, end))]

    def _data(self, first: int, end: int) -> View:
        """Return the view of a chunk's elements in the array; the whole array for a layout whose offsets are not sums of products."""
        return _elements(self.layout, self.array, _chunk_shape(self.layout.shape, self.axis, end - first), first, self.axis) or self.array

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
        """Return a view of the array that starts at the movement's first element for a chunk."""
        data = self._data(first, end)
        if data is not self.array:
            return data
        index = tuple(first if axis == self.axis else 0 for axis in range(len(self.layout.shape)))
        offset = self.layout(*index)
        assert isinstance(offset, int)
        return self.array.buffer.view(self.array.dtype, None, offset * self.array.itemsize)


def _elements(layout: ArrayLayout, stored: View, shape: tuple[int, ...], first: int = 0, axis: int = 0) -> View | None:
    """Return the view of a part of an array of `shape`, from index `first` along an axis; None if offsets are not sums of products."""
    parts = strides_of(layout)
    if parts is None or any(len(one) > 1 for one in parts):
        return None
    steps = [one[0][1] * stored.itemsize for one in parts]
    return View(stored.buffer, stored.dtype, shape, tuple(steps), stored.offset + first * steps[axis])


def _remap_whole(layout: ArrayLayout, stored: View, chunk: View) -> Remap:
    """Return the launch that remaps a whole array."""
    movement = movement_of(layout, chunk.itemsize)
    if movement is None:
        return remap_by_function(layout, stored, chunk, 0, layout.shape[0])
    return remap_of(movement, _elements(layout, stored, layout.shape) or stored, chunk)


def _shaped(view: View, shape: tuple[int, ...]) -> View:
    """Return the first elements of a contiguous view in another shape."""
    return view.buffer.view(view.dtype, shape, view.offset)


def _touched_bytes(launch: Launch) -> int:
    return sum(view.nbytes for view in (*(launch.reads or ()), *(launch.writes or ())))


def prediction(
    transfer: TransferPlan,
    chip: Chip,
    host_gb_per_s: float,
    then_ns: float = 0.0,
    slowness_ns: float = 0.0,
    moved_bytes: Callable[[Launch], int] = _touched_bytes,
) -> Timeline | None:
    """Return when each step of a transfer runs on a chip; None if the chip file lacks a required number.

    A remap kernel is assumed to read and write at the rate of copies inside the chip, plus `slowness_ns`; host copies run at
    `host_gb_per_s`, and each launch of a consumer takes `then_ns`. `moved_bytes` returns the bytes that a remap kernel reads and writes.
    """

    def kernel_ns(launch: Launch, device: int) -> float:
        if launch.kernel.module not in transfer.kernels:
            return then_ns
        return copied_ns(chip, moved_bytes(launch)) + slowness_ns

    def call_ns(call: HostCall) -> float:
        return sum(view.nbytes for view in call.writes or ()) / host_gb_per_s

    try:
        return predicted(transfer.plan, [chip], kernel_ns, call_ns=call_ns)
    except ChipError:
        return None


def copied_ns(chip: Chip, nbytes: int) -> float:
    """Return the time in which a copy inside a chip reads and writes `nbytes` in total, in ns."""
    return nbytes / (chip.copy_gb_per_s or chip.dram_gb_per_s)


def best_chunks(
    request: Request, chip: Chip, host_gb_per_s: float, then_ns: float = 0.0, slowness_ns: float = 0.0, *, room: int | None = None
) -> int:
    """Return the number of chunks with the shortest predicted time among those that fit into `room` bytes of device memory; 16, the paper's
    choice, if nothing can be predicted."""
    # Consumers are not called for plans that are only compared: they may create arrays, or count their calls.
    compared = request if request.then is None else replace(request, then=_any_consumer)
    find = _best_chunks if request.keep else _best_chunks.__wrapped__
    return find(compared, chip, host_gb_per_s, then_ns, slowness_ns, _counts_within(request, room))


def _any_consumer(chunk: Chunk) -> Launch:
    return planned(KernelRef("", "consumer"), 1, 1, chunk.data, reads=[chunk.data], writes=[chunk.data])


@lru_cache(maxsize=256)
def _best_chunks(request: Request, chip: Chip, host_gb_per_s: float, then_ns: float, slowness_ns: float, counts: tuple[int, ...]) -> int:
    times: dict[int, float] = {}
    for chunks in counts:
        made = plan_of(replace(request, chunks=chunks))
        if made.chunks in times:
            continue
        timeline = prediction(made, chip, host_gb_per_s, then_ns, slowness_ns)
        if timeline is None:
            return max(DEFAULT_CHUNKS, counts[0])
        times[made.chunks] = timeline.elapsed_ns
    return min(times, key=lambda chunks: (times[chunks], chunks))


def _counts_within(request: Request, room: int | None) -> tuple[int, ...]:
    """Return the chunk counts to compare: those up to 64 that fit, or the next power of 2."""
    if room is None:
        return CHUNK_COUNTS if request.keep else tuple(count for count in CHUNK_COUNTS if count >= LEAST_STREAMED)
    most, chunks = most_chunks(request), 1 if request.keep else LEAST_STREAMED
    found: list[int] = []
    while chunks <= CHUNK_COUNTS[-1] or (chunks < most and not found):
        if device_bytes(replace(request, chunks=chunks)) <= room:
            found.append(chunks)
        chunks *= 2
    return tuple(found) or (most,)
