"""Decode the trace buffer into rows: the warps that ran, the accesses that they recorded, and the number of dropped records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import RecordError
from memlane.instrument.buffer import (
    HEADER_BYTES,
    HEADER_DTYPE,
    MAGIC,
    RECORD_BYTES,
    RECORD_DTYPE,
    SLICE_DTYPE,
    SLICE_HEADER_BYTES,
    VERSION,
    BufferLayout,
    taken_slices,
    warps_without_slice,
)
from memlane.number_format import plural

_START_MASK, _END_MASK = (1 << 48) - 1, (1 << 32) - 1
"""Masks of the bits of the start and the end that a packed record keeps."""
Rows = npt.NDArray[Any]
Places = npt.NDArray[np.int64]

WARP_DTYPE = np.dtype(
    [
        ("tag", "u4"),
        ("gridid", "u8"),
        ("kernel", "u4"),
        ("block", "u4"),
        ("warp", "u2"),
        ("sm", "u2"),
        ("lanes", "u4"),
        ("begin_cycles", "i8"),
        ("end_cycles", "i8"),
        ("begin_ns", "i8"),
        ("end_ns", "i8"),
        ("kept", "u4"),
        ("lost", "u8"),
    ]
)
"""One row per traced warp, in the order in which they started: as `memlane.record.WARP_DTYPE`, but with the tag of the launch, the
`%gridid` of its run instead of the run's number, the index of its kernel, and the mask of the lanes that exist."""

ACCESS_DTYPE = np.dtype(
    [
        ("gridid", "u8"),
        ("block", "u4"),
        ("warp", "u2"),
        ("sm", "u2"),
        ("site", "u4"),
        ("active_mask", "u4"),
        ("execution", "u4"),
        ("exposed", "u4"),
        ("start", "i8"),
        ("end", "i8"),
        ("slice", "u4"),
    ]
)
"""One row per record, ordered by warp and then by start. `execution`: n-th recorded access of the warp at the site, from 0; if records are
numbered, how often the leader had executed the site before. `exposed`: cycles that the first consumer waited, 0 for schemes that do not
record it. `slice`: index of the warp among the warps."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """Contents of a trace buffer."""

    records: Rows = field(repr=False)
    """Records, one row of `ACCESS_DTYPE` each."""
    warps: Rows = field(repr=False)
    """Traced warps, one row of `WARP_DTYPE` each, without those that found no slice."""
    warps_without_slice: int
    """Warps that found no slice."""
    dropped_without_slice: int
    """Records that these warps dropped."""
    unfinished: int
    """Warps that had not exited their kernel. Their records are decoded; the number that they dropped is unknown."""

    @property
    def lost(self) -> int:
        """Number of dropped records, of warps with and without a slice."""
        return int(self.warps["lost"].sum()) + self.dropped_without_slice


def decode(buffer: npt.NDArray[np.uint8], numbered: bool = False) -> Decoded:
    """Decode a buffer (bytes) after the launches that wrote it have ended.

    `numbered`: records hold the execution number of their site, because only a window of executions was recorded. Raises RecordError if the
    bytes are not a trace buffer of this version, or are fewer than its header requires.
    """
    buffer = np.ascontiguousarray(buffer).view(np.uint8).reshape(-1)
    layout = _read_header(buffer)
    slices = buffer[HEADER_BYTES : layout.nbytes].reshape(1 + layout.slices + layout.assigned, layout.slice_bytes)
    spill = slices[0, :SLICE_HEADER_BYTES].copy().view(SLICE_DTYPE)[0]
    slices = _taken(slices, np.concatenate([taken_slices(buffer), _assigned(slices, layout)]))
    headers = slices[:, :SLICE_HEADER_BYTES].copy().view(SLICE_DTYPE).reshape(-1)
    _count_unfinished(slices, headers, layout)
    led = np.minimum(headers["attempted"], layout.capacity).astype(np.int64)
    others = _filled_by_others(slices, headers, layout)
    warps = _warps(headers, led, led + np.bincount(others[0], minlength=len(headers)))
    return Decoded(
        records=_records(slices, warps, led, others, layout, numbered),
        warps=warps,
        warps_without_slice=warps_without_slice(buffer),
        dropped_without_slice=int(spill["attempted"] + spill["lost"]),
        unfinished=int((headers["end_cycles"] == 0).sum()),
    )


def filled(places: Rows) -> npt.NDArray[np.bool_]:
    """Return which of the places hold a record, in either form."""
    result: npt.NDArray[np.bool_] = (places["packed_mask"] | places["number"]) != 0
    return result


def records_written(places: Rows) -> int:
    """Return the number of records at the beginning of a slice that was empty: lane 0 writes that number only when it exits the kernel."""
    empty = np.flatnonzero(~filled(places))
    return int(empty[0]) if len(empty) else len(places)


def _count_unfinished(slices: npt.NDArray[np.uint8], headers: Rows, layout: BufferLayout) -> None:
    """Fill in `attempted` for warps that have not yet stored how many records lane 0 led."""
    if not layout.capacity or not len(headers):
        return
    places = _places(slices, layout)
    for number in np.flatnonzero((headers["attempted"] == 0) & filled(places[:, 0])).tolist():
        headers["attempted"][number] = records_written(places[number, : layout.capacity])


def _filled_by_others(slices: npt.NDArray[np.uint8], headers: Rows, layout: BufferLayout) -> tuple[Places, Places]:
    """Return the row of the warp and the place of each record led by a lane other than 0: the filled ones of the reserved places."""
    handed_out = np.minimum(headers["overflow"], layout.overflow).astype(np.int64)
    row, place = np.repeat(np.arange(len(headers)), handed_out), layout.capacity + _counting(handed_out)
    there = filled(_places(slices, layout)[row, place])
    return row[there], place[there]


def _places(slices: npt.NDArray[np.uint8], layout: BufferLayout) -> Rows:
    """Return the records of each slice."""
    used = slices[:, SLICE_HEADER_BYTES : SLICE_HEADER_BYTES + (layout.capacity + layout.overflow) * RECORD_BYTES]
    return used.view(RECORD_DTYPE)


def _read_header(buffer: npt.NDArray[np.uint8]) -> BufferLayout:
    """Return the layout from the header of a buffer. Raises RecordError if it is not a trace buffer, of another version, or damaged."""
    if len(buffer) < HEADER_BYTES:
        raise RecordError(f"{plural(len(buffer), 'byte')} are not a trace buffer: its header alone has {HEADER_BYTES}")
    header = buffer[:HEADER_BYTES].copy().view(HEADER_DTYPE)[0]
    if int(header["magic"]) != MAGIC:
        raise RecordError(f"this is not a trace buffer: it begins with {int(header['magic']):#018x}, not {MAGIC:#018x}")
    if int(header["version"]) != VERSION:
        raise RecordError(f"this trace buffer has version {int(header['version'])}; this memlane reads version {VERSION}")
    layout = BufferLayout(*(int(header[name]) for name in ("slices", "capacity", "overflow", "assigned")))
    if int(header["slice_bytes"]) != layout.slice_bytes or len(buffer) < layout.nbytes:
        raise RecordError(
            f"this trace buffer is damaged: its header describes {layout.slices + layout.assigned} slices of {layout.capacity} + "
            f"{plural(layout.overflow, 'record')}, which take {plural(layout.nbytes, 'byte')}, but it has {len(buffer)}; its slices "
            f"have {plural(int(header['slice_bytes']), 'byte')} instead of {layout.slice_bytes}"
        )
    return layout


def _assigned(slices: npt.NDArray[np.uint8], layout: BufferLayout) -> Places:
    """Return the numbers of the assigned slices whose warps have started, which have written their mask of lanes."""
    headers = slices[1 + layout.slices :, :SLICE_HEADER_BYTES].copy().view(SLICE_DTYPE).reshape(-1)
    return 1 + layout.slices + np.flatnonzero(headers["lanes"])


def _taken(slices: npt.NDArray[np.uint8], numbers: Places) -> npt.NDArray[np.uint8]:
    """Return the slices with these numbers, as a view if the numbers are consecutive."""
    if not len(numbers) or int(numbers[-1]) - int(numbers[0]) + 1 != len(numbers):
        return slices[numbers]
    return slices[int(numbers[0]) : int(numbers[-1]) + 1]


def _warps(headers: Rows, led: npt.NDArray[np.int64], kept: npt.NDArray[np.int64]) -> Rows:
    """Return one row per warp. Raises RecordError for a grid of more than 2^32 blocks."""
    if len(headers) and int(headers["block"].max()) >= 1 << 32:
        raise RecordError("a traced grid has more than 2^32 blocks, which records cannot number")
    warps = np.zeros(len(headers), WARP_DTYPE)
    for name in WARP_DTYPE.names or ():
        if name not in ("kept", "lost"):
            warps[name] = headers[name]
    warps["kept"] = kept
    warps["lost"] = headers["attempted"] - led.astype(np.uint64) + headers["lost"]
    return warps


def _records(
    slices: npt.NDArray[np.uint8],
    warps: Rows,
    led: npt.NDArray[np.int64],
    others: tuple[Places, Places],
    layout: BufferLayout,
    numbered: bool,
) -> Rows:
    """Return the kept records, ordered by warp and start."""
    places = _places(slices, layout)
    row = np.concatenate([np.repeat(np.arange(len(led)), led), others[0]])
    place = np.concatenate([_counting(led), others[1]])
    raw = places[row, place]
    records = np.zeros(len(raw), ACCESS_DTYPE)
    for name in ("gridid", "block", "warp", "sm"):
        records[name] = warps[name][row]
    packed = raw["number"] == 0
    for name in ("exposed", "execution"):
        records[name] = raw[name]
    records["active_mask"] = np.where(packed, raw["packed_mask"], raw["active_mask"])
    records["site"] = np.where(packed, raw["site"], raw["number"] - np.uint32(1))
    start, end = _times(raw, warps["begin_cycles"][row])
    records["start"] = np.where(packed, start, raw["start"].astype(np.int64))
    records["end"] = np.where(packed, end, raw["end"].astype(np.int64))
    records["slice"] = row
    if not _ascend(row, records["start"]):
        records = records[_by_row_and_start(row, records["start"])]
    if not numbered:
        records["execution"] = _executions(records["slice"], records["site"])
    return records


def _times(raw: Rows, begin: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return start and end of packed records in full: an access starts after its warp, and ends after it starts."""
    low = raw["start_low"].astype(np.int64) | raw["start_high"].astype(np.int64) << 32
    start = begin + (low - begin & _START_MASK)
    return start, start + (raw["end_low"].astype(np.int64) - low & _END_MASK)


def _counting(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1, ... up to each length, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _ascend(row: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> bool:
    """Return whether the rows ascend, and the starts within each row.

    Records led by other lanes than 0 come after those of lane 0; a staged record takes its place late, and a deferred window is recorded
    when it closes.
    """
    return bool(((row[1:] > row[:-1]) | (row[1:] == row[:-1]) & (start[1:] >= start[:-1])).all())


def _by_row_and_start(row: npt.NDArray[np.int64], start: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the order by row, then start, by one 64-bit key if it fits: the records of lane 0 and those of other lanes are two ascending
    runs of it, which a stable sort merges in linear time."""
    first = int(start.min())
    span = int(start.max()) - first + 1
    if span * (int(row.max()) + 1) < 1 << 63:
        return np.argsort(row * span + (start - first), kind="stable")
    return np.lexsort((start, row))


def _executions(row: npt.NDArray[Any], site: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return for each record the number of earlier records with the same row and site; the rows ascend."""
    executions = np.empty(len(row), np.int64)
    if len(row):
        narrow = site.astype(np.uint16) if int(site.max()) < 1 << 16 else site
        order = np.argsort(narrow, kind="stable")
        by_site, by_row = site[order], row[order]
        fresh = np.flatnonzero((by_site[1:] != by_site[:-1]) | (by_row[1:] != by_row[:-1])) + 1
        executions[order] = _counting(np.diff(np.concatenate([[0], fresh, [len(row)]])))
    return executions
