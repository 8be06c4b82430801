"""Define the byte layout of the trace buffer: one arena of fixed size that warps fill while their kernels run.

    +--------+---------+---------+---------+-- - -
    | header | slice 0 | slice 1 | slice 2 |
    +--------+---------+---------+---------+-- - -
             |
             +-- slice header, `capacity` records led by lane 0, `overflow` records led by other lanes

The module variable `memlane_trace` holds the address of the buffer and what a warp needs to know about it (`ENTRY_DTYPE`), in one sector.

The host assigns slices to a launch that runs exactly once: the parameter `memlane_launch` (`LAUNCH_DTYPE`) holds the first of them, and a
warp adds its number among the traced warps. So it waits for nothing. These `assigned` slices follow the others. A launch that may run again
(in a graph), or whose traced warps cannot be numbered by a few instructions, has no assigned slices: each of its warps takes one by an
atomic addition to one of `HEADS` counters. Each counter has a cache line of its own and the warp number selects it, because thousands of
warps that start at once would serialise on a single counter. Counter k hands out the slices 1 + k, 1 + k + `HEADS`, ...; a warp that finds
its counter exhausted tries the next one.

Slices belong to warps and not to blocks, because the warps of a block would have to agree on a slice through a barrier and a word of static
shared memory: both change what is measured, and kernels whose lanes exit early or whose blocks use every byte of shared memory could not be
traced. Slice 0 belongs to no warp: warps that found no slice count their dropped records there, with the same instructions.

Within its slice a warp needs no atomics while lane 0, which every warp has, is active: that lane numbers its records in a register.
Another lane that leads reserves places after those of lane 0 by the atomic counter `overflow` of the slice, a chunk at a time, and fills
them in order; an unfilled place has no active lane. Each lane counts its dropped records in a register and reports them when it exits, so
the number of dropped records is exact (the counter of a lane that leads more than 2^31 accesses wraps).

Offsets in the generated PTX come only from the dtypes below. All fields are little-endian. The buffer must be zeroed before the header is
written; one memset does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import BadLaunch
from memlane.number_format import plural

MAGIC = int.from_bytes(b"memlane\0", "little")
VERSION = 7

_LINE_BYTES = 128
HEADS = 32
"""Number of slice counters."""

HEADER_DTYPE = np.dtype(
    {
        "names": ["magic", "version", "slice_bytes", "capacity", "overflow", "slices", "assigned", "without_slice", "heads"],
        "formats": ["<u8", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", ("<u8", (HEADS, _LINE_BYTES // 8))],
        "offsets": [0, 8, 12, 16, 20, 24, 32, _LINE_BYTES, 2 * _LINE_BYTES],
        "itemsize": (2 + HEADS) * _LINE_BYTES,
    }
)
"""Header of a buffer. `capacity`, `overflow`: records per slice. `slices`: slices that warps take from the counters, without slice 0.
`assigned`: slices after these that the host assigns to launches. `without_slice`: warps that found no slice. `heads`: one row per counter,
a cache line long, whose first word counts the slices requested from it."""

ENTRY_DTYPE = np.dtype(
    [("buffer", "<u8"), *((name, "<u4") for name in ("slices", "slice_bytes", "capacity", "room", "record_bytes", "zero"))]
)
"""Contents of `memlane_trace`: the address of the buffer, or 0 to record nothing; the sizes from its header, with `room` = capacity +
overflow; and a zero that ptxas cannot prove to be zero, so that whatever depends on it stays in the program."""

LAUNCH_DTYPE = np.dtype([("tag", "<u4"), ("first", "<u4"), ("warps", "<u4")])
"""Last parameter of a tagged kernel: the number that the host gave the launch; the first of the slices assigned to the launch, 0 if none;
the number of warps per block."""

SLICE_DTYPE = np.dtype(
    {
        "names": [
            *("gridid", "block", "warp", "sm", "kernel", "lanes", "room"),
            *("begin_cycles", "begin_ns", "end_cycles", "end_ns", "attempted", "overflow", "lost", "capacity", "tag"),
        ],
        "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4"],
        "offsets": [0, 8, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 88, 36, 96],
        "itemsize": 128,
    }
)
"""Header of a slice. `tag`: number that the host gave the launch, 0 if none. `gridid`: run of the launch, as the device numbers runs.
`block`: linear index in the grid. `warp`: index in its block. `kernel`: index among the kernels of the module. `lanes`: mask of the lanes
that exist. `capacity`: places of lane 0. `room`: capacity + overflow; both are 0 in slice 0. `attempted`: records led by lane 0, kept or
dropped. `overflow`: places that other lanes requested. `lost`: records of other lanes that got no place. The end is that of the last lane,
and 0 while the warp runs."""

RECORD_DTYPE = np.dtype(
    {
        "names": [
            *("start_low", "site", "start_high", "end_low", "packed_mask"),
            *("start", "end", "number", "active_mask", "exposed", "execution"),
        ],
        "formats": ["<u4", "<u2", "<u2", "<u4", "<u4", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
        "offsets": [0, 4, 6, 8, 12, 0, 8, 16, 20, 24, 28],
        "itemsize": 32,
    }
)
"""One access, in one of two forms. The packed form, used for most records, has only the first five fields: the lower 32 bits of `%clock64`
at start and end, the next 16 bits of the start, the site and the active lanes. An access of more than 2^32 cycles appears shorter by a
multiple of that, and so do the times of a warp that lives longer than 2^48 cycles. The other form has the other six fields, with both
times in full and the site plus 1 as `number`, which is 0 in a packed record. `exposed`: cycles that the first consumer waited, for schemes
that record it. `execution`: how often the leader had executed the site before, if the trace has a window of executions."""

HEADER_BYTES = HEADER_DTYPE.itemsize
SLICE_HEADER_BYTES = SLICE_DTYPE.itemsize
RECORD_BYTES = RECORD_DTYPE.itemsize


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """Sizes of a trace buffer."""

    slices: int
    """Slices that warps can take, one per warp, without slice 0."""
    capacity: int
    """Records per slice that lane 0 leads."""
    overflow: int
    """Records per slice that other lanes lead."""
    assigned: int = 0
    """Slices after these that the host assigns to launches."""

    @property
    def slice_bytes(self) -> int:
        """Bytes of one slice with its header, a multiple of 128."""
        used = SLICE_HEADER_BYTES + (self.capacity + self.overflow) * RECORD_BYTES
        return -(-used // _LINE_BYTES) * _LINE_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes to allocate and clear, aligned to 128."""
        return HEADER_BYTES + (1 + self.slices + self.assigned) * self.slice_bytes


def buffer_layout(warps: int, records_per_warp: int, overflow_per_warp: int | None = None, assigned: int = 0) -> BufferLayout:
    """Return the layout of a buffer for `warps` warps that take their slices and `assigned` slices that the host assigns.

    Each slice holds `records_per_warp` records led by lane 0 and `overflow_per_warp` led by other lanes (by default as many again, because
    lane 0 may be inactive in much of a kernel). Raises BadLaunch for sizes that a buffer cannot have.
    """
    overflow = records_per_warp if overflow_per_warp is None else overflow_per_warp
    if warps < 1 or records_per_warp < 0 or overflow < 0:
        raise BadLaunch(
            f"a trace buffer needs at least one warp and no negative number of records, got {plural(warps, 'warp')}, "
            f"{plural(records_per_warp, 'record')} per warp and an overflow of {overflow:,}"
        )
    layout = BufferLayout(warps, records_per_warp, overflow, assigned)
    if warps + assigned >= 1 << 31 or layout.slice_bytes >= 1 << 31:
        raise BadLaunch(
            f"a trace buffer of {plural(warps + assigned, 'warp')} with {plural(records_per_warp + overflow, 'record')} each is too large; "
            "trace one warp in N (`every`), fewer blocks, or fewer sites"
        )
    return layout


def initial_header(layout: BufferLayout, asked: int = 0) -> npt.NDArray[np.uint8]:
    """Return the first `HEADER_BYTES` bytes of a buffer from which `asked` warps have requested a slice, spread over the counters in
    turn."""
    header = np.zeros(1, HEADER_DTYPE)
    header["magic"] = MAGIC
    header["version"] = VERSION
    header["slice_bytes"] = layout.slice_bytes
    header["capacity"] = layout.capacity
    header["overflow"] = layout.overflow
    header["slices"] = layout.slices
    header["assigned"] = layout.assigned
    header["heads"][0, :, 0] = _shares(min(asked, layout.slices))
    header["without_slice"] = max(0, asked - layout.slices)
    return header.view(np.uint8)


def entry(address: int, layout: BufferLayout) -> npt.NDArray[np.uint8]:
    """Return the bytes of `memlane_trace` that make kernels fill the buffer of this layout at `address`."""
    words = np.zeros(1, ENTRY_DTYPE)
    extents = (layout.slices, layout.slice_bytes, layout.capacity, layout.capacity + layout.overflow, RECORD_BYTES, 0)
    words[0] = (address, *extents)
    return words.view(np.uint8)


NO_ENTRY = np.zeros(ENTRY_DTYPE.itemsize, np.uint8)
"""Bytes of `memlane_trace` that make kernels record nothing."""


def taken_slices(header: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return the numbers of the slices that warps have taken, ascending, from the header of a buffer."""
    fields = header[:HEADER_BYTES].copy().view(HEADER_DTYPE)[0]
    slices = int(fields["slices"])
    counts = np.minimum(fields["heads"][:, 0], _shares(slices)).astype(np.int64)
    turn = np.arange(int(counts.max(initial=0)))
    rows, columns = np.nonzero(turn[:, np.newaxis] < counts)
    return 1 + rows * HEADS + columns


def warps_without_slice(header: npt.NDArray[np.uint8]) -> int:
    """Return the number of warps that found no slice, from the header of a buffer."""
    return int(header[:HEADER_BYTES].copy().view(HEADER_DTYPE)[0]["without_slice"])


def _shares(slices: int) -> npt.NDArray[np.uint64]:
    """Return how many of `slices` slices each counter hands out."""
    return ((slices + HEADS - 1 - np.arange(HEADS)) // HEADS).astype(np.uint64)


def offset(dtype: np.dtype[Any], field: str) -> int:
    """Return the byte offset of a field."""
    assert dtype.fields is not None
    return int(dtype.fields[field][1])
