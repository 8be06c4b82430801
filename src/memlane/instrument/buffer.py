"""The trace buffer: one arena of fixed size that warps fill while their kernels run.

    +--------+---------+---------+---------+-- - -
    | header | slice 0 | slice 1 | slice 2 |
    +--------+---------+---------+---------+-- - -
             |
             +-- slice header, `capacity` records led by lane 0, `overflow` records led by other lanes

The module variable `memlane_trace` says where it is and what a warp has to know of it (`ENTRY_DTYPE`), all in one sector.

A launch that runs exactly once gets slices of its own from the host: the parameter `memlane_launch` (`LAUNCH_DTYPE`) says which is the
first, and a warp adds its number among those that are traced. So it waits for nothing. These slices, `assigned` of them, lie behind the
others. A launch that may run again (in a graph), or whose traced warps cannot be numbered by a few instructions, has none: its warps each
take a slice by an atomic addition to one of
`HEADS` counters, each alone in its line, chosen by the number of the warp: thousands of warps that begin at once would stand in line at a
single one. Counter k hands out the slices 1 + k, 1 + k + `HEADS`, ...; who finds one exhausted asks the next.

A slice for each warp and not for each block, because a block would have to agree on its slice through a barrier and a word of static shared
memory: both change what is measured, and lanes that leave early or blocks that use every byte of shared memory could not be traced. Slice 0
belongs to no warp: those that found all slices taken count their losses there, with the same instructions.

Inside its slice a warp needs no atomics as long as lane 0, which every warp has, is active: that lane numbers its records in a register.
Another lane that leads takes places behind those of lane 0 by the atomic counter `overflow` of the slice, a chunk at a time, and fills
them one by one; a place that nobody filled has no active lane. What finds no room each lane counts in its register and reports when it
leaves, so losses are exact (a lane that leads more than 2^31 accesses wraps).

Offsets in the generated PTX are taken from the dtypes below, nowhere else. All is little-endian, and must be zero before the header is
written; one memset does it.
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
"""Counters of slices."""

HEADER_DTYPE = np.dtype(
    {
        "names": ["magic", "version", "slice_bytes", "capacity", "overflow", "slices", "assigned", "homeless", "heads"],
        "formats": ["<u8", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", ("<u8", (HEADS, _LINE_BYTES // 8))],
        "offsets": [0, 8, 12, 16, 20, 24, 32, _LINE_BYTES, 2 * _LINE_BYTES],
        "itemsize": (2 + HEADS) * _LINE_BYTES,
    }
)
"""`capacity`, `overflow`: records of a slice. `slices`: those that warps ask for, without slice 0. `assigned`: those behind them that the
host gives to launches. `homeless`: warps that found none. `heads`: a row for each
counter, a line of memory long; its first word says how many slices were asked of it."""

ENTRY_DTYPE = np.dtype(
    [("buffer", "<u8"), *((name, "<u4") for name in ("slices", "slice_bytes", "capacity", "room", "record_bytes", "zero"))]
)
"""What `memlane_trace` holds: the address of the buffer, or 0 and nothing is recorded; the extents of its header, with `room` for the sum
of capacity and overflow; and 0, which the assembler cannot know: what depends on it stays in the program."""

LAUNCH_DTYPE = np.dtype([("tag", "<u4"), ("first", "<u4"), ("warps", "<u4")])
"""What the last parameter of a tagged kernel holds: the number that the host gave the launch; the first of the slices that are the
launch's own, 0 where it has none; the warps of a block."""

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
"""`tag`: the number that the host gave the launch, 0 where it gave none; `gridid`: the run of it, as the device numbers them. `block`:
linear index in the grid. `warp`: in its block. `kernel`: index among the kernels of the module.
`lanes`: those that exist. `capacity`: places of lane 0; `room`: capacity + overflow; both 0 in slice 0. `attempted`: records led by lane 0,
kept or not; `overflow`: places that other lanes asked for, `lost`: records that found none of them. The end is that of the last lane;
0 while the warp runs."""

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
"""One access, in one of two forms. Packed, as most are, it has the first five fields and no more: the lower 32 bits of `%clock64` at its
start and its end, the next 16 of its start, its site and its active lanes; an access of more than 2^32 cycles seems shorter by as much,
and so would a warp that lives longer than 2^48. The other form has the other six, with both times in full and the site plus 1 as `number`,
which is 0 in a packed one: `exposed` are the cycles that the first consumer waited, of schemes that record it; `execution` tells how often
the thread that led it had executed the site before, where the trace has a window of executions."""

HEADER_BYTES = HEADER_DTYPE.itemsize
SLICE_HEADER_BYTES = SLICE_DTYPE.itemsize
RECORD_BYTES = RECORD_DTYPE.itemsize


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The extents of a trace buffer."""

    slices: int
    """Warps that can ask for a slice; slice 0 comes on top."""
    capacity: int
    """Records of a slice that lane 0 leads."""
    overflow: int
    """Records of a slice that other lanes lead."""
    assigned: int = 0
    """Slices behind these that the host gives to launches."""

    @property
    def slice_bytes(self) -> int:
        used = SLICE_HEADER_BYTES + (self.capacity + self.overflow) * RECORD_BYTES
        return -(-used // _LINE_BYTES) * _LINE_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes to allocate, at a multiple of 128, and to clear."""
        return HEADER_BYTES + (1 + self.slices + self.assigned) * self.slice_bytes


def buffer_layout(warps: int, records_per_warp: int, overflow_per_warp: int | None = None, assigned: int = 0) -> BufferLayout:
    """The buffer for `warps` warps that ask for their slices, and with so many `assigned` slices, each with room for `records_per_warp`
    records led by lane 0 and `overflow_per_warp` led by another lane (as many again where nothing is said, because a kernel may well
    spare lane 0).

    Raises BadLaunch for extents that a buffer cannot have.
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
    """The first `HEADER_BYTES` bytes of a fresh buffer, or of one that so many warps have asked for a slice, each of the next counter."""
    header = np.zeros(1, HEADER_DTYPE)
    header["magic"] = MAGIC
    header["version"] = VERSION
    header["slice_bytes"] = layout.slice_bytes
    header["capacity"] = layout.capacity
    header["overflow"] = layout.overflow
    header["slices"] = layout.slices
    header["assigned"] = layout.assigned
    header["heads"][0, :, 0] = _shares(min(asked, layout.slices))
    header["homeless"] = max(0, asked - layout.slices)
    return header.view(np.uint8)


def entry(address: int, layout: BufferLayout) -> npt.NDArray[np.uint8]:
    """What `memlane_trace` must hold for kernels to fill the buffer of this layout at `address`."""
    words = np.zeros(1, ENTRY_DTYPE)
    extents = (layout.slices, layout.slice_bytes, layout.capacity, layout.capacity + layout.overflow, RECORD_BYTES, 0)
    words[0] = (address, *extents)
    return words.view(np.uint8)


NO_ENTRY = np.zeros(ENTRY_DTYPE.itemsize, np.uint8)
"""What it holds where nothing is to be recorded."""


def taken_slices(header: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The numbers of the slices that warps have taken, ascending, from the header of a buffer."""
    fields = header[:HEADER_BYTES].copy().view(HEADER_DTYPE)[0]
    slices = int(fields["slices"])
    counts = np.minimum(fields["heads"][:, 0], _shares(slices)).astype(np.int64)
    turn = np.arange(int(counts.max(initial=0)))
    rows, columns = np.nonzero(turn[:, np.newaxis] < counts)
    return 1 + rows * HEADS + columns


def homeless_warps(header: npt.NDArray[np.uint8]) -> int:
    """How many warps found no slice, from the header of a buffer."""
    return int(header[:HEADER_BYTES].copy().view(HEADER_DTYPE)[0]["homeless"])


def _shares(slices: int) -> npt.NDArray[np.uint64]:
    """How many of so many slices each counter hands out."""
    return ((slices + HEADS - 1 - np.arange(HEADS)) // HEADS).astype(np.uint64)


def offset(dtype: np.dtype[Any], field: str) -> int:
    """Byte offset of a field."""
    assert dtype.fields is not None
    return int(dtype.fields[field][1])
