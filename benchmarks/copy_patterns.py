"""Patterns of addresses of `cp.async`: where each lane of a warp reads in global memory, and where it writes in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALL = 0xFFFFFFFF
ROW_BYTES = 128
"""Of shared memory, all banks; and a line of global memory."""
LANE = np.arange(32)

Offsets = npt.NDArray[np.int64]
Places = Callable[[int], Offsets]
"""Byte offsets of the lanes, by the bytes that each copies."""


@dataclass(frozen=True)
class CopyPattern:
    """One request."""

    name: str
    shared: Places
    far: Places
    """In global memory."""
    mask: int = ALL
    """The lanes that execute it."""
    reads: int = ALL
    """The lanes that read; the others fill what they copy with zeros."""

    def table(self, nbytes: int) -> npt.NDArray[np.uint32]:
        """uint32[3, 32]: offsets in shared and in global memory, and whether the lane reads."""
        return np.stack([self.shared(nbytes), self.far(nbytes), self.reads >> LANE & 1]).astype(np.uint32)


def strided(step: int) -> Places:
    """Copies `step` copies apart."""
    return lambda nbytes: LANE * nbytes * step


def rows_apart(lanes: int, far: int) -> Places:
    """So many lanes side by side, then the next row, `far` bytes behind."""
    return lambda nbytes: LANE // lanes * far + LANE % lanes * nbytes


def alternating(lines: int, far: int) -> Places:
    """Lane i in line i % lines, these `far` bytes apart."""
    return lambda nbytes: LANE % lines * far + LANE // lines * nbytes


def shifted(places: Places, copies: int) -> Places:
    return lambda nbytes: places(nbytes) + copies * nbytes


def shuffled(seed: int, span: int) -> Places:
    """Random copies, no two the same, in a range of `span` bytes, or as many as 32 copies need."""
    return lambda nbytes: np.random.default_rng(seed).permutation(max(span // nbytes, 32))[:32] * nbytes


def repeated(lanes: int) -> Places:
    """So many lanes at one address."""
    return lambda nbytes: LANE // lanes * nbytes


def swizzled(nbytes: int) -> Offsets:
    """Rows of 128 bytes whose chunks are exchanged by the number of the row."""
    chunk = LANE * nbytes // 16
    return (chunk // 8 * 8 + (chunk ^ chunk // 8) % 8) * 16 + LANE * nbytes % 16


PACKED = strided(1)


def plain() -> Iterator[CopyPattern]:
    """All lanes that take part read."""
    yield CopyPattern("packed", PACKED, PACKED)
    for step in (2, 8):
        yield CopyPattern(f"shared stride {step}", strided(step), PACKED)
        yield CopyPattern(f"global stride {step}", PACKED, strided(step))
    yield CopyPattern("both stride 2", strided(2), strided(2))
    yield CopyPattern("shared stride 2, global stride 8", strided(2), strided(8))
    yield CopyPattern("swizzled, rows far apart", swizzled, lambda nbytes: LANE * nbytes // 128 * 1024 + LANE * nbytes % 128)
    yield CopyPattern("global shifted by a copy", PACKED, shifted(PACKED, 1))
    for lines in (2, 4):
        yield CopyPattern(f"lines in turn, {lines}", PACKED, alternating(lines, 1024))
        yield CopyPattern(f"lines in turn, {lines}, shared stride 8", strided(8), alternating(lines, 1024))
    for lanes in (4, 16):
        yield CopyPattern(f"rows of {lanes} lanes", PACKED, rows_apart(lanes, 2048))
        yield CopyPattern(f"rows of {lanes} lanes, shared stride 4", strided(4), rows_apart(lanes, 2048))
    yield CopyPattern("all read the same", PACKED, repeated(32))
    yield CopyPattern("pairs read the same", PACKED, repeated(2))
    yield CopyPattern("all read the same, shared stride 8", strided(8), repeated(32))
    yield CopyPattern("all write the same", repeated(32), PACKED)
    for seed, span in enumerate((512, 2048, 4096, 16384)):
        yield CopyPattern(f"random {seed}", shuffled(10 + seed, 2048), shuffled(20 + seed, span))
        yield CopyPattern(f"random {seed}, packed in shared", PACKED, shuffled(30 + seed, span))
    for name, mask in (("lower half", 0xFFFF), ("odd lanes", 0xAAAAAAAA), ("some lanes", 0x9C35_0E71), ("one lane", 1 << 13)):
        yield CopyPattern(f"packed, {name}", PACKED, PACKED, mask)
        yield CopyPattern(f"random, {name}", shuffled(40, 2048), shuffled(41, 2048), mask)


def masked() -> Iterator[CopyPattern]:
    """Some lanes fill what they copy with zeros."""
    chosen = {one.name: one for one in plain()}
    for name in ("packed", "shared stride 2, global stride 8", "lines in turn, 4", "random 3"):
        one = chosen[name]
        for some, reads in (("none", 0), ("lower half", 0xFFFF), ("odd lanes", 0xAAAAAAAA), ("some", 0x9C35_0E71)):
            yield CopyPattern(f"{name}; {some} read", one.shared, one.far, reads=reads)
