"""Model the texture cache, for targets without counters: the sectors that a rendering requests, and which of them an SM already holds.

The memory layout of a 3D texture on a GPU is not published. The model assumes what such layouts have in common, that texels near each other
in all directions are stored together: 4 x 4 x 2 texels (of a byte each) are a sector of 32 bytes, 2 x 2 x 1 sectors a line of 128 bytes. A
warp's fetch requests each sector that contains one of its lanes' 2 x 2 x 2 texels once. The cache of an SM holds lines, filled sector by
sector, and evicts the least recently used line; it is as large as the L1 of the chip file and empty at first.

Block b runs on SM b modulo their number, and as many blocks run at a time as are resident there; all their warps take turns, a fetch each.
A few SMs, evenly spaced, represent all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, Chip
from memlane.lab.volume.reference import Rays, corners, rays
from memlane.lab.volume.scene import Floats, Scene, View, block_of

Integers = npt.NDArray[np.int64]

SECTOR = (4, 4, 2)
"""Extents of a sector, in texels in x, y and z."""
LINE = (2, 2, 1)
"""Extents of a line, in sectors."""
LINE_BYTES = 128
SMS = 12
"""Number of SMs that represent all."""


@dataclass
class Cache:
    """Lines in order of their last use, each with the sectors that it holds."""

    lines: int
    hits: int = 0
    misses: int = 0
    _held: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def ask(self, sectors: Iterable[int]) -> None:
        """Look up the sectors of a fetch. A sector is 4 * its line + its place in the line."""
        held = self._held
        for sector in sectors:
            line, bit = sector >> 2, 1 << (sector & 3)
            present = held.get(line, 0)
            if present & bit:
                self.hits += 1
            else:
                self.misses += 1
            held[line] = present | bit
            held.move_to_end(line)
            if len(held) > self.lines:
                held.popitem(last=False)


def sectors_of(coordinates: Floats, size: int) -> Integers:
    """Return the sectors of the eight texels of linear fetches at coordinates of shape (..., 3), as shape (..., 8)."""
    low, _ = corners(coordinates, size)
    steps = np.array([[corner & 1, corner >> 1 & 1, corner >> 2] for corner in range(8)])
    texel = np.clip(low[..., None, :] + steps, 0, size - 1)
    sector = texel // SECTOR
    line, place = sector // LINE, sector % LINE
    across = [-(-size // (texels * sectors)) for texels, sectors in zip(SECTOR, LINE, strict=True)]
    number = (line[..., 2] * across[1] + line[..., 1]) * across[0] + line[..., 0]
    places = (place[..., 2] * LINE[1] + place[..., 1]) * LINE[0] + place[..., 0]
    sectors: Integers = number * 4 + places
    return sectors


def modelled_rate(chip: Chip, scene: Scene, view: View, shape: str, fetched: Integers, resident: int) -> float:
    """Return the share of requested sectors that hit. `fetched`: samples of each ray, row by row; `resident`: blocks on an SM."""
    through, across = rays(scene, view), -(-scene.image // block_of(shape)[0])
    blocks = across * -(-scene.image // block_of(shape)[1])
    of_sm = [np.arange(sm, blocks, chip.sm_count) for sm in range(min(chip.sm_count, blocks))]
    hits = asked = 0
    for at in np.unique(np.linspace(0, len(of_sm) - 1, SMS).astype(int)):
        cache = Cache(chip.l1_bytes // LINE_BYTES)
        for first in range(0, len(of_sm[at]), resident):
            here = of_sm[at][first : first + resident]
            streams = [_fetches(through, fetched, pixels) for block in here for pixels in _warps(scene, shape, int(block), across)]
            while streams:  # each warp makes a fetch in turn, until it has no more
                streams = [stream for stream in streams if _asked(cache, stream)]
        hits += cache.hits
        asked += cache.hits + cache.misses
    return hits / asked if asked else 0.0


def _asked(cache: Cache, stream: Iterator[list[int]]) -> bool:
    """Make the next fetch of a warp, and return whether there was one."""
    sectors = next(stream, None)
    if sectors is None:
        return False
    cache.ask(sectors)
    return True


def _warps(scene: Scene, shape: str, block: int, across: int) -> Iterator[Integers]:
    """Yield the pixels of each warp of a block, those outside the image left out."""
    wide, high = block_of(shape)
    thread = np.arange(wide * high)
    x, y = block % across * wide + thread % wide, block // across * high + thread // wide
    inside = (x < scene.image) & (y < scene.image)
    for first in range(0, wide * high, LANES):
        lanes = slice(first, first + LANES)
        yield (y * scene.image + x)[lanes][inside[lanes]]


def _fetches(through: Rays, fetched: Integers, pixels: Integers) -> Iterator[list[int]]:
    """Yield the sectors of each fetch of a warp."""
    most = int(fetched[pixels].max(initial=0))
    if not most:
        return
    sample = np.arange(most)[:, None]
    sectors = sectors_of(through.coordinates(pixels[None, :], sample), through.scene.size)
    sectors[sample >= fetched[pixels]] = -1
    for fetch in sectors.reshape(most, -1):
        alone = np.unique(fetch)
        yield alone[alone >= 0].tolist()
