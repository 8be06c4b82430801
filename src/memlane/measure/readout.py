"""Read the filled part of a trace buffer from its target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from memlane.instrument import (
    HEADER_BYTES,
    HEADER_DTYPE,
    RECORD_DTYPE,
    SLICE_DTYPE,
    BufferLayout,
    initial_header,
    records_written,
    taken_slices,
    warps_without_slice,
)
from memlane.launch import Memory

Bytes = npt.NDArray[np.uint8]

SMALL_SLICE_BYTES = 1 << 14
"""Maximum size of slices that are read whole, which is faster than to ask each for its fill."""
_RECORD_BYTES = RECORD_DTYPE.itemsize
_HEAD_BYTES = SLICE_DTYPE.itemsize


def header_of(target: Memory, address: int) -> Bytes:
    """Return the header of the buffer at `address`, after all work has finished."""
    header = np.empty(HEADER_BYTES, np.uint8)
    target.read(address, header)
    return header


def slices_asked(header: Bytes) -> int:
    """Return how many warps have requested a slice."""
    return len(taken_slices(header)) + warps_without_slice(header)


def filled_part(target: Memory, address: int, layout: BufferLayout, header: Bytes, assigned: int = 0) -> Bytes:
    """Return a buffer with the contents of the one at `address`, for `memlane.instrument.decode`, but without untaken slices.

    `assigned`: number of slices that the host has assigned to launches. Large slices, which kernels with loops get because their iteration
    count is unknown, are cut to the largest fill.
    """
    taken = taken_slices(header)
    if layout.slice_bytes <= SMALL_SLICE_BYTES:
        smaller = replace(layout, slices=int(taken.max(initial=0)), assigned=assigned)
        held = np.empty(smaller.nbytes, np.uint8)
        asked = HEADER_BYTES + (1 + smaller.slices) * layout.slice_bytes
        target.read(address, held[:asked])
        if assigned:
            target.read(address + HEADER_BYTES + (1 + layout.slices) * layout.slice_bytes, held[asked:])
        fields = held[:HEADER_BYTES].view(HEADER_DTYPE)
        fields["slices"], fields["assigned"] = smaller.slices, assigned
        return held
    numbers = [0, *taken.tolist(), *range(1 + layout.slices, 1 + layout.slices + assigned)]
    starts = [address + HEADER_BYTES + number * layout.slice_bytes for number in numbers]
    heads = np.empty(len(starts), SLICE_DTYPE)
    for number, start in enumerate(starts):
        target.read(start, heads[number : number + 1])
    begun = np.flatnonzero(np.concatenate([np.ones(1 + len(taken), bool), heads["lanes"][1 + len(taken) :] != 0]))
    heads, starts = heads[begun], [starts[number] for number in begun.tolist()]
    for number in (1 + np.flatnonzero((heads["attempted"][1:] == 0) & (heads["end_cycles"][1:] == 0))).tolist():
        heads["attempted"][number] = _written(target, starts[number], layout.capacity)
    return _dense(target, starts, heads, layout, len(starts) - 1 + warps_without_slice(header))


def _written(target: Memory, slice_at: int, capacity: int) -> int:
    """Return how many records lane 0 led in a slice whose warp never ended, and so has not stored that number."""
    places = np.empty(capacity, RECORD_DTYPE)
    target.read(slice_at + _HEAD_BYTES, places)
    return records_written(places)


def _dense(target: Memory, starts: list[int], heads: npt.NDArray[np.void], layout: BufferLayout, asked: int) -> Bytes:
    """Return a buffer with only the slices that begin at `starts`, with the headers `heads`."""
    led = np.minimum(heads["attempted"], layout.capacity)
    others = np.minimum(heads["overflow"], layout.overflow)
    led[0] = others[0] = 0  # Slice 0 counts the records of warps without a slice, and holds none.
    dense = BufferLayout(len(starts) - 1, int(led.max()), int(others.max()))
    held = np.zeros(dense.nbytes, np.uint8)
    held[:HEADER_BYTES] = initial_header(dense, asked)
    slices = held[HEADER_BYTES:].reshape(len(starts), dense.slice_bytes)
    slices[:, :_HEAD_BYTES] = heads.view(np.uint8).reshape(len(starts), _HEAD_BYTES)
    for counts, origin, destination in ((led, 0, 0), (others, layout.capacity, dense.capacity)):
        for number in np.flatnonzero(counts).tolist():
            at = _HEAD_BYTES + destination * _RECORD_BYTES
            part = slices[number, at : at + int(counts[number]) * _RECORD_BYTES]
            target.read(starts[number] + _HEAD_BYTES + origin * _RECORD_BYTES, part)
    return held
