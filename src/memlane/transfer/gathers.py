"""Gather rows by index during an upload, or on the target."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from memlane.errors import DeviceError, LayoutError
from memlane.launch import DeviceArray, Stream, Target
from memlane.layout.selection import out_of_range
from memlane.number_format import plural
from memlane.plan import Timeline
from memlane.remap.gathers import CLEAN, WRONG, Rows, best_gather_chunks, gather_plan, gather_prediction
from memlane.remap.requests import TransferPlan
from memlane.remap.staging import default_threads
from memlane.targets.binding import Memory
from memlane.transfer.arguments import check_effort, given_target
from memlane.transfer.arrays import LaidOutArray, host_array
from memlane.transfer.transfer import Transfer, host_gb_per_s


def gather(
    target: Target | str,
    rows: npt.ArrayLike | DeviceArray,
    indices: npt.ArrayLike | DeviceArray,
    *,
    chunks: int | Literal["auto"] = "auto",
    overlap: bool = True,
    threads: int | None = None,
    stream: Stream | None = None,
    wait: bool = True,
) -> LaidOutArray:
    """Copy `rows[indices]` to a target, gathering there: position k holds row `indices[k]`; rows may be taken repeatedly.

    `rows` and `indices` are arrays of the host or of the target. Rows are copied first; indices follow in chunks, each gathered while the
    next one is copied. Indices are integers of 32 or 64 bits; negative ones are out of range. Raises LayoutError for the first index out of
    range, with its position, when the result is waited for.
    """
    where = given_target(target)
    source, source_shape, dtype = _input(where, rows, "rows")
    chosen, chosen_shape, kind = _input(where, indices, "indices")
    _check(source_shape, kind, chunks, threads)
    count, places, row_bytes = source_shape[0], prod(chosen_shape), prod(source_shape[1:]) * dtype.itemsize
    shape = (*chosen_shape, *source_shape[1:])
    if not places or not row_bytes:
        out = where.empty(shape, dtype)
        return LaidOutArray(where, out.address, shape, dtype, out.owner, None, dtype)
    if not count:
        raise out_of_range(0, int(_element(chosen, 0)), 0)
    copiers = default_threads() if threads is None else threads
    sides = Rows(count, row_bytes, _home(where, source)), Rows(places, kind.itemsize, _home(where, chosen))
    rate = host_gb_per_s(where, copiers) if "host" in (sides[0].home, sides[1].home) else 1.0
    if chunks == "auto":
        chunks = best_gather_chunks(*sides, where.chip, rate, overlap=overlap, threads=copiers)
    made = gather_plan(*sides, int(chunks), overlap=overlap, threads=copiers)
    _check_room(where, made, places)
    out = where.empty(shape, dtype)
    transfer = _transfer(where, made, source, chosen, out, (places, count), lambda: gather_prediction(made, sides[0], where.chip, rate))
    array = LaidOutArray(where, out.address, shape, dtype, out.owner, None, dtype, transfer)
    transfer.start(stream)
    return array.wait() if wait or where.modelled else array


def _transfer(
    target: Target,
    made: TransferPlan,
    rows: Memory,
    indices: Memory,
    out: DeviceArray,
    extents: tuple[int, int],
    predict: Callable[[], Timeline | None],
) -> Transfer:
    """Return the transfer, which raises LayoutError for the first index out of range when it is waited for. `extents`: positions, and
    rows."""
    places, count = extents
    report, clean = target.pinned(1, "u8"), target.pinned(1, "u8")
    clean[...] = places

    def check() -> None:
        position = int(report[0])
        if position < places:
            raise out_of_range(position, int(_element(indices, position)), count)

    memory: dict[str, Memory] = {"rows": rows, "indices": indices, "array": out, WRONG: report, CLEAN: clean}
    return Transfer(target, made, memory, predict=predict, finish=check)


def _check_room(target: Target, made: TransferPlan, places: int) -> None:
    """Raise DeviceError, with the needed and the free bytes, if a gather does not fit. Rows and indices on the device already have their
    memory."""
    needed = sum(buffer.nbytes for buffer in made.plan.buffers if buffer.home == 0 and buffer.name not in ("rows", "indices"))
    room = target.free_bytes()
    if room is not None and needed > room:
        raise DeviceError(
            f"a gather of {plural(places, 'row')} needs {plural(needed, 'byte')} on {target.name}, where {plural(room, 'byte')} are free: "
            "free arrays, or gather fewer rows at a time"
        )


def _check(rows: tuple[int, ...], kind: np.dtype[Any], chunks: object, threads: int | None) -> None:
    if kind.kind not in "iu" or kind.itemsize not in (4, 8):
        raise LayoutError(f"the indices of a gather are integers of 32 or 64 bits, not an array of {kind}")
    if not rows:
        raise LayoutError("a gather needs rows along a first axis; the array has no dimensions")
    check_effort(chunks, threads)


def _input(target: Target, value: object, what: str) -> tuple[Memory, tuple[int, ...], np.dtype[Any]]:
    """Return the memory of one input, in C order and native byte order, with its shape and type."""
    if isinstance(value, DeviceArray):
        if value.target is not target:
            raise LayoutError(f"the {what} are on {value.target.name_beside(target)}, but the gather is on {target.name}")
        return value, value.shape, value.dtype
    host = host_array(value, what)
    if host.dtype.hasobject:
        raise LayoutError(f"the {what} are Python objects, which a device cannot hold: convert them to numbers first")
    plain = np.ascontiguousarray(host.astype(host.dtype.newbyteorder("="), copy=False)).reshape(host.shape)
    return plain, plain.shape, plain.dtype


def _home(target: Target, side: Memory) -> str | int:
    if isinstance(side, DeviceArray):
        return 0
    return "pinned" if side.size and target.is_pinned(side) else "host"


def _element(side: Memory, position: int) -> Any:
    return (side.numpy() if isinstance(side, DeviceArray) else side).reshape(-1)[position]
