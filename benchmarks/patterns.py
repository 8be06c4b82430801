"""Generate the addresses of the lanes of one access to shared memory, for `shared_rule` to measure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALL = 0xFFFFFFFF
LANES = np.arange(32)

_ROW_BYTES = 128
"""One word in each bank."""


@dataclass(frozen=True)
class Pattern:
    """One pattern: the element that each lane accesses, in units of the access width."""

    name: str
    elements: npt.NDArray[np.int64]
    """int64[32]: numbers of elements, or bytes where `in_bytes`."""
    mask: int = ALL
    """Active lanes, bit i is lane i."""
    in_bytes: bool = False

    def offsets(self, nbytes: int) -> npt.NDArray[np.uint32]:
        """Return uint32[32]: byte offsets for elements of `nbytes`, naturally aligned."""
        scaled = self.elements // nbytes * nbytes if self.in_bytes else self.elements * nbytes
        return scaled.astype(np.uint32)


def patterns() -> tuple[Pattern, ...]:
    """Return all of them, always the same."""
    return (*_strides(), *_repeated(), *_arranged(), *_random(), *_masked(), *_piled(), *_joined())


def _strides() -> Iterator[Pattern]:
    for stride in (*range(1, 13), 14, 15, 16, 17, 18, 20, 24, 28, 31, 32, 33):
        yield Pattern(f"stride {stride}", LANES * stride)


def _repeated() -> Iterator[Pattern]:
    """Yield patterns in which lanes share addresses."""
    yield Pattern("all the same", LANES * 0)
    for group in (2, 4, 8, 16):
        yield Pattern(f"lane/{group}", LANES // group)
    for period in (2, 4, 8, 16):
        yield Pattern(f"lane%{period}", LANES % period)
    yield Pattern("lane/2, stride 32", LANES // 2 * 32)
    yield Pattern("lane/2, stride 2", LANES // 2 * 2)
    yield Pattern("lane/4, stride 32", LANES // 4 * 32)
    yield Pattern("lane%16, stride 2", LANES % 16 * 2)
    yield Pattern("lane%16, stride 32", LANES % 16 * 32)
    yield Pattern("lane%8, stride 32", LANES % 8 * 32)
    yield Pattern("as lane^2: lane/4*2+lane%2", LANES // 4 * 2 + LANES % 2)
    yield Pattern("lane/2, but lane 31 alone", np.where(LANES == 31, 40, LANES // 2))
    yield Pattern("all the same, but lane 17", np.where(LANES == 17, 1, 0))


def _arranged() -> Iterator[Pattern]:
    yield Pattern("reversed", 31 - LANES)
    yield Pattern("lane^1", LANES ^ 1)
    yield Pattern("lane^16", LANES ^ 16)
    yield Pattern("halves interleaved", LANES // 16 + LANES % 16 * 2)
    yield Pattern("rows of 33 words", LANES * 132, in_bytes=True)
    yield Pattern("rows of 36 words", LANES * 144, in_bytes=True)
    yield Pattern("rows of 34 words", LANES * 136, in_bytes=True)
    yield Pattern("8 x 4 tile, rows of 32 words", LANES % 4 * 128 + LANES // 4 * 4, in_bytes=True)
    yield Pattern("4 x 8 tile, rows of 33 elements", LANES % 8 + LANES // 8 * 33)
    yield Pattern("4 x 8 tile, rows of 32 elements", LANES % 8 + LANES // 8 * 32)
    yield Pattern("16 x 2 tile, rows of 16 elements", LANES % 2 * 16 + LANES // 2)
    yield Pattern("stride 1 word", LANES * 4, in_bytes=True)
    yield Pattern("stride 2 words", LANES * 8, in_bytes=True)
    yield Pattern("stride 4 words", LANES * 16, in_bytes=True)
    yield Pattern("stride 1 row", LANES * _ROW_BYTES, in_bytes=True)


def _random() -> Iterator[Pattern]:
    for extent in (8, 32, 64, 256, 1024):
        for seed in range(3):
            yield Pattern(f"random in {extent}, seed {seed}", np.random.default_rng(seed).integers(0, extent, 32))
    for seed in range(3):
        yield Pattern(f"permuted, seed {seed}", np.random.default_rng(100 + seed).permutation(32))


def _masked() -> Iterator[Pattern]:
    masks = {
        "lanes 0-15": 0x0000FFFF,
        "lanes 16-31": 0xFFFF0000,
        "lanes 0-7": 0x000000FF,
        "lanes 8-23": 0x00FFFF00,
        "even lanes": 0x55555555,
        "odd lanes": 0xAAAAAAAA,
        "lanes 0 and 1 of 4": 0x33333333,
        "lanes 0 and 31": 0x80000001,
        "lanes 15 and 16": 0x00018000,
        "lanes 0 and 1": 0x00000003,
        "lane 5": 0x00000020,
        "lanes 0-30": 0x7FFFFFFF,
    }
    for name, mask in masks.items():
        yield Pattern(name, LANES, mask)
    yield Pattern("even lanes, stride 32", LANES * 32, 0x55555555)
    yield Pattern("lanes 0-15, stride 32", LANES * 32, 0x0000FFFF)
    for seed in range(3):
        random = np.random.default_rng(200 + seed)
        yield Pattern(f"random in 256 under a random mask, seed {seed}", random.integers(0, 256, 32), int(random.integers(1, ALL)))


def _piled() -> Iterator[Pattern]:
    """Yield patterns with some lanes in one bank, in different rows or at one address, and the others without a conflict."""
    for count in (2, 3, 5, 8, 16):
        yield Pattern(f"{count} lanes in one bank", np.where(np.less(LANES, count), LANES * 32, LANES))
        yield Pattern(f"{count} lanes at one address", np.where(np.less(LANES, count), 0, LANES))


def _joined() -> Iterator[Pattern]:
    """Yield patterns in which neighbours share addresses in one half of the warp or in all of it, and patterns in which joined passes have
    fewer conflicts."""
    first, dense = np.less(LANES, 16), LANES + 64
    yield Pattern("lanes 16-31 the same, others dense", np.where(first, dense, 0))
    yield Pattern("lanes 0-15 in pairs, others dense", np.where(first, LANES // 2, dense))
    yield Pattern("lanes 16-31 in pairs, others dense", np.where(first, dense, LANES // 2))
    # Each pass meets itself four times in banks of its own: joined with its neighbour it still needs four wavefronts, alone each four.
    for lanes, banks in ((8, 8), (16, 16)):
        for step, name in ((1, "lane^1"), (2, "lane^2")):
            leader = LANES & ~step
            own = LANES // lanes % 2 + leader % lanes * banks
            active = int(sum(1 << lane for lane in range(32) if not lane & step))
            size = f"passes of {lanes} in banks of their own"
            yield Pattern(f"{size}, as {name}", own)
            yield Pattern(f"{size}, as {name}, one of two", own, active)
            if lanes == 8:
                yield Pattern(f"{size}, as {name}, lanes 16-31 dense", np.where(first, own, dense + 256))
                yield Pattern(f"{size}, as {name}, lanes 0-15 dense", np.where(first, dense + 256, own))
                yield Pattern(f"{size}, as {name}, one of two, lanes 16-31 dense", np.where(first, own, dense + 256), active | 0xFFFF0000)
                yield Pattern(f"{size}, as {name}, one of two, lanes 0-15 dense", np.where(first, dense + 256, own), active | 0xFFFF)
    one, two = (LANES // 8 % 2 + (LANES & ~step) % 8 * 8 for step in (1, 2))
    yield Pattern("passes of 8 in banks of their own, halves as lane^1 and as lane^2", np.where(first, one, two + 256))
