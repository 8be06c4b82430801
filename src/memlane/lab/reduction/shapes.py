"""Choose how a reduction is launched: kernel, threads, loads in flight, blocks."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.chip import LANES, Chip
from memlane.lab.reduction.elements import Kind

TICKET, PACKED, CLUSTER = "TICKET", "PACKED", "CLUSTER"
"""Ways to combine the values of blocks: see `whole.cu`."""
MOST_SEGMENTS, SEGMENT_WORDS = 16384, 256
"""Segments of a reproducible reduction: at most so many, each a multiple of so many times 16 bytes."""


TURNS = 8
"""Iterations of a block of a large array. Blocks that do not fit start in order, so that concurrent reads are close together."""


@dataclass(frozen=True)
class Shape:
    """Launch parameters that do not change the result."""

    threads: int
    unroll: int
    """Loads of 16 bytes that a thread has in flight."""
    grid: int
    finish: str = TICKET
    hint: int = 1
    """Cache hint: see `load` in `values.cuh`."""

    def __post_init__(self) -> None:
        assert self.finish != CLUSTER or self.grid <= 8


def whole_shape(kind: Kind, n: int, chip: Chip, modelled: bool) -> Shape:
    """Return the shape for a whole array of n elements."""
    words = max(1, -(-n // kind.per_load))
    finish = PACKED if kind.element == "int32" and kind.op == "sum" else TICKET
    if modelled:  # little code, so that it compiles fast
        return Shape(128, 1, min(-(-words // 128), chip.sm_count), finish)
    if words <= 2048:
        return Shape(256, 8, 1)
    if finish == TICKET and words <= 1 << 16 and chip.compute_capability >= (9, 0):
        return Shape(512, 8, 8, CLUSTER)
    if words <= 1 << 18:
        return Shape(256, 4, -(-words // (256 * 4)), finish)
    if words <= 1 << 23:  # one wave: two blocks of each multiprocessor hold 16 KiB of loads each
        return Shape(512, 8, min(-(-words // (512 * 8)), 2 * chip.sm_count), finish)
    return Shape(512, 4, -(-words // (512 * 4 * TURNS)), finish)


def fixed_shape(kind: Kind, n: int, chip: Chip, modelled: bool) -> Shape:
    """Return the shape for a reproducible reduction, whose result does not depend on it."""
    segments = -(-max(1, -(-n // kind.per_load)) // segment_words(kind, n))
    threads = 128 if modelled else 256
    return Shape(threads, 1 if modelled else 8, min(-(-segments * LANES // threads), chip.sm_count * (1 if modelled else 4)))


def segment_words(kind: Kind, n: int) -> int:
    """Return the loads of 16 bytes in a segment, by the number of elements alone."""
    words = max(1, -(-n // kind.per_load))
    return SEGMENT_WORDS * -(-words // (SEGMENT_WORDS * MOST_SEGMENTS))


@dataclass(frozen=True)
class RowShape:
    """Launch parameters for the last axis."""

    threads: int
    unroll: int
    lanes: int
    """Threads of a row: a warp or the block."""
    grid: int


def row_shape(kind: Kind, outer: int, length: int, chip: Chip, modelled: bool) -> RowShape:
    words = max(1, length // kind.per_load)
    threads, unroll = (128, 1) if modelled else (256, 4)
    lanes = LANES if words <= 512 else threads
    return RowShape(threads, unroll, lanes, max(1, min(-(-outer * lanes // threads), 1 << 20)))


@dataclass(frozen=True)
class ColumnShape:
    """Launch parameters for any other axis."""

    threads: int
    unroll: int
    wide: int
    """Adjacent columns of a thread: those in 16 bytes, or one."""
    across: int
    """Groups of 32 threads' columns, in all planes."""
    splits: int
    """Blocks that share the rows of a column."""


def column_shape(kind: Kind, outer: int, length: int, inner: int, aligned: bool, chip: Chip, modelled: bool) -> ColumnShape:
    wide = kind.per_load if aligned and inner % kind.per_load == 0 else 1
    threads, unroll = (128, 1) if modelled else (256, 4)
    across = outer * -(-inner // (LANES * wide))
    turns = -(-length // (threads // LANES * unroll))
    splits = max(1, min(turns, 65535, (2 if modelled else 16) * chip.sm_count // max(1, across)))
    return ColumnShape(threads, unroll, wide, across, splits)
