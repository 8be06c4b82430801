"""Hold the state of the clock layer's caches: arrays that generated code reads and writes (`caches`), with counters of the traffic."""

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
"""Fewest ways of a set of L1 on average, and most ways of any set."""

TRAFFIC = ("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "partly_written_bytes", "atomic")
"""Counters of the traffic between a multiprocessor and L2, kept in the `LEVEL` of its L1.

Sectors: `read` from L2 (misses of L1, and loads past it); `written` whole; `partly_written`, where a request writes only some of the bytes;
`atomic`, with atomic operations. `_lines` counts the lines of these sectors, once per request; a line with a partly written sector counts
in `partly_written_lines` only, and `partly_written_bytes` are the bytes that requests write to such lines."""
FAR = ("fetched", "fetched_pairs", "allocated", "allocated_pairs", "written_back", "hottest")
"""Counters of the `LEVEL` of L2.

`fetched`: sectors from DRAM, and in `fetched_pairs` the aligned pairs of sectors whose other sector was absent; `allocated`,
`allocated_pairs`: likewise for sectors that stores brought in without a fetch; `written_back`: dirty sectors of evicted lines; `hottest`:
sectors of requests with atomic operations in the line that has the most of them."""

SET = np.dtype([("marks", "u1", MOST_WAYS), ("ages", "u1", MOST_WAYS)])
"""One set of a cache, which fills one line of the host's cache.

`marks` holds for each way a byte of the tag, or 0 where the way is empty: a search compares whole tags only where the mark matches. `ages`
is the LRU order: the number of other lines of the set that were used since the line was, 0 for the most recent, `NO_WAY` where the set has
no such way."""
NO_WAY = 0xFF
LINE_WORDS = 4
"""Fewest words of a line; a line with more sectors has one word for each sector."""
ARRIVAL_BITS, DIRTY_BIT = 48, 47
PRESENT = (1 << ARRIVAL_BITS) - 1
DIRTY = 1 << DIRTY_BIT
"""Fields of a word of a line.

The lower `ARRIVAL_BITS` hold the cycle in which the sector arrives + 1, or 0 where it is absent; in L2 with `DIRTY` set if the sector was
stored to. Above them, each of the first `LINE_WORDS` words holds 16 bits of the tag (the line's number + 1), the lowest bits first."""

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
"""Record of one cache.

- `sets` points to its `SET`s; `lines` to u64[ways, sets, words], with `way_bytes` from one way to the next, so that neighbouring lines lie
  side by side in the host's memory too.
- `atomics` (null in an L1) points to u64[ways, sets, 2]: for requests of this launch with atomic operations in the line, the number of
  their sectors, and the time for which they keep a part of L2 busy, in units of 1 / `BUSY_PARTS` clocks. `atomic_busy` sums that time over
  all lines, scaled by `Rule.spread`.
- `queues` (L2 only) points to the queues of the launch; `delay` is the number of cycles that the last fetch from DRAM waited there.
- `part_sectors` counts the sectors that partial stores brought in; `part_bytes` the bytes that such stores wrote."""

LEAST_FAR_WAYS, MEAN_EXCESS = 8, math.sqrt(2 / math.pi)
"""Fewest ways of a set of L2 on average, and the mean of the absolute value of a standard normal variable."""
SET_FACTOR = 0x9E3779B97F4A7C15
"""Factor of the upper bits of a line's number, of whose product the highest bits choose its set of L2: 2^64 over the golden ratio."""
EXCESS_READ, EXCESS_WRITTEN = 0.09, 0.46
"""Scale of what sets of L2 hold above the least that each holds, as a share of that: for lines that are only read, and written ones.

No set holds much less than the average: lines that are only read all stay up to 0.93 of L2, and above that are lost little by little.
Fitted to `what L2 keeps`, `streams` and `loops` in predict_calibration.json of benchmarks/results/h100 and benchmarks/results/h200."""
PAIR_LINES, BLOCK_LINES = 2, 8
"""Neighbouring lines whose atomic operations the same part of L2 executes, and the lines of a block that two parts share.

One part executes the pairs 0 and 3 of a block, the other 1 and 2, by `atomic ladder` in
benchmarks/results/h200/predict_calibration.json."""

CACHES = np.dtype([("l1", "u8"), ("l2", "u8"), ("queues", "u8")])
"""Pointers to the first `LEVEL` of the multiprocessors' L1s, to the `LEVEL` of L2, and to the queues of the launch."""


class Level:
    """`count` equal, empty caches of `nbytes` each; `is_far` marks the L2, whose sets have unequal numbers of ways."""

    def __init__(self, chip: Chip, nbytes: int, count: int = 1, is_far: bool = False, sample: Level | None = None) -> None:
        """Create the caches. `sample`: an L2 with the lines of a sample of a launch's blocks, whose share of the chip's L2 this one is.

        All blocks together touch all sets about equally. A sample does not, so each of its sets is as large as its share of the lines."""
        lines = max(1, nbytes // chip.line_bytes)
        least = LEAST_FAR_WAYS if is_far else LEAST_WAYS
        self.sets = 1 << max(0, (lines // least).bit_length() - 1)
        self.ways = _far_ways(lines, self.sets, sample) if is_far else np.full(self.sets, lines // self.sets, np.uint64)
        """Ways of each set."""
        shape = (count, int(self.ways.max()), self.sets, line_words(chip.line_bytes // chip.sector_bytes))
        self._sets, self._lines = _zeros(((count, self.sets), SET), (shape, np.dtype(np.uint64)))
        self._sets["ages"] = _ages(self.ways)
        self._atomics = np.zeros((*shape[:3], 2) if is_far else 0, np.uint64)
        self.records = np.zeros(count, LEVEL)
        self.records["set_mask"] = self.sets - 1
        self.records["set_bits"] = _set_bits(self.sets)
        self.records["way_bytes"] = self._lines.strides[1]
        for name, array in (("sets", self._sets), ("lines", self._lines)):
            self.records[name] = array.ctypes.data + array.strides[0] * np.arange(count, dtype=np.uint64)
        if is_far:
            self.records["atomics"] = self._atomics.ctypes.data

    @property
    def lines(self) -> int:
        """Return the number of lines present, in all caches together."""
        return int(np.count_nonzero(self._sets["marks"]))

    @property
    def present(self) -> npt.NDArray[np.uint64]:
        """Return the numbers of the lines present."""
        marks = np.moveaxis(self._sets["marks"], -1, 1)[:, : self._lines.shape[1]]
        return _numbers(self._lines[marks != 0])

    @property
    def dirty_share(self) -> float:
        """Return the share of the lines present that are dirty, 0 if there are none."""
        dirty = (self._lines & np.uint64(DIRTY) != 0).any(axis=-1)
        return float(np.count_nonzero(dirty)) / max(1, self.lines)

    def atomic_cycles(self) -> tuple[float, float]:
        """Return two times in cycles, both 0 without timed atomics.

        The first is the time for which the atomic operations of the busiest group of lines that share a part of L2 keep it busy; the
        second the time for which all those of the launch would keep one part busy."""
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
        """Reset the traffic counters and the counts of atomic operations."""
        if self.records["hottest"].any():
            self._atomics[:] = 0
        for name in (*TRAFFIC, *FAR, "atomic_busy", "part_sectors", "part_bytes"):
            self.records[name] = 0


def _far_ways(lines: int, sets: int, sample: Level | None) -> npt.NDArray[np.uint64]:
    """Return the number of ways of each set of an L2 of `lines` lines; same in every run."""
    each, excess = np.full(sets, lines / sets), EXCESS_READ
    if sample is not None and sample.lines:
        each = np.bincount(set_numbers(sample.present, sets), minlength=sets) * (lines / sample.lines)
        excess += (EXCESS_WRITTEN - EXCESS_READ) * sample.dirty_share
    draw = np.random.default_rng(sets)
    unequal = (1 + excess * np.abs(draw.standard_normal(sets))) / (1 + excess * MEAN_EXCESS)
    wanted = each * unequal + draw.random(sets)  # the fraction decides by chance
    return np.clip(np.floor(wanted), 1, MOST_WAYS).astype(np.uint64)


def set_numbers(lines: npt.NDArray[np.uint64], sets: int) -> npt.NDArray[np.uint64]:
    """Return the set of each line in an L2, as generated code computes it (`places.Sets`)."""
    bits = _set_bits(sets)
    mixed = (lines >> np.uint64(bits)) * np.uint64(SET_FACTOR) >> np.uint64(64 - bits)
    return np.asarray((lines ^ mixed) & np.uint64(sets - 1), np.uint64)


def _set_bits(sets: int) -> int:
    """Return the number of bits of a set's number, at least 1."""
    return max(1, sets.bit_length() - 1)


def _ages(ways: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the ages of empty sets: the first way is the oldest, so it is filled first."""
    ages = ways[:, None].astype(np.int64) - 1 - np.arange(MOST_WAYS)
    return np.where(ages < 0, NO_WAY, ages).astype(np.uint8)


def _numbers(lines: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Decode the numbers of lines from their words."""
    parts = lines[:, :LINE_WORDS] >> np.uint64(ARRIVAL_BITS)
    shifts = (64 - ARRIVAL_BITS) * np.arange(LINE_WORDS, dtype=np.uint64)
    return np.asarray(np.bitwise_or.reduce(parts << shifts, axis=1) - np.uint64(1), np.uint64)


def _zeros(*arrays: tuple[tuple[int, ...], np.dtype[Any]]) -> list[npt.NDArray[Any]]:
    """Allocate arrays of zeros in one block of memory, which is then large enough for the host's large pages.

    Each array is aligned to a line of the host's cache, so that no set or line straddles more of these than it must."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in arrays]
    starts = np.cumsum([0, *(size + -size % HOST_LINE_BYTES for size in sizes)])
    memory = np.zeros(starts[-1] + HOST_LINE_BYTES, np.uint8)
    memory = memory[-memory.ctypes.data % HOST_LINE_BYTES :]
    parts = zip(starts, sizes, arrays, strict=False)
    return [memory[start : start + size].view(dtype).reshape(shape) for start, size, (shape, dtype) in parts]


def line_words(sectors: int) -> int:
    """Return the number of words of a line with `sectors` sectors."""
    return max(LINE_WORDS, sectors)


@dataclass(frozen=True, eq=False)
class Caches:
    """Caches of one launch: fresh L1s, and an L2 that may outlive the launch.

    Generated code gets `address`; keep the object alive while such code may run."""

    chip: Chip
    sm_count: int
    shared_bytes: int = 0
    """Bytes of shared memory of the resident blocks of a multiprocessor, taken from L1 where both share one memory."""
    l2: Level | None = None
    share: float = 1.0
    """Simulated share of the chip's multiprocessors, which get the same share of the rates of L2 and DRAM."""
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
    """Return the bytes that shared memory leaves to L1; all of L1 where shared memory is separate (older chips)."""
    if chip.l1_bytes <= chip.shared_bytes_per_sm:
        return chip.l1_bytes
    return chip.l1_bytes - min(shared_bytes, chip.shared_bytes_per_sm)
