"""`gather`: rows by index, on the way to a target or on it."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.launch import DeviceArray, Stream, Target
from memlane.layout.selection import out_of_range
from memlane.remap.gathers import CLEAN, WRONG, Rows, gather_plan
from memlane.remap.staging import default_threads
from memlane.targets import target as named_target
from memlane.targets.binding import Memory
from memlane.transfer.arrays import LaidOutArray, host_array
from memlane.transfer.running import Transfer


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
    """Copy `rows[indices]` to a target, where it is gathered: place k holds row `indices[k]`, and rows may be taken often.

    `rows` and `indices` are arrays of the host or of the target. Rows are copied first; indices follow in chunks, each gathered while the
    next one is copied. Indices are integers of 32 or 64 bits; negative ones are out of range. Raises LayoutError for the first index out
    of range, with its position, when the result is waited for.
    """
    where = named_target(target) if isinstance(target, str) else target
    source, source_shape, dtype = _side(where, rows, "rows")
    chosen, chosen_shape, kind = _side(where, indices, "indices")
    if kind.kind not in "iu" or kind.itemsize not in (4, 8):
        raise LayoutError(f"the indices of a gather are integers of 32 or 64 bits, not an array of {kind}")
    if not source_shape:
        raise LayoutError("a gather needs rows along a first axis; the array has no dimensions")
    count, places = source_shape[0], prod(chosen_shape)
    row_bytes = prod(source_shape[1:]) * dtype.itemsize
    shape = (*chosen_shape, *source_shape[1:])
    out = where.empty(shape, dtype)
    array = LaidOutArray(where, out.address, shape, dtype, out.owner, None, dtype)
    if not places or not row_bytes:
        return array
    if not count:
        raise out_of_range(0, int(_at(chosen, 0)), 0)
    pieces = 16 if chunks == "auto" else chunks
    memory: dict[str, Memory] = {"rows": source, "indices": chosen, "array": out}
    memory[WRONG], memory[CLEAN] = where.pinned(1, "u8"), where.pinned(1, "u8")
    memory[CLEAN][...] = places  # type: ignore[index]
    made = gather_plan(
        Rows(count, row_bytes, _home(where, source)),
        Rows(places, kind.itemsize, _home(where, chosen)),
        pieces,
        overlap=overlap,
        threads=default_threads() if threads is None else threads,
    )

    def check() -> None:
        position = int(memory[WRONG][0])  # type: ignore[index]
        if position < places:
            raise out_of_range(position, int(_at(chosen, position)), count)

    array = replace(array, transfer=Transfer(where, made, memory, finish=check))
    assert array.transfer is not None
    array.transfer.start(stream)
    return array.wait() if wait or where.modelled else array


def _side(target: Target, value: object, what: str) -> tuple[Memory, tuple[int, ...], np.dtype[Any]]:
    """Return the memory of one side, in C order and native bytes, its shape and its type."""
    if isinstance(value, DeviceArray):
        if value.target is not target:
            raise LayoutError(f"the {what} are on {value.target.name_beside(target)}, but the gather is on {target.name}")
        return value, value.shape, value.dtype
    host = host_array(value, what)
    if host.dtype.hasobject:
        raise LayoutError(f"the {what} are Python objects, which a device does not know: convert them to numbers first")
    plain = np.ascontiguousarray(host.astype(host.dtype.newbyteorder("="), copy=False)).reshape(host.shape)
    return plain, plain.shape, plain.dtype


def _home(target: Target, side: Memory) -> str | int:
    if isinstance(side, DeviceArray):
        return 0
    return "pinned" if side.size and target.is_pinned(side) else "host"


def _at(side: Memory, position: int) -> Any:
    return (side.numpy() if isinstance(side, DeviceArray) else side).reshape(-1)[position]
