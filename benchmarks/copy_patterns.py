"""Generate patterns of addresses of `cp.async`: where each lane of a warp reads in global memory, and where it writes in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALL = 0xFFFFFFFF
ROW_BYTES = 128
"""Bytes of one row of all banks of shared memory, and of a line of global memory."""
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
    """Places in global memory."""
    mask: int = ALL
    """The lanes that execute it."""
    reads: int = ALL
    """The lanes that read; the others fill what they copy with zeros."""
    parts: int = 0
    """Lanes, among those that read, that read one byte less than they copy and fill it with a zero."""

    def table(self, nbytes: int) -> npt.NDArray[np.uint32]:
        """Return uint32[3, 32]: offsets in shared and in global memory, and whether the lane reads."""
        return np.stack([self.shared(nbytes), self.far(nbytes), self.reads >> LANE & 1]).astype(np.uint32)

    def rows(self, nbytes: int) -> npt.NDArray[np.uint32]:
        """Return uint32[4, 32]: offsets in shared and in global memory, the bytes that the lane reads, and whether it copies."""
        size = (self.reads >> LANE & 1) * (nbytes - (self.parts >> LANE & 1))
        return np.stack([self.shared(nbytes), self.far(nbytes), size, self.mask >> LANE & 1]).astype(np.uint32)


def strided(step: int) -> Places:
    """Return copies that are `step` copies apart."""
    return lambda nbytes: LANE * nbytes * step


def rows_apart(lanes: int, far: int) -> Places:
    """Return rows of adjacent lanes, with `far` bytes between the starts of two rows."""
    return lambda nbytes: LANE // lanes * far + LANE % lanes * nbytes


def alternating(lines: int, far: int) -> Places:
    """Return the pattern with lane i in line i % lines. Lines are `far` bytes apart."""
    return lambda nbytes: LANE % lines * far + LANE // lines * nbytes


def shifted(places: Places, copies: int) -> Places:
    return lambda nbytes: places(nbytes) + copies * nbytes


def shuffled(seed: int, span: int) -> Places:
    """Return distinct random copies in a range of `span` bytes, or of as many bytes as 32 copies need."""
    return lambda nbytes: np.random.default_rng(seed).permutation(max(span // nbytes, 32))[:32] * nbytes


def repeated(lanes: int) -> Places:
    """Return groups of lanes that share one address."""
    return lambda nbytes: LANE // lanes * nbytes


def swizzled(nbytes: int) -> Offsets:
    """Return rows of 128 bytes whose chunks are swizzled by the row number."""
    chunk = LANE * nbytes // 16
    return (chunk // 8 * 8 + (chunk ^ chunk // 8) % 8) * 16 + LANE * nbytes % 16


PACKED = strided(1)


def plain() -> Iterator[CopyPattern]:
    """Return a pattern in which all active lanes read."""
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
    """Return a pattern in which some lanes fill their destination with zeros."""
    chosen = {one.name: one for one in plain()}
    for name in ("packed", "shared stride 2, global stride 8", "lines in turn, 4", "random 3"):
        one = chosen[name]
        for some, reads in (("none", 0), ("lower half", 0xFFFF), ("odd lanes", 0xAAAAAAAA), ("some", 0x9C35_0E71)):
            yield CopyPattern(f"{name}; {some} read", one.shared, one.far, reads=reads)


# -- many at a time --------------------------------------------------------------------------------------------------------------


def listed(*places: int) -> Places:
    """Return these numbers of copies for the first lanes, and 0 for the others."""
    return lambda nbytes: np.array([*places, *[0] * (32 - len(places))]) * nbytes


def staggered(nbytes: int) -> Offsets:
    """Return adjacent rows of 64 bytes whose pieces of 16 bytes are swizzled by the row number, as tiles of 32 halves are stored."""
    piece = LANE * nbytes // 16
    return (piece ^ piece // 8 % 4) * 16 + LANE * nbytes % 16


def anywhere(seed: int, span: int) -> Places:
    """Return random copies in a range of `span` copies, where several may share a place."""
    return lambda nbytes: np.random.default_rng(seed).integers(0, span, 32) * nbytes


def first(lanes: int) -> int:
    """Return the mask of the first lanes."""
    return (1 << lanes) - 1


def past_l1() -> Iterator[CopyPattern]:
    """Yield patterns of 16-byte copies: pairs of lanes and of nearby sectors, rows of several lengths and distances, random sectors."""
    for far in (*range(11), 12, 14, 16, 18, 20, 24, 32, 64, 128):
        for near in range(1, 10):
            yield CopyPattern(f"lanes 0 to 0, {far} to {near}", listed(0, near), listed(0, far), first(2))
    for begin in range(3):
        for far in (*range(11), 12, 16, 32, 64):
            for near in range(1, 6):
                if far != begin:
                    from_two, to_two = (2 * begin, 2 * begin + 1, 2 * far, 2 * far + 1), (0, 1, 2 * near, 2 * near + 1)
                    yield CopyPattern(f"sectors {begin} to 0, {far} to {near}", listed(*to_two), listed(*from_two), first(4))
    for lanes, distances in ((4, (128, 256, 384, 512, 1024, 2048)), (2, (64, 128, 160, 256)), (8, (128, 256, 1024))):
        for distance in distances:
            for shift in (0, 1, 2, 4, 6):
                far_places = shifted(rows_apart(lanes, distance), shift)
                yield CopyPattern(f"rows of {lanes} lanes, {distance} apart, shifted by {shift}", PACKED, far_places)
                yield CopyPattern(f"rows of {lanes} lanes, {distance} apart, shifted by {shift}, staggered", staggered, far_places)
    for seed in range(60):
        random = np.random.default_rng(seed)
        sectors, pieces = random.permutation((32, 64, 128)[seed % 3])[:16], random.permutation(16 if seed % 2 else 32)[:16]
        to, of = (tuple(np.repeat(2 * one, 2) + LANE % 2) for one in (pieces, sectors))
        yield CopyPattern(f"random sectors {seed}", listed(*to), listed(*of))


def through_l1(nbytes: int) -> Iterator[CopyPattern]:
    """Yield patterns of any size: two to eight lanes at random places, and strides on both sides."""
    for seed in range(90):
        span, lanes = (8, 16, 32, 64)[seed % 4] * 16 // nbytes, (8, 6, 4, 3, 2)[seed % 5]
        yield CopyPattern(f"{lanes} lanes anywhere, {seed}", shuffled(seed, span * nbytes), anywhere(100 + seed, span), first(lanes))
    for near in (1, 2, 4):
        for far in (1, 2, 4, 8):
            yield CopyPattern(f"strides {far} to {near}", strided(near), strided(far))
            yield CopyPattern(f"strides {far} to {near}, one pass", strided(near), strided(far), first(128 // nbytes))


def filled() -> Iterator[CopyPattern]:
    """Yield patterns of any size in which lanes fill all or part of their destination with zeros, from separate places or from one."""
    ways = {
        "side by side": PACKED,
        "one place": repeated(32),
        "pairs": repeated(2),
        "rows of 4 lanes": rows_apart(4, 128),
        "far": strided(8),
    }
    for name, far in ways.items():
        for where, near in (("packed", PACKED), ("stride 2", strided(2))):
            for some, reads in (("none", 0), ("the first 8", first(8)), ("some", 0x9C35_0E71)):
                yield CopyPattern(f"{name} to {where}, {some} read", near, far, reads=reads)
    for name, parts in (("all", ALL), ("one", 1 << 7), ("some", 0x1234_5678)):
        yield CopyPattern(f"{name} read a part", PACKED, PACKED, parts=parts)
        yield CopyPattern(f"{name} read a part, the first 20 read", PACKED, PACKED, reads=first(20), parts=parts)
        yield CopyPattern(f"{name} read a part, strides", strided(2), strided(4), parts=parts)
    for seed in range(30):
        random = np.random.default_rng(seed)
        reads, parts = (int(random.integers(1 << 32)) for _ in range(2))
        near, far = shuffled(200 + seed, 1024), anywhere(300 + seed, 128)
        yield CopyPattern(f"random {seed}, some read", near, far, reads=reads, parts=parts if seed % 2 else 0)


def many(nbytes: int, cache: str, masked: bool) -> Iterator[CopyPattern]:
    """Yield all patterns of one form that are profiled in the kernels of `copy_costs.py`."""
    if masked:
        yield from filled()
    elif cache == "cg":
        yield from past_l1()
    else:
        yield from through_l1(nbytes)
