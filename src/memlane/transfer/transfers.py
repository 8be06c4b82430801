"""Implement `upload`, `download` and `lay_out`: run the plans of `memlane.remap` on a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from memlane.errors import DeviceError, LayoutError
from memlane.launch import DeviceArray, LoadedModule, Stream, Target
from memlane.layout import ArrayLayout, Selection
from memlane.layout.array_spec import LayoutLike, array_layout
from memlane.number_format import plural
from memlane.plan import Plan, PlanBuilder, Timeline, View
from memlane.remap.kernels import Remap, remap_by_function, remap_of, transpose_in_place
from memlane.remap.movement import movement_of
from memlane.remap.requests import Request, TransferPlan
from memlane.remap.staging import default_threads
from memlane.remap.transfers import best_chunks, device_bytes, most_chunks, plan_of, prediction
from memlane.targets.binding import Memory
from memlane.transfer.arguments import check_consumer, check_effort, given_device_array, given_out, given_target
from memlane.transfer.arrays import HostInput, LaidOutArray, chunk_layouts, described, given_array, host_array
from memlane.transfer.consumers import Consumers, Then
from memlane.transfer.gathers import gather
from memlane.transfer.transfer import Transfer, host_gb_per_s

Chunks = int | Literal["auto"]


@overload
def upload(
    target: Target | str,
    host: npt.ArrayLike,
    *,
    layout: LayoutLike | Selection = "row-major",
    chunks: Chunks = "auto",
    overlap: bool = True,
    then: Then | None = None,
    reads: Literal["chunk", "all"] = "chunk",
    keep: Literal[True] = True,
    threads: int | None = None,
    stream: Stream | None = None,
    wait: bool = True,
) -> LaidOutArray: ...


@overload
def upload(
    target: Target | str,
    host: npt.ArrayLike,
    *,
    layout: LayoutLike = "row-major",
    chunks: Chunks = "auto",
    overlap: bool = True,
    then: Then,
    reads: Literal["chunk"] = "chunk",
    keep: Literal[False],
    threads: int | None = None,
    stream: Stream | None = None,
    wait: bool = True,
) -> Transfer: ...


def upload(
    target: Target | str,
    host: npt.ArrayLike,
    *,
    layout: LayoutLike | Selection = "row-major",
    chunks: Chunks = "auto",
    overlap: bool = True,
    then: Then | None = None,
    reads: Literal["chunk", "all"] = "chunk",
    keep: bool = True,
    threads: int | None = None,
    stream: Stream | None = None,
    wait: bool = True,
) -> LaidOutArray | Transfer:
    """Copy an array of the host to a target in another layout; the remap of a chunk overlaps with the copy of the next one.

        points = ml.upload(target, host, layout="soa", then=lambda chunk: (step[chunk.count // 256, 256], chunk.array, chunk.first))

    `host`: a NumPy array, or one of another library through DLPack, in pinned or pageable memory; `threads` threads stage pageable memory
    through a ring of pinned buffers. `layout`: a name (`row-major`, `column-major`, `permuted(2, 0, 1)`, `pad(3)`, `tiled(8, 4)`,
    `diagonal`, `soa`), a layout of `memlane.layout`, a function of the shape, or a `Selection` of rows (see `gather`). `chunks`: number of
    pieces, or `"auto"` for the number predicted to be best. `overlap=False` runs one step after another. `then(chunk)` returns a kernel
    call and its arguments, to start as soon as the chunk has arrived; with `reads="all"` it is called once, for a launch after the last
    chunk.

    `keep=False` is for arrays larger than the device's memory: only a ring of chunks is on the device, each in a layout of its own shape
    (`chunk.layout`), and overwritten after its kernel. It returns the Transfer instead of an array.

    With `wait=False` it may return before the array has arrived; the host's array, which is kept alive, must then stay unchanged until
    `array.wait()`, or `await array`. `stream` is one of the target. Raises LayoutError, BadPlan, and DeviceError if memory does not
    suffice, before anything is copied.
    """
    where = given_target(target)
    check_effort(chunks, threads)
    check_consumer(layout, then, reads, keep=keep)
    if isinstance(layout, Selection):
        return _selected(where, host, layout, then, chunks, overlap=overlap, threads=threads, stream=stream, wait=wait)
    seen = host_array(host)
    if not seen.size:
        if not isinstance(layout, ArrayLayout) and seen.dtype.fields is None:
            array_layout(layout, tuple(max(1, extent) for extent in seen.shape))  # raises LayoutError for an invalid layout
        return _empty(where, seen) if keep else Transfer(where, TransferPlan(Plan(()), (), 0, (0,)), {})
    given = given_array(where, seen, layout)
    consumers = Consumers(where, then, seen)
    request = Request(
        "upload",
        given.described,
        given.layout,
        1,
        overlap,
        threads or default_threads(),
        consumers.planned if then else None,
        reads,
        None if keep else chunk_layouts(layout, given.layout),
    )
    made, predict = _planned(where, request, chunks)
    memory: dict[str, Memory] = {"host": given.memory, **consumers.memory}
    if not keep:
        transfer = Transfer(where, made, memory, consumers.modules, predict=predict)
        return _start_and_wait(transfer, transfer, stream, wait)
    array = _allocated(where, given)
    transfer = Transfer(where, made, {**memory, "array": array}, consumers.modules, predict=predict)
    return _start_and_wait(replace(array, transfer=transfer), transfer, stream, wait)


def _empty(target: Target, host: npt.NDArray[Any]) -> LaidOutArray:
    """Return an array without elements, which has no layout."""
    memory = target.empty(host.shape, host.dtype.newbyteorder("="))
    return LaidOutArray(target, memory.address, memory.shape, memory.dtype, memory.owner, None, host.dtype)


def _selected(target: Target, rows: npt.ArrayLike, layout: Selection, then: object, chunks: Chunks, **options: Any) -> LaidOutArray:
    if then is not None:
        raise LayoutError("then= works only with layouts that contain each element once; launch the kernel after the gather instead")
    shape = host_array(rows, "rows").shape
    if not shape or shape[0] != layout.rows:
        raise LayoutError(f"{layout} is for an array of {plural(layout.rows, 'row')}, not one of shape {shape}")
    return gather(target, rows, layout.indices, chunks=chunks, **options)


def download(
    array: DeviceArray,
    out: npt.NDArray[Any] | None = None,
    *,
    layout: LayoutLike | None = None,
    shape: tuple[int, ...] | None = None,
    chunks: Chunks = "auto",
    overlap: bool = True,
    threads: int | None = None,
    stream: Stream | None = None,
) -> npt.NDArray[Any]:
    """Copy an array to the host in C order, wait for it and return it. This is the inverse of `upload`, with the same chunks and overlap.

    A `LaidOutArray` has its layout; for other arrays `layout` and the `shape` of the result describe it (row-major by default). `out`: the
    array to fill, best made by `target.pinned`. Raises LayoutError if shapes and layouts disagree.
    """
    check_effort(chunks, threads)
    given_device_array(array, "what is downloaded")
    if isinstance(array, LaidOutArray) and layout is None and array.transfer is not None:
        array.transfer.wait()
    found, dtype = _layout_of(array, layout, shape)
    if found is None:
        return np.empty(array.shape, dtype) if out is None else out
    target, fields = _target_of(array), isinstance(array, LaidOutArray) and found is array.layout and array.holds_fields
    logical = found.shape[:1] if fields else found.shape
    result = np.empty(logical, dtype) if out is None else given_out(out, logical, dtype)
    as_words = result.view(np.uint8).reshape(found.shape[0], -1).view(array.dtype) if fields and result.flags.c_contiguous else result
    if fields and not result.flags.c_contiguous:
        raise LayoutError(
            "structures can be downloaded only to a C-contiguous array: leave out `out`, and copy the result to its destination"
        )
    memory, known = described(target, as_words, as_words.dtype if as_words.dtype.fields is None else np.dtype(f"V{as_words.itemsize}"))
    request = Request("download", known, found, 1, overlap, threads or default_threads())
    made, predict = _planned(target, request, chunks)
    transfer = Transfer(target, made, {"host": memory, "array": array}, predict=predict)
    transfer.start(stream)
    transfer.wait()
    return result


def lay_out(
    array: DeviceArray,
    *,
    layout: LayoutLike,
    shape: tuple[int, ...] | None = None,
    out: DeviceArray | None = None,
    in_place: bool = False,
) -> LaidOutArray:
    """Remap an array that is already on a device. `array` is row-major with `shape` (by default its own), unless it has a layout.

    With `in_place` a square matrix is transposed in place; other layouts need separate memory. `out` is the memory to fill, which must not
    overlap with the array. Asynchronous, like a launch. Raises LayoutError.
    """
    target = _target_of(given_device_array(array, "what is laid out"))
    if out is not None:
        given_device_array(out, "out")
    if isinstance(array, LaidOutArray) and array.layout is not None and not array.layout.is_row_major:
        raise LayoutError(f"the array already has the layout {array.layout}: download it, or remap the array that it came from")
    extents = shape or array.shape
    if prod(extents) != array.size:
        raise LayoutError(f"an array of {plural(array.size, 'element')} cannot have the shape {extents}")
    found = array_layout(layout, extents)
    if in_place:
        return _in_place(array, found)
    element = array.dtype.itemsize
    destination = target.empty(found.storage_shape, array.dtype) if out is None else out
    if destination.nbytes < found.size * element:
        raise LayoutError(f"the array to fill has {plural(destination.nbytes, 'byte')}; {found} needs {found.size * element:,}")
    if array.address < destination.address + destination.nbytes and destination.address < array.address + array.nbytes:
        raise LayoutError("the array to fill overlaps with the one that is read: pass separate memory, or leave out `out`")
    b = PlanBuilder()
    source, stored = b.array("source", found.shape, f"V{element}"), b.array("stored", found.storage_shape, f"V{element}")
    movement = movement_of(found, element)
    work = remap_by_function(found, stored, source, 0, found.shape[0]) if movement is None else remap_of(movement, stored, source)
    _launch(target, work, {"source": array, "stored": destination})
    return LaidOutArray(target, destination.address, found.storage_shape, array.dtype, destination.owner or destination, found, array.dtype)


def _in_place(array: DeviceArray, layout: ArrayLayout) -> LaidOutArray:
    if len(layout.shape) != 2 or layout.shape[0] != layout.shape[1] or layout != array_layout("column-major", layout.shape):
        raise LayoutError(f"{layout} is not possible in place: only a square matrix can be transposed in place; leave out in_place")
    data = PlanBuilder().array("data", layout.shape, f"V{array.dtype.itemsize}")
    _launch(_target_of(array), transpose_in_place(data, layout.shape[0]), {"data": array})
    return LaidOutArray(array.target, array.address, layout.storage_shape, array.dtype, array.owner or array, layout, array.dtype)


def _launch(target: Target, work: Remap, memory: dict[str, DeviceArray]) -> None:
    launch = work.launch
    call = _loaded(target, work)[launch.kernel.name][launch.grid, launch.block, None, launch.shared_bytes]
    call(*(memory[one.buffer.name] if isinstance(one, View) else one for one in launch.arguments))


def _loaded(target: Target, work: Remap) -> LoadedModule:
    """Return the module of a remap loaded on a target, which caches it."""
    loaded: dict[str, LoadedModule] = target.__dict__.setdefault("_remap_modules", {})
    digest = work.launch.kernel.module
    if digest not in loaded:
        loaded[digest] = target.load(work.module)
    return loaded[digest]


def _planned(target: Target, request: Request, chunks: Chunks) -> tuple[TransferPlan, Callable[[], Timeline | None]]:
    """Return the plan and a function that predicts its times, called on demand because it takes as long as a small transfer. Raises
    DeviceError if the device has too little memory."""
    room = target.free_bytes()
    if room is not None:
        _check_room(target, request, chunks, room)
    rate = host_gb_per_s(target, request.threads) if request.host.staged else 1.0
    count = best_chunks(request, target.chip, rate, room=room) if chunks == "auto" else int(chunks)
    made = plan_of(replace(request, chunks=count))
    return made, lambda: prediction(made, target.chip, rate)


def _check_room(target: Target, request: Request, chunks: Chunks, room: int) -> None:
    """Raise DeviceError, with the needed and the free bytes, if a transfer does not fit."""
    least = replace(request, chunks=most_chunks(request))
    asked = least if chunks == "auto" else replace(request, chunks=int(chunks))
    needed = device_bytes(asked)
    if needed <= room:
        return
    arrays = request.layout.size * np.dtype(request.host.native).itemsize if request.keep and request.direction == "upload" else 0
    if arrays and device_bytes(least) > room:
        what = f"{plural(needed, 'byte')} for {request.layout} and its chunks"
        remedy = "free arrays, or give a kernel one chunk after another with then= and keep=False"
    else:
        what = (
            f"{plural(arrays, 'byte')} for {request.layout} and {needed - arrays:,} for chunks in transit"
            if arrays
            else f"{plural(needed, 'byte')} for chunks"
        )
        remedy = "free arrays" if device_bytes(least) > room else "pass a larger chunks=, or chunks='auto'"
    raise DeviceError(f"{what} do not fit on {target.name}, where {plural(room, 'byte')} are free: {remedy}")


def _allocated(target: Target, given: HostInput) -> LaidOutArray:
    layout = given.layout
    nbytes = layout.size * given.dtype.itemsize
    try:
        memory = target.empty(layout.storage_shape, given.dtype)
    except DeviceError as error:
        raise DeviceError(
            f"{plural(nbytes, 'byte')} for {layout} do not fit on {target.name}: {error}; free arrays, or upload fewer rows at a time"
        ) from error
    return LaidOutArray(target, memory.address, memory.shape, memory.dtype, memory.owner, layout, given.host_dtype)


_Result = TypeVar("_Result", LaidOutArray, Transfer)


def _start_and_wait(result: _Result, transfer: Transfer, stream: Stream | None, wait: bool) -> _Result:
    """Start a transfer and return its result, waiting for it if `wait` is set or the target is emulated."""
    transfer.start(stream)
    if wait or transfer.target.modelled:
        result.wait()
    return result


def _target_of(array: DeviceArray) -> Target:
    assert isinstance(array.target, Target)
    return array.target


def _layout_of(array: DeviceArray, layout: LayoutLike | None, shape: tuple[int, ...] | None) -> tuple[ArrayLayout | None, np.dtype[Any]]:
    """Return the layout of an array, and the type of the host's elements; no layout for an array without elements."""
    if array.size == 0:
        return None, array.dtype
    if layout is None and isinstance(array, LaidOutArray) and array.layout is not None:
        return array.layout, array.host_dtype
    found = array_layout("row-major" if layout is None else layout, shape or array.shape or (1,))
    if found.size > array.size:
        raise LayoutError(f"{found} needs {plural(found.size, 'element')}, but the array has {array.size}")
    return found, array.dtype
