"""The state of the clock layer's caches: arrays that generated code works on (`clock.caches`), with what moved between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import Chip
from memlane.emulate.clock.queues import BUSY_PARTS, Queues
from memlane.emulate.layout import HOST_LINE_BYTES

LEAST_WAYS, MOST_WAYS = 16, 32
"""Ways of a set: of L1 at least, on average, and of any set at most."""

TRAFFIC = ("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "partly_written_bytes", "atomic")
"""What goes between a multiprocessor and L2, counted in the level of its L1: sectors `read` past or through L1; `written` whole, and
`partly_written`, of which a request writes fewer than all bytes; with `atomic` operations. `_lines`: the lines that these are in, counted
anew in each request; those where some sector is written in part are `partly_written_lines`, and the bytes that requests write to these
lines `partly_written_bytes`."""
FAR = ("fetched", "fetched_pairs", "allocated", "allocated_pairs", "written_back", "hottest")
"""What is counted in the level of L2: sectors that came from DRAM, and the aligned pairs of sectors that these are in where the other one
was not there already; those that stores brought in without a fetch, and their pairs; those that went to DRAM when their line made room for
another one; and the most sectors of requests that had atomic operations in one line."""

SET = np.dtype([("marks", "u1", MOST_WAYS), ("ages", "u1", MOST_WAYS)])
"""One set of a cache, which fills one line of the host's cache. `marks` holds a byte of each line's number, or 0 where no line is: a search
compares the numbers of those lines alone whose mark fits. `ages` counts how many other lines of the set were used since each line was: 0
for the one used last, and `NO_WAY` where the set has no such way."""
NO_WAY = 0xFF
LINE_WORDS = 4
"""A line has this many words, or one for each sector if these are more."""
ARRIVAL_BITS, DIRTY_BIT = 48, 47
PRESENT = (1 << ARRIVAL_BITS) - 1
DIRTY = 1 << DIRTY_BIT
"""The parts of a line's word. In the lower `ARRIVAL_BITS`: the cycle in which a sector arrives + 1, or 0 where it is absent; in L2 with
`DIRTY` where it was stored to. Above, in each of the first `LINE_WORDS` words, 16 bits of the line's number + 1, the lowest ones first."""

LEVEL = np.dtype(
    [
        ("sets", "u8"),
        ("lines", "u8"),
        ("set_mask", "u8"),
        ("set_bits", "u8"),
        ("way_bytes", "u8"),
        ("atomics", "u8"),
        ("atomic_busy", "u8"),
        ("queues", "u8"),
        ("delay", "u8"),
        ("part_sectors", "u8"),
        ("part_bytes", "u8"),
        *((name, "u8") for name in (*TRAFFIC, *FAR)),
    ]
)
"""One cache. `sets` points to its `SET`s; `lines` to u64[ways, sets, words], the lines that these hold, `way_bytes` from way to way: so
neighbouring lines that come one after the other lie side by side in the host's memory too. `atomics`, of L2, points to u64[ways, sets, 2]:
of requests of this launch with atomic operations in the line, their sectors, and for how many `BUSY_PARTS` of a clock they keep a part of
L2 busy; null of an L1. `atomic_busy` is the sum of the latter over all lines.
`queues`, of L2, points to the queues of a launch; `delay` is for how long the last fetch from DRAM waited there. `part_sectors` are those
that stores brought in which wrote parts of them, and `part_bytes` what such stores wrote."""

LEAST_FAR_WAYS, UNEVEN = 12, 0.1
"""Ways of a set of L2, at least, on average; and the standard deviation over sets, as a share of that, by `streams` in
benchmarks/results/h200/predict_calibration.json: what is kept of memory that is a little larger than L2, or a little smaller."""
PAIR_LINES, BLOCK_LINES = 2, 8
"""Neighbouring lines whose atomic operations one part of L2 does, and those that two parts do: one the pairs 0 and 3 of a block, the other
1 and 2, by `atomic ladder` in benchmarks/results/h200/predict_calibration.json."""

CACHES = np.dtype([("l1", "u8"), ("l2", "u8"), ("queues", "u8")])
"""Pointers to the first of the `LEVEL`s of the multiprocessors, to that of L2, and to the queues in front of it and behind."""


class Level:
    """`count` equal caches of `nbytes` each, empty; one of them where it `is_far`, as L2 is."""

    def __init__(self, chip: Chip, nbytes: int, count: int = 1, is_far: bool = False) -> None:
        lines = max(1, nbytes // chip.line_bytes)
        least = LEAST_FAR_WAYS if is_far else LEAST_WAYS
        self.sets = 1 << max(0, (lines // least).bit_length() - 1)
        self.ways = _ways(lines, self.sets, UNEVEN if is_far else 0.0)
        """Of each set."""
        shape = (count, int(self.ways.max()), self.sets, line_words(chip.line_bytes // chip.sector_bytes))
        self._sets, self._lines = _zeros(((count, self.sets), SET), (shape, np.dtype(np.uint64)))
        self._sets["ages"] = _ages(self.ways)
        self._atomics = np.zeros((*shape[:3], 2) if is_far else 0, np.uint64)
        self.records = np.zeros(count, LEVEL)
        self.records["set_mask"] = self.sets - 1
        self.records["set_bits"] = max(1, self.sets.bit_length() - 1)
        self.records["way_bytes"] = self._lines.strides[1]
        for name, array in (("sets", self._sets), ("lines", self._lines)):
            self.records[name] = array.ctypes.data + array.strides[0] * np.arange(count, dtype=np.uint64)
        if is_far:
            self.records["atomics"] = self._atomics.ctypes.data

    @property
    def lines(self) -> int:
        """Lines that are there."""
        return int(np.count_nonzero(self._sets["marks"]))

    @property
    def dirty_share(self) -> float:
        """Of the lines that are there, those that were stored to."""
        dirty = (self._lines & np.uint64(DIRTY) != 0).any(axis=-1)
        return float(np.count_nonzero(dirty)) / max(1, self.lines)

    def atomic_cycles(self) -> tuple[float, float]:
        """Return for how long the atomic operations of the busiest lines keep their part of L2 busy, and for how long those of the launch
        would keep one part busy that did them all."""
        total = float(self.records["atomic_busy"].sum()) / BUSY_PARTS
        if not total:
            return 0.0, 0.0
        busy = self._atomics[..., 1]
        touched = busy > 0
        lines = _numbers(self._lines[touched])
        pairs = lines // np.uint64(PAIR_LINES)
        halves = lines // np.uint64(BLOCK_LINES) * np.uint64(2) + ((pairs ^ pairs >> np.uint64(1)) & np.uint64(1))
        _, places = np.unique(halves, return_inverse=True)
        return float(np.bincount(places, busy[touched]).max(initial=0.0)) / BUSY_PARTS, total

    def begin_launch(self) -> None:
        """Count from 0 what moves from now on."""
        if self.records["hottest"].any():
            self._atomics[:] = 0
        for name in (*TRAFFIC, *FAR, "atomic_busy", "part_sectors", "part_bytes"):
            self.records[name] = 0


def _ways(lines: int, sets: int, uneven: float) -> npt.NDArray[np.uint64]:
    """How many of so many lines each set has: as many on average, the same in every run."""
    each = lines / sets
    if not uneven:
        return np.full(sets, lines // sets, np.uint64)
    draw = np.random.default_rng(sets)
    wanted = each * (1 + uneven * draw.standard_normal(sets)) + draw.random(sets)  # the fraction decides by chance
    return np.clip(np.floor(wanted), 1, MOST_WAYS).astype(np.uint64)


def _ages(ways: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """The ages of sets that hold nothing yet: their first way is the next to be taken."""
    ages = ways[:, None].astype(np.int64) - 1 - np.arange(MOST_WAYS)
    return np.where(ages < 0, NO_WAY, ages).astype(np.uint8)


def _numbers(lines: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The numbers of lines, given their words."""
    parts = lines[:, :LINE_WORDS] >> np.uint64(ARRIVAL_BITS)
    shifts = (64 - ARRIVAL_BITS) * np.arange(LINE_WORDS, dtype=np.uint64)
    return np.asarray(np.bitwise_or.reduce(parts << shifts, axis=1) - np.uint64(1), np.uint64)


def _zeros(*arrays: tuple[tuple[int, ...], np.dtype[Any]]) -> list[npt.NDArray[Any]]:
    """Return arrays of zeros in one piece of memory, which then is large enough for large pages of the host. Each begins with a line of the
    host's cache, so that no set and no line is spread over more of these than it has to."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in arrays]
    starts = np.cumsum([0, *(size + -size % HOST_LINE_BYTES for size in sizes)])
    memory = np.zeros(starts[-1] + HOST_LINE_BYTES, np.uint8)
    memory = memory[-memory.ctypes.data % HOST_LINE_BYTES :]
    parts = zip(starts, sizes, arrays, strict=False)
    return [memory[start : start + size].view(dtype).reshape(shape) for start, size, (shape, dtype) in parts]


def line_words(sectors: int) -> int:
    """Return how many words a line of so many sectors has."""
    return max(LINE_WORDS, sectors)


@dataclass(frozen=True, eq=False)
class Caches:
    """The caches of one launch: fresh L1s, and an L2 that may outlive it. `address` is what generated code gets; keep the object
    meanwhile."""

    chip: Chip
    sm_count: int
    shared_bytes: int = 0
    """Shared memory that the resident blocks of a multiprocessor take from L1 where both are one."""
    l2: Level | None = None
    share: float = 1.0
    """Of the chip's multiprocessors that these are, of what they pass to L2."""
    base: int = 0
    """The cycle in which the launch begins."""
    l1: Level = field(init=False)
    queues: Queues = field(init=False)
    record: npt.NDArray[Any] = field(init=False)

    def __post_init__(self) -> None:
        l2 = self.l2 or Level(self.chip, self.chip.l2_bytes, is_far=True)
        l1 = Level(self.chip, l1_bytes(self.chip, self.shared_bytes), self.sm_count)
        record = np.zeros(1, CACHES)
        queues = Queues(self.chip, self.share, self.base)
        record["l1"], record["l2"], record["queues"] = l1.records.ctypes.data, l2.records.ctypes.data, queues.address
        l2.records["queues"], l2.records["delay"] = queues.address, 0
        for name, value in (("l1", l1), ("l2", l2), ("queues", queues), ("record", record)):
            object.__setattr__(self, name, value)

    @property
    def address(self) -> int:
        return int(self.record.ctypes.data)


def l1_bytes(chip: Chip, shared_bytes: int) -> int:
    """What shared memory leaves to the first-level cache; all of it where shared memory is apart (older chips)."""
    if chip.l1_bytes <= chip.shared_bytes_per_sm:
        return chip.l1_bytes
    return chip.l1_bytes - min(shared_bytes, chip.shared_bytes_per_sm)
